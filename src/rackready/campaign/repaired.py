"""A repaired node begins anew: jobs are kept off it, earlier evidence no longer counts, and it is reachable."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rackready.design.pinned import site_of
from rackready.drivers.process import reap
from rackready.handover.offer import ASK_S, keep_off, not_asked, offers
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError, quoted
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

Tell = Callable[[str], None]


def begin_anew(ctx: PhaseContext, ledger: Ledger, node: str, reason: str, tell: Tell) -> int:
    """Keep jobs off a node, begin its new epoch, and return the epoch. Call it only under the controller lock.

    Raises RackreadyError, with nothing recorded, when a node on offer cannot be drained.
    """
    _each(reap(ledger), tell)
    _drain(ctx, ledger, node, reason, tell)
    for campaign in ledger.supersede(node):
        tell(f"campaign {campaign} was cut off and is not resumed: {node} repeats every phase")
    epoch = ledger.raise_epoch(node, reason)
    ledger.done(ledger.change_begins(node, "repair"), {"reason": reason})
    ledger.set_state(node, NodeState.REACHABLE, reason)
    return epoch


def _drain(ctx: PhaseContext, ledger: Ledger, node: str, reason: str, tell: Tell) -> None:
    """Keep jobs off a node that the scheduler offers. Raises RackreadyError, with nothing recorded, when that fails.

    A node that is ready is drained because of our own record, unless its scheduler answers that it does not know it:
    whoever repairs it says that it left. For any other, the scheduler is asked. When it does not answer, that is
    reported, and the next deploy asks again before it acts on the node.
    """
    _each(keep_off(ctx, but=node).lines, tell)
    row = ledger.state(node)
    state = row.state if row is not None else NodeState.DECLARED
    found = offers(site_of(ctx), EnvPaths(ctx.root, ctx.env), [node], limit_s=ASK_S, reads=False)
    if state is NodeState.READY and node in found.absent:
        tell(f"{node} is ready, and counts as having left its scheduler: {quoted(found.absent[node])}")
        return
    if state is not NodeState.READY:
        _each(not_asked(found.unknown), tell)
        if node not in found.offered:
            return
        tell(
            f"{node} is {state.value}, and the scheduler offered it to jobs ({found.offered[node].state}): it "
            "is drained until it is handed over again"
        )
    drained = drain_nodes(ctx, [node], {node: reason})[node]
    if drained.outcome is not Outcome.PASS:
        message = (
            f"{drained.message} {node} is {state.value} and offered to jobs: nothing was recorded. "
            "Run again when the scheduler can drain it."
        )
        raise RackreadyError(message)


def _each(lines: Iterable[str], tell: Tell) -> None:
    for line in lines:
        tell(line)
