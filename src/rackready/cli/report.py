"""`rackready report`: writes the report of a campaign again, from the records."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths


def report(
    campaign: Annotated[str, typer.Argument(help="Campaign; the latest when left out.")] = "",
    env: Env = "sim",
    output: Output = Format.TEXT,
    raw: Annotated[str, typer.Option("--raw", help="Print the raw output of this SHA-256 instead.")] = "",
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the JUnit XML to this file; it always lies beside the HTML.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Judge the stored outputs again, by today's gates; records stay as they are.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Write the HTML, JSON and JUnit report of a campaign. Reads records only; needs no root and no connection.

    With `--output json` the report itself is printed, a node a line. Exit code 1 when some node's evidence is not a pass.
    """
    from rackready.evidence.report import write_reports  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.gates.again import Again  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.problems import RackreadyError  # noqa: PLC0415

    paths = env_paths(env)
    ledger = Ledger.read_only(paths.database)
    known = [row["id"] for row in ledger.campaigns()]
    if raw:
        typer.echo(EvidenceStore.read_only(ledger, paths.raw).raw(raw), nl=False)
        return
    wanted = campaign or next(iter(known), "")
    if wanted not in known:
        message = f"campaign {wanted!r} - Expected: one of {', '.join(known[:10]) or 'none yet'}. `rackready status` names the latest."
        raise RackreadyError(message)
    written = write_reports(paths.root, env, wanted, judging=Again() if again else None)
    if junit is not None:
        shutil.copyfile(written.junit, junit)
    if output is Format.JSON:
        with written.json.open(encoding="utf-8") as file:
            shutil.copyfileobj(file, sys.stdout)
    else:
        console.print(f"{written.html}\n{written.json}\n{junit or written.junit}", markup=False)
    if set(written.outcomes) - {"pass", "skip"}:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)
