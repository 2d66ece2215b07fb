"""Loss of a coolant distribution unit: racks without liquid, load on the others, and cases not judged."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.capacity.cooling_loss import Cdu, cooled, served_racks
from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput
from rackready.design.capacity.report import capacity
from rackready.design.plan import plan_site
from rackready.design.plan_summary import summary
from rackready.model.facility import RackCooling
from rackready.render.plan_html import plan_html
from rackready.render.plan_text import facts
from tests.unit.design.written import example, parse, refusals

TRAY = DeviceModel("tray", 10, 100_000.0, liquid_share=0.8)
VAGUE = DeviceModel("vague", 10, 100_000.0)
SILENT = DeviceModel("silent", 10, None)
HYBRID = RackCooling(kind="hybrid")


def racks(count: int = 4, model: DeviceModel = TRAY) -> list[RackInput]:
    return [
        RackInput(f"r{number}", (PoweredDevice(f"r{number}-n1", model, 1),), cooling=HYBRID)
        for number in range(1, count + 1)
    ]


def cdu(name: str, *names: str, kw: float | None = 400, accepted: str | None = None) -> Cdu:
    return Cdu(name, names, None if kw is None else kw * 1000, accepted)


ALL = ("r1", "r2", "r3", "r4")


def test_loss_of_one_of_two_is_survived_when_the_other_carries_all() -> None:
    found = cooled([cdu("cdu-1", *ALL), cdu("cdu-2", *ALL)], racks())
    # 4 racks x 100 kW x 0.8 = 320 kW, within the 400 kW of one.
    assert [(case.kind, case.element, case.racks, case.survived) for case in found.cases] == [
        ("cdu", "cdu-1", ALL, True),
        ("cdu", "cdu-2", ALL, True),
    ]
    assert (found.problems, found.notes) == ((), ())


def test_other_unit_that_cannot_carry_all_is_a_problem() -> None:
    found = cooled([cdu("cdu-1", *ALL), cdu("cdu-2", *ALL, kw=300)], racks())
    assert [case.survived for case in found.cases] == [False, True]
    assert [str(problem) for problem in found.problems] == [
        (
            "cdu cdu-2: its heat load exceeds its rating at the loss of cdu-1 - Expected: at most 300.0 kW "
            "Actual: 320.0 kW, from racks r1, r2, r3, r4."
            " Move 20.0 kW to another CDU, or serve fewer racks."
        )
    ]


def test_rack_with_one_unit_is_dark_when_that_is_lost() -> None:
    found = cooled([cdu("cdu-1", *ALL), cdu("cdu-2", "r1", "r2")], racks())
    assert [(case.element, case.dark) for case in found.cases] == [("cdu-1", ("r3", "r4")), ("cdu-2", ())]
    assert [str(problem) for problem in found.problems] == [
        (
            "cdu cdu-1: its loss leaves racks r3, r4 without liquid cooling - "
            "Expected: another CDU that serves them Actual: none."
            " Add them to serves of a second CDU, or accept the loss with a reason (loss_accepted)."
        )
    ]


def test_accepted_loss_is_noted_and_no_problem() -> None:
    found = cooled([cdu("cdu-1", *ALL, accepted="a test hall")], racks())
    assert (found.cases[0].fails, found.cases[0].accepted, found.problems) == (True, "a test hall", ())
    assert found.notes == ("loss of cdu-1 is accepted: a test hall",)


def test_accepted_loss_does_not_hide_that_the_other_unit_is_over_its_rating() -> None:
    found = cooled([cdu("cdu-1", *ALL, accepted="a test hall"), cdu("cdu-2", "r1", "r2", "r3", kw=200)], racks())
    assert [(case.element, case.dark, case.taken, case.survived) for case in found.cases] == [
        ("cdu-1", ("r4",), False, False),
        ("cdu-2", (), False, True),
    ]
    assert [str(problem) for problem in found.problems] == [
        (
            "cdu cdu-2: its heat load exceeds its rating at the loss of cdu-1 - Expected: at most 200.0 kW "
            "Actual: 240.0 kW, from racks r1, r2, r3."
            " Move 40.0 kW to another CDU, or serve fewer racks."
        )
    ]


def test_unit_over_its_rating_with_everything_alive_is_reported_once() -> None:
    found = cooled([cdu("cdu-1", *ALL, kw=100), cdu("cdu-2", *ALL)], racks())
    assert [problem.message for problem in found.problems] == [
        "its heat load exceeds its rating - Expected: at most 100.0 kW Actual: 160.0 kW, from racks r1, r2, r3, r4."
    ]


@pytest.mark.parametrize(
    ("model", "kw", "judged"),
    [
        (TRAY, 400, True),
        (VAGUE, 400, True),  # all heat of the racks together would fit
        (VAGUE, 399, False),
        (SILENT, 10_000, False),
        (TRAY, None, False),
    ],
)
def test_loss_is_judged_only_where_what_is_known_suffices(model: DeviceModel, kw: float | None, judged: bool) -> None:  # noqa: FBT001 - a table
    found = cooled([cdu("cdu-1", *ALL, kw=kw), cdu("cdu-2", *ALL, kw=kw)], racks(model=model))
    assert [case.judged for case in found.cases] == [judged, judged]
    assert all(not case.survived for case in found.cases) is not judged
    assert bool(found.notes) == (model is not TRAY or kw is None)


def test_what_the_site_does_not_say_is_noted() -> None:
    found = cooled([cdu("cdu-1"), cdu("cdu-2", "r1", "r2", "r3", kw=None, accepted="a test hall")], racks())
    assert found.notes[:2] == (
        "loss of cdu-1 is not judged: the site does not list which racks it serves (serves)",
        "cdu-2: heat not judged, the site does not give the capacity (cooling_kw)",
    )
    assert cooled([], racks()).notes == ()


@pytest.mark.parametrize("model", [TRAY, VAGUE, SILENT])
def test_rack_that_no_unit_serves_is_a_problem_beside_racks_that_have_one(model: DeviceModel) -> None:
    found = cooled([cdu("cdu-1", "r1", "r2", kw=400), cdu("cdu-2", "r1", "r2", kw=400)], racks(model=model))
    assert [str(problem) for problem in found.problems] == [
        (
            "racks r3, r4: heat goes into liquid, but no CDU serves them - Expected: a CDU that serves them "
            "Actual: none."
            " Add them to serves of a CDU, or set cooling of kind air."
        )
    ]


@pytest.mark.parametrize(
    ("cooling", "model", "wet"),
    [
        (RackCooling(kind="air"), VAGUE, False),
        (RackCooling(kind="hybrid", liquid_share=0), VAGUE, False),
        (RackCooling(kind="liquid"), SILENT, True),
        (None, VAGUE, False),  # nobody says that any of its heat goes into liquid
        (None, DeviceModel("tray", 10, 5_000.0, cooled="hybrid"), True),
    ],
)
def test_rack_needs_a_unit_where_something_says_that_heat_goes_into_liquid(
    cooling: RackCooling | None,
    model: DeviceModel,
    wet: bool,  # noqa: FBT001
) -> None:
    rack = RackInput("r9", (PoweredDevice("r9-n1", model, 1),), cooling=cooling)
    assert [
        "rack r9" in str(problem)
        for problem in cooled([cdu("cdu-1", "r1"), cdu("cdu-2", "r1")], [*racks(1), rack]).problems
    ] == [True] * wet


def test_list_of_what_serves_what() -> None:
    assert served_racks([cdu("cdu-1", "r1", "r2"), cdu("cdu-2", "r2")], racks(2)) == [
        ("cdu-1", "r1", 80_000.0, False, ""),
        ("cdu-1", "r2", 80_000.0, False, "cdu-2"),
        ("cdu-2", "r2", 80_000.0, False, "cdu-1"),
    ]


def test_unit_over_its_rating_with_nothing_lost_is_counted() -> None:
    report = capacity(
        racks(), None, cdus=[cdu("cdu-1", *ALL, kw=100), cdu("cdu-2", *ALL, kw=100), cdu("cdu-3", *ALL, kw=None)]
    )
    assert report.over_alive == 2


def gb200(**fields: Any) -> dict[str, Any]:
    document = example("gb200-nvl72-8-racks")
    document["devices"][0].update(fields)
    return document


def test_example_survives_the_loss_of_a_unit() -> None:
    plan = plan_site(parse(gb200()))
    assert [(case.element, len(case.racks), case.survived) for case in plan.capacity.losses if case.kind == "cdu"] == [
        ("cdu-1", 8, True),
        ("cdu-2", 8, True),
    ]
    # Whether one grid carries the site is not known: nobody publishes what the CDUs draw.
    assert (
        dict(facts(summary(plan)))["losses"]
        == "18 single losses of power and cooling looked at, 16 survived, 0 not survived, 2 not judged"
    )
    assert "loss of grid-1, grid-2 is not judged: some draw of the site is not published" in plan.notes
    page = plan_html("gb200", plan.capacity, plan.racks)
    assert "<td>CDU cdu-1</td>" in page
    assert "<p>18 single losses of power and cooling looked at, 16 survived, 0 not survived, 2 not judged.</p>" in page


def test_rack_of_the_example_that_no_unit_serves_is_named() -> None:
    problems = [str(problem) for problem in plan_site(parse(gb200(serves=["r[01-07]"]))).problems]
    assert problems == [
        (
            "rack r08: heat goes into liquid, but no CDU serves it - Expected: a CDU that serves it Actual: none."
            " Add it to serves of a CDU, or set cooling of kind air."
        )
    ]


def test_loss_of_the_only_unit_is_a_single_point_of_failure() -> None:
    plan = plan_site(parse(gb200(name="cdu-1", loss_accepted="the second one comes with the next racks")))
    text = "cdu-1: its loss leaves 8 racks without liquid cooling; accepted: the second one comes with the next racks."
    assert text in summary(plan)["single_points_of_failure"]
    assert plan.problems == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"serves": ["r[01-09]"]}, "devices[0].serves[0]: no rack is called r09. Correct the name or the range."),
        (
            {"kind": "storage"},
            "devices[0]: serves, cooling_kw - Expected: kind: cdu Actual: kind: storage. Correct it.",
        ),
    ],
)
def test_slips_are_named(fields: dict[str, Any], expected: str) -> None:
    assert expected in refusals(gb200(**fields))
