"""Since when an item differs: the last campaign that applied it, and the drift runs before this one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rackready.campaign.drift.applied import PHASES
from rackready.ledger.drift import DriftRow, PhasePass, last_passes, runs_of
from rackready.ledger.store import Ledger
from rackready.model.drift import DriftItem, WhenSeen

_MEASURED = ("validate", "revalidate", "certify")
"""Phases that took the fingerprint, the parts and the settings that gates read."""


def with_history(
    ledger: Ledger, target: str, nodes: Sequence[str], items: Sequence[DriftItem], now: WhenSeen
) -> list[DriftItem]:
    """Return items with the last campaign in which their phase passed on the nodes, and the drift runs that saw them.

    ``now``: this run, which is the first one to see what no earlier one saw.
    """
    if not items:
        return []
    passes = last_passes(ledger, nodes, (*PHASES, *_MEASURED))
    earlier = list(runs_of(ledger, target))
    return [_dated(item, _since(item, passes), earlier, now) for item in items]


def _since(item: DriftItem, passes: dict[str, dict[str, PhasePass]]) -> WhenSeen | None:
    """Return the newest campaign in which the item's phase passed; of an item without a phase, the last measurement."""
    phases = [item.phase] if item.phase else list(_MEASURED)
    found = [done[phase] for done in passes.values() for phase in phases if phase in done]
    last = max(found, key=lambda done: done.at, default=None)
    return None if last is None else WhenSeen(run=last.campaign, at=utc(last.at))


def _dated(item: DriftItem, since: WhenSeen | None, earlier: Sequence[DriftRow], now: WhenSeen) -> DriftItem:
    """Return the item with the first run of those, newest first, that found it without a run in between that did not.

    A run that could not ask everything proves no absence: it is passed over.
    """
    first: WhenSeen = now
    without: WhenSeen | None = None
    for row in earlier:
        keys = {DriftItem.model_validate(one).key for one in row.report["items"]}
        if item.key in keys:
            first = WhenSeen(run=row.run, at=utc(row.at))
        elif row.report["asked"]:
            without = WhenSeen(run=row.run, at=utc(row.at))
            break
    return item.model_copy(update={"since": since, "first_seen": first, "last_without": without})


def utc(at: float) -> str:
    """Return a time, seconds since 1970, as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
