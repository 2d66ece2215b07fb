"""The fixtures' README lists every fixture with its origin, and nothing else."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ROW = re.compile(r"\| `((captured|made)/[^`]+)` \| (.+) \| (.+) \|")


def rows() -> list[tuple[str, str, str]]:
    """Return (pattern, tool or what it imitates, origin or source) of each row."""
    found = []
    section = ""
    for line in (FIXTURES / "README.md").read_text(encoding="utf-8").splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        if line.startswith("| `"):
            row = ROW.fullmatch(line)
            assert row, line
            assert row[2] == section, f"{row[1]} stands below {section}"
            found.append((row[1], row[3], row[4]))
    return found


def files() -> list[str]:
    """Return the fixtures, relative to their folder."""
    return sorted(
        path.relative_to(FIXTURES).as_posix()
        for path in FIXTURES.rglob("*")
        if path.is_file() and path != FIXTURES / "README.md"
    )


def test_every_fixture_is_listed_once() -> None:
    listed = {name: [pattern for pattern, *_ in rows() if fnmatch(name, pattern)] for name in files()}
    assert {name: patterns for name, patterns in listed.items() if len(patterns) != 1} == {}


def test_no_row_lists_a_fixture_that_is_not_there() -> None:
    assert [pattern for pattern, *_ in rows() if not any(fnmatch(name, pattern) for name in files())] == []


def test_every_row_shows_what_it_is_and_where_it_comes_from() -> None:
    assert [row for row in rows() if not all(cell.strip(" -") for cell in row)] == []


def test_a_name_stands_in_one_of_the_two_folders() -> None:
    """Tests name a fixture without `captured` or `made` (tests/gates/support.py)."""
    names = [name.partition("/")[2] for name in files()]
    assert sorted(set(names)) == sorted(names)
