"""`rackready evidence set-aside`: lists damaged evidence, and prints the bytes kept as proof."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json
from rackready.model.problems import RackreadyError


def show(
    proof: Annotated[
        str,
        typer.Option("--proof", help="Write the damaged bytes of this id to standard output."),
    ] = "",
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """List damaged evidence that was set aside: place, time, reason and digest.

    The kept bytes are never changed or removed.
    """
    from rackready.evidence.damaged_evidence import proof as bytes_of  # noqa: PLC0415
    from rackready.evidence.damaged_evidence import set_aside  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = env_paths(env)
    if not Ledger.exists(paths.database):
        raise RackreadyError(
            f"evidence set-aside --env {env}", expected="a ledger", actual="none", next_step="Nothing was deployed yet."
        )
    with Ledger.read_only(paths.database) as ledger:
        found, rows = (bytes_of(ledger, proof), []) if proof else (None, set_aside(ledger))
    if proof:
        if found is None:
            raise RackreadyError(
                f"--proof {proof}",
                expected="an id of `rackready evidence set-aside`",
                actual="no such id",
                next_step="Correct it.",
            )
        sys.stdout.buffer.write(found)
        return
    if output is Format.JSON:
        print_json({"set_aside": rows})
        return
    for row in rows:
        where = (
            f"file {row['file']}" if row["file"] else f"`--proof {row['id']}`" if row["sha256"] else "nothing was left"
        )
        console.print(f"{row['at']} {row['why']}\n  found: SHA-256 {row['sha256'] or 'of nothing'}, {where}")
    if not rows:
        console.print("nothing was set aside")
