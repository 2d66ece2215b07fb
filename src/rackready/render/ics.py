"""iCalendar (RFC 5545): all-day events, with its rules for text, folding and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_OCTETS = 75
"""Longest line without its end (3.1)."""
_ESCAPED = {"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n"}
"""Characters of a TEXT value (3.3.11)."""


@dataclass(frozen=True, slots=True)
class DayEvent:
    """One all-day event. ``uid`` stays the same when the calendar is made again."""

    uid: str
    day: date
    summary: str
    description: str
    category: str = ""


def calendar(events: Iterable[DayEvent], now: datetime, name: str) -> str:
    """Return a calendar. ``now``: when it was made; it has a time zone."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//rackready//rackready calendar//EN",
        "CALSCALE:GREGORIAN",
        f"X-WR-CALNAME:{_text(name)}",
        *(line for event in events for line in _event(event, now)),
        "END:VCALENDAR",
    ]
    return "".join(f"{part}\r\n" for line in lines for part in fold(line))


def _event(event: DayEvent, now: datetime) -> Iterator[str]:
    """Yield the lines of an event. It takes no time of the reader (TRANSP), and ends on the next day (3.6.1)."""
    yield "BEGIN:VEVENT"
    yield f"UID:{_text(event.uid)}"
    yield f"DTSTAMP:{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    yield f"DTSTART;VALUE=DATE:{event.day:%Y%m%d}"
    yield f"DTEND;VALUE=DATE:{event.day + timedelta(days=1):%Y%m%d}"
    yield f"SUMMARY:{_text(event.summary)}"
    yield f"DESCRIPTION:{_text(event.description)}"
    if event.category:
        yield f"CATEGORIES:{_text(event.category)}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _text(value: str) -> str:
    """Return a TEXT value: escaped, and without control characters, which it must not have."""
    clean = value.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(_ESCAPED.get(one, one) for one in clean if one == "\n" or one.isprintable())


def fold(line: str) -> Iterator[str]:
    """Yield a line in parts of at most 75 octets, each after the first with a blank before it; no character is cut."""
    part, size = "", 0
    for one in line:
        octets = len(one.encode())
        if size + octets > _OCTETS:
            yield part
            part, size = " ", 1
        part, size = part + one, size + octets
    yield part
