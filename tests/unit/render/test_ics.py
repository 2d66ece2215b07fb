"""iCalendar: the rules of RFC 5545 for lines, text and times."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from rackready.render.ics import DayEvent, calendar, fold

NOW = datetime(2026, 12, 1, 3, 0, tzinfo=timezone(timedelta(hours=1)))


def unfolded(text: str) -> list[str]:
    """Return the content lines (3.1: a CRLF and one blank are removed)."""
    return text.replace("\r\n ", "").split("\r\n")


def test_a_calendar_has_what_the_standard_requires() -> None:
    event = DayEvent("quarterly-20270301-x@rackready", date(2027, 2, 28), "Gates", "node01: due\nDo: it", "quarterly")
    assert unfolded(calendar([event], NOW, "rackready x")) == [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//rackready//rackready calendar//EN",
        "CALSCALE:GREGORIAN",
        "X-WR-CALNAME:rackready x",
        "BEGIN:VEVENT",
        "UID:quarterly-20270301-x@rackready",
        "DTSTAMP:20261201T020000Z",
        "DTSTART;VALUE=DATE:20270228",
        "DTEND;VALUE=DATE:20270301",
        "SUMMARY:Gates",
        "DESCRIPTION:node01: due\\nDo: it",
        "CATEGORIES:quarterly",
        "TRANSP:TRANSPARENT",
        "END:VEVENT",
        "END:VCALENDAR",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a,b;c\\d", "a\\,b\\;c\\\\d"),
        ("one\r\ntwo\rthree", "one\\ntwo\\nthree"),
        ("bell\x07 tab\t end", "bell tab end"),
        ("Zürich: 40 °C", "Zürich: 40 °C"),
    ],
)
def test_text_is_escaped(text: str, written: str) -> None:
    made = calendar([DayEvent("u", date(2026, 12, 1), text, "d")], NOW, "n")
    assert f"SUMMARY:{written}" in unfolded(made)


@pytest.mark.parametrize(
    "text", ["x" * 75, "x" * 76, "x" * 300, "é" * 80, "x" + "é" * 80, "漢" * 60, "\U0001f600" * 40]
)
def test_lines_have_at_most_75_octets_and_no_character_is_cut(text: str) -> None:
    parts = list(fold(text))
    assert max(len(part.encode()) for part in parts) <= 75
    assert all(part.startswith(" ") for part in parts[1:])
    assert parts[0] + "".join(part[1:] for part in parts[1:]) == text
    assert len(parts) == 1 or len(parts[0].encode()) > 75 - 4


def test_a_line_of_75_octets_is_not_folded() -> None:
    assert list(fold("x" * 75)) == ["x" * 75]
    assert [len(part) for part in fold("x" * 76)] == [75, 2]


def test_every_line_ends_with_crlf() -> None:
    made = calendar([DayEvent("u", date(2026, 12, 1), "s" * 200, "d\n" * 90)], datetime(2026, 1, 1, tzinfo=UTC), "n")
    assert made.endswith("END:VCALENDAR\r\n")
    assert re.search(r"(?<!\r)\n|\r(?!\n)", made) is None
