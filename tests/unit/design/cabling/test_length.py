"""Cable lengths: the formula by hand, its invariants (hypothesis), and every refusal by its exact text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import hypot

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackready.design.cabling.length import LengthError, Ruler, height
from rackready.design.cabling.types import CabledDevice, CablePlace, FloorPlan, HallPlan
from tests.unit.design.cabling.kit import HALL, floor

PLACES = st.builds(CablePlace, hall=st.just("hall-a"), row=st.integers(0, 40), position=st.integers(0, 60))
UNITS = st.integers(1, 48)
HALLS = st.builds(
    HallPlan,
    name=st.just("hall-a"),
    rack_pitch_m=st.floats(0.5, 1.2),
    row_pitch_m=st.floats(1.5, 6),
    tray_height_m=st.floats(0.1, 6),
)
SLACK = st.floats(0, 3)
EXACT = 0.011
"""What rounding up to a centimetre may add, m."""


def measure(plan: FloorPlan, a: tuple[str, int], b: tuple[str, int]) -> float:
    return Ruler(plan).length(CabledDevice("a", *a), CabledDevice("b", *b))


def between(a: CablePlace, b: CablePlace, hall: HallPlan, slack: float) -> FloorPlan:
    return FloorPlan({"hall-a": hall}, {"x": a, "y": b}, slack_m=slack)


def test_same_rack_is_the_difference_in_height_one_pitch_and_the_slack() -> None:
    assert measure(floor(), ("r", 1), ("r", 41)) == pytest.approx(40 * 0.04445 + 0.6 + 1.0, abs=EXACT)


def test_same_row_goes_up_to_the_tray_along_and_down() -> None:
    up, down = 2.7 - height(1), 2.7 - height(41)
    assert measure(floor(s=(0, 5)), ("r", 1), ("s", 41)) == pytest.approx(up + down + 5 * 0.6 + 0.6 + 1.0, abs=EXACT)


def test_across_rows_adds_the_row_pitch() -> None:
    same_row, other_row = (measure(floor(s=place), ("r", 1), ("s", 1)) for place in ((0, 5), (4, 5)))
    assert other_row - same_row == pytest.approx(4 * 3.0, abs=EXACT)


def two_halls(ways: Mapping[tuple[str, str], float]) -> FloorPlan:
    other = HallPlan("hall-b", 0.8, 2.0, 3.5)
    return FloorPlan(
        {"hall-a": HALL, "hall-b": other},
        {"r": CablePlace("hall-a", 2, 3), "s": CablePlace("hall-b", 1, 4)},
        ways,
        slack_m=0.5,
    )


def test_across_halls_goes_through_both_entries() -> None:
    up, down = 2.7 - height(10), 3.5 - height(20)
    way = 2 * 3.0 + 3 * 0.6 + 1 * 2.0 + 4 * 0.8 + 25
    expected = up + down + way + 0.7 + 1.0
    assert measure(two_halls({("hall-a", "hall-b"): 25}), ("r", 10), ("s", 20)) == pytest.approx(expected, abs=EXACT)
    assert measure(two_halls({("hall-b", "hall-a"): 25}), ("r", 10), ("s", 20)) == pytest.approx(expected, abs=EXACT)


def test_the_length_is_rounded_up_and_never_by_floating_point() -> None:
    plan = FloorPlan({}, {}, slack_m=0.0)
    assert measure(plan, ("r", 1), ("r", 1)) == 0.6
    assert measure(plan, ("r", 1), ("r", 2)) == 0.65


@given(PLACES, UNITS, PLACES, UNITS, HALLS, SLACK)
def test_it_does_not_matter_which_end_comes_first(
    a: CablePlace, u: int, b: CablePlace, v: int, hall: HallPlan, slack: float
) -> None:
    plan = between(a, b, hall, slack)
    assert measure(plan, ("x", u), ("y", v)) == pytest.approx(measure(plan, ("y", v), ("x", u)), abs=EXACT)


@given(PLACES, UNITS, PLACES, UNITS, HALLS, SLACK)
def test_it_is_never_shorter_than_the_straight_line(
    a: CablePlace, u: int, b: CablePlace, v: int, hall: HallPlan, slack: float
) -> None:
    level = hypot((a.row - b.row) * hall.row_pitch_m, (a.position - b.position) * hall.rack_pitch_m)
    straight = hypot(level, height(u) - height(v))
    assert measure(between(a, b, hall, slack), ("x", u), ("y", v)) >= straight + 2 * slack - 1e-6
    assert measure(between(a, b, hall, slack), ("x", u), ("x", v)) >= abs(height(u) - height(v)) + 2 * slack - 1e-6


def beyond(start: int, at: int, steps: int) -> int:
    """Return a coordinate further from ``start`` than ``at`` in the same direction, and never before the beginning."""
    return at + steps if at >= start else max(0, at - steps)


@given(PLACES, PLACES, UNITS, UNITS, HALLS, st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_further_away_is_never_shorter(
    a: CablePlace, b: CablePlace, u: int, v: int, hall: HallPlan, steps: tuple[int, int]
) -> None:
    further = replace(b, row=beyond(a.row, b.row, steps[0]), position=beyond(a.position, b.position, steps[1]))
    near, far = (measure(between(a, place, hall, 0.5), ("x", u), ("y", v)) for place in (b, further))
    assert far >= near - EXACT


@given(PLACES, UNITS, PLACES, UNITS, HALLS, st.floats(0.01, 6))
def test_a_tray_below_the_ports_never_shortens_the_way(
    a: CablePlace, u: int, b: CablePlace, v: int, hall: HallPlan, low: float
) -> None:
    lowest = min(height(u), height(v))
    at, below = (
        measure(between(a, b, replace(hall, tray_height_m=tray), 0.5), ("x", u), ("y", v))
        for tray in (lowest, max(0.001, lowest - low))
    )
    assert below >= at - EXACT


def refused(plan: FloorPlan, a: tuple[str, int] = ("r", 1), b: tuple[str, int] = ("s", 1)) -> str:
    with pytest.raises(LengthError) as caught:
        measure(plan, a, b)
    return str(caught.value)


def test_a_unit_outside_its_rack_is_refused() -> None:
    assert (
        refused(floor(s=(0, 1)), ("r", 49))
        == "a - Expected: a unit of rack r, 1 to 48 Actual: 49. Correct its unit, or the rack's height_u."
    )
    assert (
        refused(floor(s=(0, 1)), ("r", 1), ("s", 0))
        == "b - Expected: a unit of rack s, 1 to 48 Actual: 0. Correct its unit, or the rack's height_u."
    )


def test_a_rack_without_a_place_is_refused() -> None:
    expected = "rack s - Expected: hall, row and position Actual: not given. Add them, so that lengths can be computed."
    assert refused(floor()) == expected


def test_a_place_before_the_beginning_is_refused() -> None:
    assert (
        refused(floor(s=(-1, 2))) == "rack s - Expected: row and position of 0 or more Actual: -1 and 2. Correct them."
    )


def test_an_unknown_hall_is_refused() -> None:
    plan = replace(floor(), places={"r": CablePlace("hall-a", 0, 0), "s": CablePlace("hall-z", 0, 1)})
    assert (
        refused(plan)
        == "rack s - Expected: a hall of the site Actual: hall-z. Add the hall with its pitches, or correct the "
        "rack's hall."
    )


@pytest.mark.parametrize("name", ["rack_pitch_m", "row_pitch_m", "tray_height_m"])
def test_a_hall_without_extent_is_refused(name: str) -> None:
    hall = HallPlan(**{"name": "hall-a", "rack_pitch_m": 0.6, "row_pitch_m": 3.0, "tray_height_m": 2.7, name: -0.6})
    plan = replace(floor(s=(0, 1)), halls={"hall-a": hall})
    assert (
        refused(plan) == f"hall hall-a - Expected: more than 0 m Actual: {name} -0.6. Measure it and correct the hall."
    )


def test_halls_with_nothing_between_them_are_refused() -> None:
    expected = (
        "halls hall-a and hall-b - Expected: the cable path between them in m Actual: not given. "
        "Measure it from entry to entry, and add it to ways_m."
    )
    assert refused(two_halls({})) == expected


def test_a_way_of_nothing_between_halls_is_refused() -> None:
    expected = (
        "halls hall-a and hall-b - Expected: a cable path of more than 0 m Actual: -5 m. "
        "Measure it from entry to entry."
    )
    assert refused(two_halls({("hall-a", "hall-b"): -5})) == expected


def test_negative_slack_is_refused() -> None:
    assert (
        refused(replace(floor(s=(0, 1)), slack_m=-0.1))
        == "slack - Expected: 0 m or more Actual: -0.1 m. Correct the slack of cables."
    )


def test_a_way_without_end_is_refused() -> None:
    hall = HallPlan("hall-a", 0.6, 1e308, 2.7)
    plan = FloorPlan({"hall-a": hall}, {"r": CablePlace("hall-a", 0, 1), "s": CablePlace("hall-a", 5, 1)}, slack_m=0.5)
    with pytest.raises(LengthError) as refused:
        measure(plan, ("r", 1), ("s", 1))
    assert (
        str(refused.value) == "racks r and s - Expected: a measurable distance Actual: inf m. "
        "Correct the pitches of the hall, and the slack."
    )
