"""`rackready repair`: records a repair, so that the node is measured again."""

from __future__ import annotations

from typing import Annotated

import typer

from rackready.cli import complete
from rackready.cli.output import (
    Env,
    Format,
    Output,
    Verbose,
    console,
    given_reason,
    print_json,
    progress,
    working_paths,
)
from rackready.cli.run_log import new_run, run_log
from rackready.model.near import CORRECT, hosts_among
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths


def repair(
    node: Annotated[str, typer.Argument(help="Node that was repaired.", autocompletion=complete.nodes)],
    reason: Annotated[str, typer.Option("--reason", help="What was done to the node; recorded.")],
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Record that a node was repaired, and return it to reachable.

    A new epoch of the node begins: earlier evidence no longer counts. A node that the scheduler offers to jobs is
    drained first. A campaign that was cut off is not resumed, because it would skip steps that it did on this node
    before the repair.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = working_paths(env)
    reason = given_reason(reason)
    known = [item.name for item in load_site(env, root=paths.root).nodes()]
    if node not in known:
        raise RackreadyError(
            node, expected=f"one of {hosts_among(known, node)}", actual="no such node", next_step=CORRECT
        )
    if not Ledger.exists(paths.database) or Ledger.read_only(paths.database).state(node) is None:
        raise RackreadyError(
            node,
            expected="a deployment record",
            actual="none",
            next_step=f"Run `rackready deploy --env {env} --limit {node}` first.",
        )
    command = f"rackready repair {node} --env {env}"
    with (
        ControllerLock(paths.lock, command, paths.database),
        run_log(paths, new_run("repair"), command, verbose=verbose),
    ):
        epoch = _repaired(paths, node, f"repaired: {reason}")
    document = {"name": node, "state": "reachable", "epoch": epoch, "reason": f"repaired: {reason}"}
    if output is Format.JSON:
        print_json(document)
    else:
        console.print(f"{node}: reachable, epoch {epoch}. `make deploy ENV={env}` continues with it.")


def _repaired(paths: EnvPaths, node: str, reason: str) -> int:
    """Keep jobs off a node, begin its new epoch, and return the epoch. A node that is at its vendor is refused."""
    from rackready.campaign.repaired import begin_anew  # noqa: PLC0415
    from rackready.handover.returned import open_case  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    with Ledger.open(paths.database) as ledger:
        if still_open := open_case(ledger, node):
            raise RackreadyError.of([still_open])
        ctx = PhaseContext(paths.env, paths.root, "")
        return begin_anew(ctx, ledger, node, reason, lambda line: progress.print(line, style="yellow"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(repair)
