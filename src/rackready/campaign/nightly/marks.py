"""What the ledger keeps of a node that a night has taken: enough to put it back after a kill.

A mark is written before its node is drained, and ends when the node is back, quarantined, or in the hands of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackready.drivers.scheduler.base import reason_text
from rackready.ledger.rows import NIGHTLY, LedgerEntry, NodeRow
from rackready.ledger.store import Ledger

TAKEN = NIGHTLY
"""Operation of the ledger, and phase of its events and of the nodes that it quarantines."""
_PAST, _SHARE = 20, 0.9
"""Newest nights that tell how long a batch takes, and the share of them that a batch is expected not to exceed: one
night that took all its time, by a hung node perhaps, says nothing about the next one. Judgement."""
FIRST_S = 1800.0
"""Seconds that a batch is expected to take before any was measured. Judgement: the set's own description says about 10
minutes, and a node with many drives or links takes longer."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A node that a night took. ``reason``: of its drain; ``note``, ``phase``, ``of``: its record before."""

    node: str
    token: int
    campaign: str
    reason: str
    begun: float
    epoch: int
    note: str = ""
    phase: str = ""
    of: str = ""

    @property
    def words(self) -> str:
        """Return the reason on record while the node is taken."""
        return f"drained: {self.reason}"


def drain_reason(campaign: str) -> str:
    """Return the reason in the scheduler. The run's name makes it this night's own."""
    return reason_text(f"{campaign}: measured while idle")


def begin(ledger: Ledger, campaign: str, row: NodeRow) -> Mark:
    """Record that a node is about to be taken."""
    kept = {"reason": drain_reason(campaign), "note": row.reason, "phase": row.phase, "of": row.campaign}
    return _mark(ledger.begin(row.name, TAKEN, campaign, kept))


def open_marks(ledger: Ledger) -> list[Mark]:
    """Return the marks that killed nights left, oldest first."""
    found = [ledger.latest(node, TAKEN, every_epoch=True) for node in ledger.interrupted(TAKEN)]
    entries = [entry for entry in found if entry is not None and entry.status == "intent"]
    return [_mark(entry) for entry in sorted(entries, key=lambda entry: entry.token)]


def longest_s(ledger: Ledger) -> float:
    """Return how long a batch is expected to take, s: as long as the longest node of nearly every night.

    Only nodes that were measured to their end count. They are grouped by night: the nodes of a batch end together.
    """
    nights: dict[str, float] = {}
    for entry in ledger.entries():
        if entry.operation == TAKEN and entry.ended is not None and entry.result.get("measured"):
            nights[entry.desired] = max(nights.get(entry.desired, 0.0), entry.ended - entry.begun)
    took = sorted(list(nights.values())[-_PAST:])
    return took[math.ceil(_SHARE * len(took)) - 1] if took else FIRST_S


def _mark(entry: LedgerEntry) -> Mark:
    seen = {key: str(value) for key, value in entry.observed.items()}
    return Mark(entry.node, entry.token, entry.desired, begun=entry.begun, epoch=entry.epoch, **seen)
