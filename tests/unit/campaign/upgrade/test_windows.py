"""Maintenance windows: across midnight, on days on which the clock changes, by rack and by date."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from rackready.campaign.upgrade.windows import ask
from rackready.model.operations import MaintenanceWindow

HOUR = 3600.0


def window(**own: Any) -> MaintenanceWindow:
    return MaintenanceWindow.model_validate({"name": "w", "days": ["sat"], "start": "22:00", "hours": 4} | own)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "hours", "fits"),
    [
        ("2026-11-28T21:59", 1, False),
        ("2026-11-28T22:00", 4, True),
        ("2026-11-28T22:01", 4, False),
        ("2026-11-29T00:30", 1.5, True),
        ("2026-11-29T00:31", 1.5, False),
        ("2026-11-29T02:00", 0, False),
        ("2026-11-29T22:00", 1, False),
    ],
    ids=["before", "at its begin", "a minute short", "after midnight", "too late", "at its end", "another day"],
)
def test_a_wave_begins_only_inside_and_if_it_ends_inside(now: str, hours: float, *, fits: bool) -> None:
    assert (ask([window()], ["rack01"], at(now), hours * HOUR).fits is not None) is fits


def test_the_next_window_that_is_long_enough_is_named() -> None:
    short, long = window(name="short", days=["sun"], hours=1), window(name="long", days=["mon"])
    found = ask([short, long], ["rack01"], at("2026-11-28T12:00"), 2 * HOUR)
    assert found.later is not None
    assert (found.later.name, found.later.begins) == ("long", at("2026-11-30T22:00"))
    assert ask([short], ["rack01"], at("2026-11-28T12:00"), 2 * HOUR).later is None


@pytest.mark.parametrize(
    ("start", "day", "begins", "ends"),
    [
        ("01:00", "2026-10-25", "2026-10-24T23:00", "2026-10-25T03:00"),
        ("01:00", "2026-03-29", "2026-03-29T00:00", "2026-03-29T04:00"),
        ("02:30", "2026-03-29", "2026-03-29T01:30", "2026-03-29T05:30"),
        ("02:30", "2026-10-25", "2026-10-25T00:30", "2026-10-25T04:30"),
    ],
    ids=[
        "an hour comes twice",
        "an hour is missing",
        "begins in the missing hour",
        "begins in the hour that comes twice",
    ],
)
def test_a_window_lasts_real_hours_where_the_clock_changes(start: str, day: str, begins: str, ends: str) -> None:
    """Europe/Berlin in 2026: +1 until 29 March 02:00, +2 until 25 October 03:00 (IANA tzdata)."""
    one = window(days=["sun"], start=start, timezone="Europe/Berlin", begins=date.fromisoformat(day))
    found = ask([one], ["rack01"], at(begins), 4 * HOUR)
    assert found.fits is not None
    assert (found.fits.begins, found.fits.ends) == (at(begins), at(ends))


def test_the_calendar_is_that_of_the_zone() -> None:
    """Saturday 22:00 in Auckland (+13 in November) is Saturday 09:00 UTC, and its midnight is Saturday 11:00 UTC."""
    one = window(timezone="Pacific/Auckland")
    assert ask([one], ["rack01"], at("2026-11-28T12:59"), 0.0).fits is not None
    assert ask([one], ["rack01"], at("2026-11-28T13:00"), 0.0).fits is None


def test_a_window_counts_for_its_racks_and_dates() -> None:
    now = at("2026-11-28T22:30")
    one = window(racks=["rack[01-02]"])
    assert ask([one], ["rack02"], now, HOUR).fits is not None
    assert ask([one], ["rack02", "rack03"], now, HOUR).fits is None
    assert ask([window(ends=date(2026, 11, 27))], ["rack01"], now, HOUR).fits is None
    assert ask([window(begins=date(2026, 11, 29))], ["rack01"], now, HOUR).fits is None
    assert ask([window(ends=date(2026, 11, 28))], ["rack01"], at("2026-11-29T01:00"), HOUR).fits is not None
