"""Puts right what a killed night left: its own marks only, whatever else happened to the nodes since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackready.campaign.nightly.drained_nodes import DrainedNodes
from rackready.campaign.nightly.marks import TAKEN, Mark, open_marks
from rackready.design.handover_of import handover_site
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerNode
from rackready.drivers.scheduler.reserve import end_leftovers
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.mps_pause import without_mps
from rackready.gates.engine.validate import connect
from rackready.model.outcome import Finding, Outcome
from rackready.model.problems import RackreadyError, quoted


@dataclass
class Resolved:
    """What became of marked nodes, in words. ``open``: those that the next night must look at again."""

    lines: dict[str, str] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)


def resolve(drained: DrainedNodes, store: EvidenceStore) -> Resolved:
    """End every mark of an earlier night: its node failed, or it goes back. Programs left on it are stopped first."""
    out = Resolved()
    mine = [mark for mark in open_marks(drained.ledger) if not _overtaken(drained, mark, out)]
    reasons = {mark.node: mark.reason for mark in mine}
    states = drained.look_after(mine, lambda adapter, mark: _look(drained, adapter, mark, reasons))
    silent = {node: quoted(str(answer)) for node, answer in states.items() if isinstance(answer, RackreadyError)}
    held = [mark for mark in mine if _held(mark, states[mark.node])]
    dirty = _clean(drained, [mark.node for mark in held])
    for mark in mine:
        why = silent.get(mark.node) or dirty.get(mark.node, "")
        if why:
            out.open.add(mark.node)
            out.lines[mark.node] = f"a killed night took it, and it is not put right yet: {why}"
            continue
        failed = _failed(store, mark) if mark in held else ""
        if failed:
            drained.quarantine(mark, failed)
            out.lines[mark.node] = f"failed in a night that was killed: {failed}"
        elif left := drained.put_back([mark], "taken by a night that was killed"):
            out.lines[mark.node] = left[mark.node]
            out.open |= {mark.node} & {one.node for one in open_marks(drained.ledger)}
        else:
            out.lines[mark.node] = "put back into production: a night that was killed had taken it"
    return out


def _overtaken(drained: DrainedNodes, mark: Mark, out: Resolved) -> bool:
    """End a mark whose node left the site, or was repaired since: whoever did that decides about the node."""
    known = {node.name for node in drained.site.nodes()}
    why = "it is no longer in the site" if mark.node not in known else ""
    if not why and drained.ledger.epoch(mark.node) != mark.epoch:
        why = "it was repaired since"
    if why:
        drained.forget(mark, why)
        out.lines[mark.node] = f"taken by a night that was killed, and left as it is: {why}"
    return bool(why)


def _look(drained: DrainedNodes, adapter: SchedulerAdapter, mark: Mark, reasons: Mapping[str, str]) -> SchedulerNode:
    """End the reservations that the killed run left on the node, and return the node's state.

    A gate had resumed nodes inside: no job may start before they are ours again.
    """
    end_leftovers(adapter, handover_site(drained.site, mark.node).handover, [mark.node], reasons)
    return adapter.show(mark.node)


def _held(mark: Mark, answer: SchedulerNode | RackreadyError) -> bool:
    return isinstance(answer, SchedulerNode) and answer.drained and answer.reason == mark.reason


def _clean(drained: DrainedNodes, nodes: Sequence[str]) -> dict[str, str]:
    """Stop what the killed run left on nodes, let MPS run again, and return node -> why that did not work."""
    if not nodes:
        return {}
    bad: dict[str, str] = {}

    def tell(node: str, found: Finding) -> None:
        drained.ledger.event(drained.ctx.campaign, node, TAKEN, str(found), "error")

    with connect(drained.site, drained.paths, nodes) as (connection, _launcher):
        for node in nodes:
            answer = connection.sweep(node)
            if answer.exit_code != 0:
                bad[node] = answer.failure or answer.stderr.strip() or f"exit {answer.exit_code}"
        with without_mps(connection, [node for node in nodes if node not in bad], tell):
            pass
    return bad


def _failed(store: EvidenceStore, mark: Mark) -> str:
    """Return the finding of a gate that failed on the node in that night, "" for none."""
    for record in store.records(campaign=mark.campaign, target=mark.node):
        if record.verdict.outcome is Outcome.FAIL:
            found = record.verdict.findings
            return str(found[0]) if found else f"{mark.node}: {record.gate} failed"
    return ""
