"""Tells from the ledger whether a node is drained because it was lent as a partner of a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.drivers.scheduler.base import SchedulerNode
from rackready.drivers.scheduler.places import DRAIN, RELEASE
from rackready.handover.run import PARTNER_OF
from rackready.ledger.store import LedgerEntry


def last_word(entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the newest drain or release of a node among its entries, one that surely did not happen left out."""
    found = [entry for entry in entries if entry.operation in {DRAIN, RELEASE} and entry.status != "failed"]
    return found[-1] if found else None


def borrowed(entries: Sequence[LedgerEntry]) -> bool:
    """Return whether the newest that the ledger knows of a node is that it was drained as a partner."""
    last = last_word(entries)
    return last is not None and last.operation == DRAIN and bool(last.observed.get(PARTNER_OF))


def drained_as_partner(drain: LedgerEntry, now: SchedulerNode) -> bool:
    """Return whether a node is drained still by this entry, its newest, and was lent as a partner by it."""
    if not (now.drained and now.ours):
        return False
    return bool(drain.observed.get(PARTNER_OF))
