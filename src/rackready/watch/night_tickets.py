"""Tickets for nodes that failed at night: `rackready nightly` quarantines and drains them, and opens none itself."""

from __future__ import annotations

from datetime import UTC, datetime

from rackready.drivers.scheduler.base import reason_text
from rackready.drivers.scheduler.places import DRAIN
from rackready.evidence.store import EvidenceStore
from rackready.ledger.rows import NIGHTLY, NodeRow
from rackready.ledger.watch_tables import faults
from rackready.model.outcome import Outcome
from rackready.model.state import NodeState
from rackready.model.ticket import TicketDrain
from rackready.watch.store import Fault, Seen, WatchStore

CONDITION = "NodeQuarantined"
"""Its alert fires for the same node; the ticket has the finding of the gate as what was seen."""


def record(store: WatchStore, evidence: EvidenceStore) -> list[str]:
    """Record nodes that a night quarantined and that have no ticket for it, and return them. Raises RackreadyError.

    A node of a night that still runs is recorded as well: its state is final when it is written.
    """
    rows = [row for row in store.ledger.states() if row.state is NodeState.QUARANTINED and row.phase == NIGHTLY]
    known = {(one.node, one.last_at) for one in store.faults(faults.c.condition == CONDITION)} if rows else set()
    new = [row for row in rows if (row.name, row.since) not in known]
    if new:
        seen = [Seen(row.name, CONDITION, _part(evidence, row), row.reason, "ticket", at=row.since) for row in new]
        store.record(seen, {row.name: row.epoch for row in new})
    return [row.name for row in new]


def drain(store: WatchStore, fault: Fault) -> TicketDrain | None:
    """Return how the night keeps jobs off the node of such a fault; None for a fault that watch saw."""
    if fault.condition != CONDITION:
        return None
    entry = store.ledger.latest(fault.node, DRAIN, every_epoch=True)
    if entry is None or entry.status != "done" or entry.ended is None:
        return TicketDrain(by="nightly", reason="the ledger has no drain of it")
    named = entry.begun >= fault.last_at  # the night drains it first, and once more with the finding
    reason = reason_text(f"quarantined: {fault.actual}") if named else ""
    return TicketDrain(at=datetime.fromtimestamp(entry.ended, UTC), by="nightly", reason=reason)


def _part(evidence: EvidenceStore, row: NodeRow) -> str:
    """Return the part that the night's failed gates name; the node where they name several, or none."""
    failed = [
        finding.part
        for one in evidence.concluded(row.name).values()
        if one.campaign == row.campaign and one.verdict.outcome is Outcome.FAIL
        for finding in one.verdict.findings
        if finding.node == row.name
    ]
    return failed[0] if failed and len(set(failed)) == 1 and failed[0] else "node"
