"""Every violation inside racks by its exact text, with the smallest fix; no free place is offered twice."""

from __future__ import annotations

import re
from dataclasses import replace

from rackready.design.capacity.parts import DeviceModel, RackInput
from rackready.design.capacity.report import CapacityReport, capacity
from rackready.model.facility import Facility, Feed, RackCooling
from tests.unit.design.capacity.racks import DGX, DUAL, TRAY, pdus, rack, stack, tree

NO_ROOM = "No rack has room for its nodes: split them over one more rack."
ALL_OR_NONE = "Set psus for every feed of the rack so that they add up, or for none."


def texts(report: CapacityReport) -> list[str]:
    return [str(problem) for problem in report.problems]


def full(name: str, count: int = 4) -> RackInput:
    return rack(name, *stack(DGX, count, f"{name}-n"), feeds=pdus("rpp-a", "rpp-b", "rpp-c", amps=30), height_u=40)


def test_node_is_moved_to_the_rack_that_has_room() -> None:
    report = capacity([full("r1"), full("r2", 2)], tree("abc"))
    assert texts(report) == [
        (
            "rack r1: feed b (415 V three-phase 30 A at 80 %) is over its rating with feed a lost - "
            "Expected: at most 17.3 kW Actual: 22.9 kW. "
            "The loss of ups-a, rpp-a has the same effect. "
            "Move r1-n4 to rack r2 unit 17, or use a breaker of 40 A (415 V) for feeds a, b, c."
        )
    ]


def test_one_free_place_is_offered_to_one_rack_only() -> None:
    report = capacity([full("r1"), full("r3"), full("r2", 2)], tree("abc"))
    assert len(report.problems) == 2
    assert "Move r1-n4 to rack r2 unit 17, or" in texts(report)[0]
    assert texts(report)[1].endswith(
        "No rack has room for its nodes: use a breaker of 40 A (415 V) for feeds a, b, c, or split its nodes over "
        "one more rack."
    )
    places = re.findall(r"to rack (\S+) unit (\d+)", " ".join(texts(report)))
    assert len(places) == len(set(places)) == 1


def test_place_without_power_upstream_is_not_offered() -> None:
    report = capacity([full("r1"), full("r2", 2)], tree("abc", rating_kw=34))
    assert not any("Move" in text for text in texts(report))


def test_same_problem_of_many_racks_is_one_line() -> None:
    report = capacity([full(f"r{n}") for n in range(1, 41)], tree("abc", rating_kw=3000))
    assert texts(report) == [
        (
            "racks r1 .. r40 (40 racks): feed b (415 V three-phase 30 A at 80 %) is over its rating with feed a lost"
            " - Expected: at most 17.3 kW Actual: 22.9 kW. The loss of ups-a, rpp-a has the same effect. "
            "No rack has room for its nodes: use a breaker of 40 A (415 V) for feeds a, b, c, or split its nodes over "
            "one more rack."
        )
    ]


def test_weight_units_and_heat() -> None:
    heavy = RackInput("r1", stack(DGX, 4), (), 30, RackCooling(kind="air", max_kw=40, max_air_kw=35), 500.0)
    assert texts(capacity([heavy], None)) == [
        f"rack r1: devices need more units than the rack has - Expected: at most 30 U Actual: 32 U. {NO_ROOM}",
        (
            "rack r1: total weight is too high - Expected: at most 500 kg Actual: 521.8 kg. "
            "No rack has room for its nodes: split them over one more rack."
        ),
        f"rack r1: heat exceeds its cooling - Expected: at most 40 kW Actual: 40.8 kW. {NO_ROOM}",
        (
            "rack r1: heat into air exceeds its cooling - Expected: at most 35 kW Actual: 40.8 kW. "
            "No rack has room for its nodes: split them over one more rack."
        ),
    ]


def test_liquid_cooled_model_in_an_air_cooled_rack() -> None:
    item = rack("r1", *stack(TRAY, 1), cooling=RackCooling(kind="air"))
    assert texts(capacity([item], None)) == [
        (
            "rack r1: tray is liquid-cooled - Expected: cooling of kind liquid or hybrid Actual: air. "
            "Move it to a rack with a liquid loop."
        )
    ]


