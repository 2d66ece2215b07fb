"""`rackready repair`: says that a quarantined node was repaired, so that it may be measured again."""

from __future__ import annotations

from typing import Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json
from rackready.model.problems import RackreadyError


def repair(
    node: Annotated[str, typer.Argument(help="Node that was repaired.")],
    reason: Annotated[str, typer.Option("--reason", help="What was done to it; kept in the record.")],
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Begin a new epoch of a node: what was recorded before counts no longer, and it comes back at reachable."""
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.state import NodeState  # noqa: PLC0415

    paths = env_paths(env)
    known = [item.name for item in load_site(env, root=paths.root).nodes()]
    if node not in known:
        message = f"{node} - Expected: one of {', '.join(known)} Actual: no such node. Correct the name."
        raise RackreadyError(message)
    with ControllerLock(paths.lock, f"rackready repair {node}"):
        ledger = Ledger.open(paths.database)
        epoch = ledger.raise_epoch(node, f"repaired: {reason}")
        ledger.done(ledger.change_begins(node, "repair"), {"reason": reason})
        ledger.set_state(node, NodeState.REACHABLE, f"repaired: {reason}")
        ledger.close()
    document = {"name": node, "state": "reachable", "epoch": epoch, "reason": f"repaired: {reason}"}
    if output is Format.JSON:
        print_json(document)
    else:
        console.print(f"{node}: reachable, epoch {epoch}. `make deploy ENV={env}` takes it up again.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(repair)
