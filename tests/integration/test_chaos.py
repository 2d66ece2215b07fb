"""The pure parts of the chaos rounds: points come from the seed alone, and what went wrong is told apart from what did not."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from rackready.campaign.request import DEPLOY
from tests.integration.aftermath import installed_twice, power_problems
from tests.integration.chaos import EVENTS, LENGTHS_S, Point, Record, Seen, Strike, count_in, draw, has_come, is_past, under_way

EVERY = dict.fromkeys(DEPLOY, 3)


def test_same_seed_draws_the_same_points() -> None:
    assert draw(7, EVERY) == draw(7, EVERY)
    assert draw(7, EVERY) != draw(8, EVERY)


@pytest.mark.parametrize("seed", range(50))
def test_points_come_in_the_order_of_phases_and_lie_within_them(seed: int) -> None:
    points = draw(seed, EVERY)
    assert [point.phase for point in points] == [phase for phase in DEPLOY for _ in range(3)]
    for point in points:
        assert 0 <= point.delay_s <= LENGTHS_S[point.phase] / 2
        assert 0 <= point.event <= max(4, EVENTS[point.phase] // 4)
        assert bool(point.event) != bool(point.delay_s), "one or the other"
    assert all(point.event for point in points[::3]), "the first of a phase waits for a line of progress, not for a clock"


def test_both_kinds_of_points_are_drawn() -> None:
    assert {bool(point.event) for seed in range(20) for point in draw(seed, EVERY)} == {True, False}


def test_measured_lengths_name_every_phase() -> None:
    assert list(LENGTHS_S) == list(EVENTS) == list(DEPLOY)


def test_a_point_says_where_it_is() -> None:
    assert str(Point("install", event=3)) == "install at event 3"
    assert str(Point("fabric", delay_s=1.5)) == "fabric 1.50 s after it begins"
    assert str(Point("install", event=3, number=signal.SIGINT)) == "install at event 3, SIGINT"


SEEN = [Seen(1, "provision", "begins"), Seen(2, "provision", "unchanged"), Seen(3, "revalidate", "begins"), Seen(4, "validate", "node/gpu/... passed")]


def test_phase_under_way_is_the_one_that_began_last() -> None:
    assert under_way(SEEN) == "revalidate", "its measurements carry another name"
    assert under_way(SEEN[:2]) == "provision"
    assert under_way([]) == ""


def test_lines_are_counted_from_the_beginning_of_the_phase() -> None:
    assert count_in(SEEN, "revalidate") == 2
    assert count_in(SEEN, "install") == 0


@pytest.mark.parametrize(
    ("phase", "now", "past"), [("provision", "install", True), ("install", "install", False), ("fabric", "install", False), ("install", "", False)]
)
def test_phase_is_past_when_a_later_one_is_under_way(phase: str, now: str, past: bool) -> None:  # noqa: FBT001 - an expected value
    assert is_past(phase, now) is past


def test_a_point_has_come_at_its_line_or_after_its_delay() -> None:
    assert has_come(Point("revalidate", event=2), SEEN, 0.0)
    assert not has_come(Point("revalidate", event=3), SEEN, 0.0)
    assert has_come(Point("revalidate", delay_s=1.0), SEEN, 1.0)
    assert not has_come(Point("revalidate", delay_s=1.0), SEEN, 0.9)


def test_only_kills_that_landed_count_as_hits() -> None:
    kill, stop = Point("install", event=1), Point("fabric", event=1, number=signal.SIGINT)
    record = Record([Strike(kill, "install", -9, 0.1), Strike(kill, "", 0, 0.1), Strike(kill, "fabric", -9, 0.1), Strike(stop, "validate", 130, 3.0)])
    assert record.hits() == {"install": 1, "fabric": 1}
    assert record.spared() == ["provision", "validate", "optimize", "revalidate", "certify", "handover"]


def power(*nodes: str, action: str = "on") -> list[dict[str, Any]]:
    return [{"node": node, "action": action} for node in nodes]


def test_powered_on_twice_or_never_is_found() -> None:
    four = power("node01", "node02", "node03", "node04")
    assert power_problems(four) == []
    assert power_problems(four + power("node02", action="ForceRestart")) == ["node02 was powered on 2 times"]
    assert power_problems(four[:3]) == ["node04 was powered on 0 times"]
    assert power_problems(four + power("node02", action="off")) == []


def test_package_installed_twice_is_found() -> None:
    line = "2026-01-01 00:00:00 install {}:amd64 <none> 1.0\n2026-01-01 00:00:01 status installed {}:amd64 1.0\n"
    assert installed_twice(line.format("a", "a") + line.format("b", "b")) == {}
    assert installed_twice(line.format("a", "a") * 2 + line.format("b", "b")) == {"a:amd64": 2}