def test_heat_into_liquid_beyond_the_loop() -> None:
    item = rack("r1", *stack(TRAY, 10), cooling=RackCooling(kind="hybrid", max_liquid_kw=40))
    assert texts(capacity([item], None)) == [
        (
            "rack r1: heat into liquid exceeds its cooling - Expected: at most 40 kW Actual: 48.0 kW. "
            "No rack has room for its nodes: split them over one more rack."
        )
    ]


def test_all_heat_of_a_liquid_cooled_rack_goes_into_liquid() -> None:
    item = rack("r1", *stack(replace(DGX, liquid_share=None), 4), cooling=RackCooling(kind="liquid", max_liquid_kw=10))
    assert texts(capacity([item], None)) == [
        (
            "rack r1: heat into liquid exceeds its cooling - Expected: at most 10 kW Actual: 40.8 kW. "
            "No rack has room for its nodes: split them over one more rack."
        )
    ]


def test_stated_supplies_must_add_up() -> None:
    def feeds(*psus: int | None) -> tuple[Feed, ...]:
        return tuple(
            Feed(name=name, source=f"rpp-{name}", breaker_a=30, volts=415, psus=count)
            for name, count in zip("ab", psus, strict=True)
        )

    wrong = texts(capacity([rack("r1", *stack(DUAL, 1), feeds=feeds(2, 1))], tree()))
    assert (
        wrong[0] == f"rack r1: psus of the feeds do not add up for dual - Expected: 2 in total Actual: 3. {ALL_OR_NONE}"
    )
    some = texts(capacity([rack("r1", *stack(DUAL, 1), feeds=feeds(2, None))], tree()))
    assert some[0] == f"rack r1: psus is set for some feeds only - Expected: all 2 Actual: 1. {ALL_OR_NONE}"


def test_plant_too_small() -> None:
    assert texts(capacity([rack("r1", *stack(DGX, 4))], Facility(cooling_kw=30))) == [
        (
            "facility.cooling_kw: the heat of the site exceeds its cooling plant - "
            "Expected: at most 30 kW Actual: 40.8 kW. "
            "Add 10.8 kW of cooling, or plan fewer racks."
        )
    ]


def test_supplies_that_all_are_needed() -> None:
    needy = DeviceModel("needy", 2, 4000.0, psus=2, psu_min=2)
    report = capacity([rack("r1", *stack(needy, 1), feeds=pdus("rpp-a", "rpp-b"))], tree())
    assert texts(report) == [
        (
            "rack r1: 1 x needy keep too few power supplies with feed a lost - Expected: at least 2 Actual: 1 of 2. "
            "The loss of ups-a, rpp-a has the same effect. All 2 supplies are needed: no number of feeds survives the "
            "loss of one."
        )
    ]


def test_unpublished_figures_are_reported_and_never_guessed() -> None:
    report = capacity([rack("r1", *stack(TRAY, 1), *stack(DeviceModel("mystery", 1, None), 1, "m"))], None)
    assert report.racks[0].typical_w is None
    assert report.racks[0].unpublished == ("mystery",)
    assert report.totals.weight_kg is None
    assert report.totals.facility_w is None
    assert report.notes == (
        "1 of 1 racks declare no feeds: their supply and its loss are not judged",
        "highest draw not published: mystery",
        "typical draw not published: mystery, tray",
        "transient draw not published: mystery, tray",
        "weight not published: mystery, tray",
        "minimum of power supplies not published: mystery, tray",
        "an unpublished draw is judged once the site states it: facility.nameplates for mystery",
        (
            "heat into liquid and into air is not known: liquid share not published of mystery; "
            "give rack r1 cooling of kind air or liquid, or of kind hybrid with its liquid_share"
        ),
    )


def test_totals() -> None:
    report = capacity([rack("r1", *stack(DUAL, 2)), rack("r2", *stack(DUAL, 1))], Facility(pue=1.25))
    totals = report.totals
    assert (totals.max_w, totals.typical_w, totals.transient_w, totals.weight_kg, totals.facility_w) == (
        6000,
        3600,
        7800,
        90,
        7500,
    )
    assert round(totals.btu_h) == 20472
