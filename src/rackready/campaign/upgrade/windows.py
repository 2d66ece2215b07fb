"""Maintenance windows: whether work that takes so long may begin now, and else when.

A window begins at a time of its zone's clock and lasts real hours: where the clock changes meanwhile, it ends an hour
earlier or later by the clock. A time that the clock leaves out is an hour later by it; of one that comes twice, the
first counts (PEP 495, fold=0).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

from rackready.model.base import expand_names
from rackready.model.operations import MaintenanceWindow, Weekday

_DAYS: tuple[str, ...] = get_args(Weekday)
_AHEAD = 371
"""Days that are searched for the next window: a year and a week."""


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """One opening of a window, in UTC."""

    name: str
    begins: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """``fits``: the slot in which the work may begin now. ``later``: the next one that is long enough, if there is."""

    fits: OpenWindow | None
    later: OpenWindow | None
    open_now: OpenWindow | None


def covering(windows: Sequence[MaintenanceWindow], racks: Collection[str]) -> list[MaintenanceWindow]:
    """Return the windows that are open to all of these racks."""
    return [
        window
        for window in windows
        if not window.racks or set(racks) <= {name for text in window.racks for name in expand_names(text)}
    ]


def slots(window: MaintenanceWindow, first: date, days: int) -> Iterator[OpenWindow]:
    """Yield the openings that begin on these days of the window's own calendar."""
    zone, (hour, minute) = ZoneInfo(window.timezone), map(int, window.start.split(":"))
    for offset in range(days):
        day = first + timedelta(days=offset)
        if _DAYS[day.weekday()] not in window.days:
            continue
        if (window.begins and day < window.begins) or (window.ends and day > window.ends):
            continue
        begins = datetime.combine(day, time(hour, minute), zone).astimezone(UTC)
        yield OpenWindow(window.name, begins, begins + timedelta(hours=window.hours))


def ask(windows: Sequence[MaintenanceWindow], racks: Collection[str], now: datetime, seconds: float) -> WindowAnswer:
    """Return whether work of that length on these racks may begin now. ``now`` has a time zone."""
    now, need = now.astimezone(UTC), timedelta(seconds=seconds)
    found: list[OpenWindow] = []
    for window in covering(windows, racks):
        today = now.astimezone(ZoneInfo(window.timezone)).date()
        # a window lasts at most a day, so one that is open began today or yesterday
        found += list(slots(window, today - timedelta(days=2), _AHEAD))
    found.sort(key=lambda slot: slot.begins)
    open_now = [slot for slot in found if slot.begins <= now < slot.ends]
    fits = next((slot for slot in open_now if now + need <= slot.ends), None)
    later = next((slot for slot in found if slot.begins > now and slot.ends - slot.begins >= need), None)
    return WindowAnswer(fits, later, max(open_now, key=lambda slot: slot.ends, default=None))
