"""Power-on waves: order, limits of the facility, racks that cannot come on, and ratings in every wave."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.capacity.graph import PowerGraph
from rackready.design.capacity.power_on import staged, step_of
from rackready.model.facility import PowerOn
from tests.unit.design.capacity.racks import DGX, DUAL, pdus, rack, stack, tree

FIVE = [rack(f"r{n}", *stack(DUAL, 5), feeds=pdus("rpp-a", "rpp-b")) for n in range(1, 6)]
"""10 kW each, 13 kW while load comes on."""


def test_waves_keep_the_step_of_the_facility() -> None:
    order = staged(PowerGraph(tree().power), FIVE, PowerOn(max_step_kw=30))
    assert [(wave.number, wave.racks, wave.step_w, wave.running_w) for wave in order.waves] == [
        (1, ("r1", "r2"), 26000, 20000),
        (2, ("r3", "r4"), 26000, 40000),
        (3, ("r5",), 13000, 50000),
    ]
    assert order.problems == ()
    assert order.assumed == ()


def test_most_racks_of_a_wave() -> None:
    assert [wave.racks for wave in staged(PowerGraph(tree().power), FIVE, PowerOn(max_racks=4)).waves] == [
        ("r1", "r2", "r3", "r4"),
        ("r5",),
    ]


def test_transients_on_top_of_what_runs_keep_upstream_ratings() -> None:
    # Each side carries half: 26 kW hold five racks in steady state (25 kW), and not all transients at once.
    order = staged(PowerGraph(tree(rating_kw=26.5).power), FIVE, PowerOn())
    assert [wave.racks for wave in order.waves] == [("r1", "r2", "r3", "r4"), ("r5",)]
    assert order.problems == ()


def test_rack_that_cannot_come_on_is_named_with_what_it_meets() -> None:
    order = staged(PowerGraph(tree(rating_kw=26).power), FIVE, PowerOn())
    assert [str(problem) for problem in order.problems] == [
        (
            "rack r5: load cannot come on with all earlier waves running: rpp rpp-a - Expected: at most 26.0 kW "
            "Actual: 26.5 kW. "
            "Reduce the load during burn-in by as much, or feed the rack from another source."
        )
    ]
    small = staged(PowerGraph(tree().power), FIVE, PowerOn(max_step_kw=12))
    assert small.waves == ()
    assert [str(problem) for problem in small.problems] == [
        (
            "racks r1 .. r5 (5 racks): load cannot come on within facility.power_on.max_step_kw - "
            "Expected: at most 12 kW Actual: 13.0 kW. "
            "Agree a higher limit with the facility, or start the rack's nodes a few at a time."
        )
    ]


def test_unpublished_transient_is_named() -> None:
    assert staged(
        PowerGraph(tree().power), [rack("r1", *stack(DGX, 1), feeds=pdus("rpp-a", "rpp-b"))], PowerOn()
    ).assumed == ("dgx_h100",)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), st.integers(10, 200), st.integers(20, 200))
def test_ratings_hold_in_every_wave(sizes: list[int], rating_kw: int, step_kw: int) -> None:
    racks = [rack(f"r{n}", *stack(DUAL, size), feeds=pdus("rpp-a", "rpp-b")) for n, size in enumerate(sizes)]
    order = staged(PowerGraph(tree(rating_kw=rating_kw).power), racks, PowerOn(max_step_kw=step_kw))
    by_name = {item.name: item for item in racks}
    running = 0.0
    for wave in order.waves:
        step = sum(step_of(by_name[name]) for name in wave.racks)
        assert step == pytest.approx(wave.step_w)
        assert step <= step_kw * 1000
        assert (running + step) / 2 <= rating_kw * 1000 + 1
        running += sum(by_name[name].max_w for name in wave.racks)
    on = [name for wave in order.waves for name in wave.racks]
    assert len(on) == len(set(on))
    assert bool(order.problems) == (len(on) < len(racks))
