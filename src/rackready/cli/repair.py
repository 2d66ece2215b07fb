"""`rackready repair`: records a repair, so that the node is measured again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, given_reason, print_json, progress
from rackready.cli.run_log import new_run, run_log
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths

if TYPE_CHECKING:
    from rackready.ledger.store import Ledger
    from rackready.model.phase import PhaseContext


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

    paths = env_paths(env)
    reason = given_reason(reason)
    known = [item.name for item in load_site(env, root=paths.root).nodes()]
    if node not in known:
        raise RackreadyError(
            node, expected=f"one of {', '.join(known)}", actual="no such node", next_step="Correct the name."
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
    """Keep jobs off a node, begin its new epoch, and return the epoch."""
    from rackready.drivers.process import reap  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415
    from rackready.model.state import NodeState  # noqa: PLC0415

    with Ledger.open(paths.database) as ledger:
        for line in reap(ledger):
            progress.print(f"ended a leftover of an earlier run: {line}", style="yellow")
        _drain(PhaseContext(paths.env, paths.root, ""), ledger, node, reason)
        for campaign in ledger.supersede(node):
            progress.print(
                f"campaign {campaign} was cut off and is not resumed: {node} repeats every phase",
                style="yellow",
            )
        epoch = ledger.raise_epoch(node, reason)
        ledger.done(ledger.change_begins(node, "repair"), {"reason": reason})
        ledger.set_state(node, NodeState.REACHABLE, reason)
        return epoch


def _drain(ctx: PhaseContext, ledger: Ledger, node: str, reason: str) -> None:
    """Keep jobs off a node that the scheduler offers. Raises RackreadyError, with nothing recorded, when that fails.

    A node that is ready is drained because of our own record; for any other, the scheduler is asked. When it does not
    answer, that is reported, and the next deploy asks again before it acts on the node.
    """
    from rackready.design.pinned import site_of  # noqa: PLC0415
    from rackready.handover.offer import ASK_S, keep_off, not_asked, offers  # noqa: PLC0415
    from rackready.handover.run import drain_nodes  # noqa: PLC0415
    from rackready.model.outcome import Outcome  # noqa: PLC0415
    from rackready.model.state import NodeState  # noqa: PLC0415

    _warn(keep_off(ctx, but=node).lines)
    row = ledger.state(node)
    state = row.state if row is not None else NodeState.DECLARED
    if state is not NodeState.READY:
        found = offers(site_of(ctx), EnvPaths(ctx.root, ctx.env), [node], limit_s=ASK_S, reads=False)
        _warn(not_asked(found.unknown))
        if node not in found.offered:
            return
        _warn(
            [
                (
                    f"{node} is {state.value}, and the scheduler offered it to jobs ({found.offered[node].state}): it "
                    "is drained until it is handed over again"
                )
            ]
        )
    drained = drain_nodes(ctx, [node], {node: reason})[node]
    if drained.outcome is not Outcome.PASS:
        message = (
            f"{drained.message} {node} is {state.value} and offered to jobs: nothing was recorded. "
            "Run again when the scheduler can drain it."
        )
        raise RackreadyError(message)


def _warn(lines: Iterable[str]) -> None:
    for line in lines:
        progress.print(line, style="yellow")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(repair)
