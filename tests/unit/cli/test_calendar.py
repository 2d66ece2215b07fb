"""`rackready calendar`: its table, its documents, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.campaign.night_world import NODES, NOW, World, made
from tests.unit.render.test_ics import unfolded

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "playbooks").mkdir()
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("rackready.cli.calendar.time.time", lambda: NOW)
    return made(tmp_path, monkeypatch)


def measured(world: World, hours_ago: float) -> None:
    for node in NODES:
        world.evidence(node, hours_ago)


def test_items_of_a_day_stand_together(world: World, command: Command) -> None:
    measured(world, 1)
    code, out, _ = command("calendar", "--env", "t", "--until", "2026-12-02")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "nightly" in line]
    assert cells == [["2026-12-02", "", "nightly", "node[01-04]", "2026-12-01", "", ""]]
    assert code == 0
    assert out.splitlines()[-1].endswith(" items, 0 overdue")


def test_overdue_work_ends_with_one(world: World, command: Command) -> None:
    measured(world, 72)
    code, out, _ = command("calendar", "--env", "t", "--output", "json")
    told = json.loads(out)
    nightly = [item for item in told["items"] if item["rule"] == "nightly"]
    assert code == 1
    assert (told["today"], told["until"]) == ("2026-12-01", "2027-03-03")
    assert nightly[0] == {
        "rule": "nightly",
        "title": "Gates of set nightly",
        "name": "node01",
        "last": "2026-11-28",
        "due": "2026-11-29",
        "overdue": True,
        "why": "",
        "window": "",
        "do": "rackready nightly --limit node01",
        "source": "gate set nightly: every night",
    }


def test_a_calendar_program_gets_one_event_for_each_rule_and_day(world: World, command: Command) -> None:
    measured(world, 72)
    _, out, _ = command("calendar", "--env", "t", "--output", "ics")
    lines = unfolded(out)
    at = lines.index("CATEGORIES:nightly")
    assert lines[at - 6 : at] == [
        "UID:nightly-20261201-sim@rackready",
        "DTSTAMP:20261201T020000Z",
        "DTSTART;VALUE=DATE:20261201",
        "DTEND;VALUE=DATE:20261202",
        "SUMMARY:Gates of set nightly: node[01-04] (4 overdue)",
        "DESCRIPTION:"
        + "".join(f"node0{number}: overdue since 2026-11-29\\n" for number in range(1, 5))
        + "Do: rackready nightly --limit NAME\\nSource: gate set nightly: every night",
    ]
    assert out.count("BEGIN:VEVENT") == out.count("END:VEVENT") == len({line for line in lines if line[:4] == "UID:"})


@pytest.mark.parametrize("text", ["tomorrow", "2026-11-30", "2046-01-01", "2026-13-01"])
def test_other_days_are_refused(world: World, command: Command, text: str) -> None:
    _ = world
    code, _, err = command("calendar", "--env", "t", "--until", text)
    assert code == 2
    assert " ".join(err.split()) == (
        f"--until {text} - Expected: a day such as 2027-03-03, from today on, at most ten years ahead Actual: {text}. "
        "Correct it."
    )


def test_a_site_without_a_record_is_refused(call: Command) -> None:
    code, _, err = call("calendar")
    assert code == 2
    assert " ".join(err.split()) == (
        "calendar of sim - Expected: a deployment record Actual: none. Run `rackready deploy --env sim` first."
    )
