"""Tells from the ledger whether a node is drained because it was lent as a partner of a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.drivers.scheduler.base import PREFIX, SchedulerNode
from rackready.handover.run import DRAIN, PARTNER_OF, RELEASE
from rackready.ledger.store import LedgerEntry

_OLD_REASON = f"{PREFIX} partner in the measurement of "
"""Reason of a partner's drain in versions that did not record ``PARTNER_OF`` and left nothing else to know it by.

It is the text of those versions: today's reason may be worded in any other way.
"""


def last_word(entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the newest drain or release of a node among its entries, one that surely did not happen left out."""
    found = [entry for entry in entries if entry.operation in {DRAIN, RELEASE} and entry.status != "failed"]
    return found[-1] if found else None


def drained_as_partner(drain: LedgerEntry, now: SchedulerNode) -> bool:
    """Return whether a node is drained still by this entry, its newest, and was lent as a partner by it."""
    if not (now.drained and now.ours):
        return False
    if PARTNER_OF in drain.observed:
        return bool(drain.observed[PARTNER_OF])
    return now.reason.startswith(_OLD_REASON)
