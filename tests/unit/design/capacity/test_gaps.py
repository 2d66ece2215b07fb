"""Unpublished figures and missing ratings: sums are lower bounds, dependent losses and limits are not judged."""

from __future__ import annotations

from rackready.design.capacity.parts import DeviceModel, RackInput
from rackready.design.capacity.report import CapacityReport, capacity
from rackready.model.facility import Facility, Feed, PowerNode, PowerOn, RackCooling
from rackready.render import pictures
from rackready.render.plan_html import plan_html
from tests.unit.design.capacity.racks import DUAL, pdus, rack, stack, tree

MYSTERY = DeviceModel("mystery", 1, None, psus=2, psu_min=1)
PLATFORM = DeviceModel("gb200_nvl72", 1, 5400.0, weight_kg=30.0)
NO_ROOM = "No rack has room for its nodes: split them over one more rack."


def texts(report: CapacityReport) -> list[str]:
    return [str(problem) for problem in report.problems]


def judged(report: CapacityReport) -> list[str]:
    return [note for note in report.notes if "not judged" in note and "shown" not in note]


def partial_rack(name: str = "r1", count: int = 2, amps: float = 30) -> RackInput:
    return rack(name, *stack(DUAL, count), *stack(MYSTERY, 1, "m"), feeds=pdus("rpp-a", "rpp-b", amps=amps))


def test_losses_that_touch_a_draw_not_published_are_not_judged() -> None:
    report = capacity([partial_rack()], tree())
    assert texts(report) == []
    assert [(case.element, case.judged, case.survived, case.fails) for case in report.losses if case.judged] == []
    assert len(report.losses) == 8
    assert judged(report) == [
        "rack r1: rating of feeds a, b not judged, draw of mystery not published",
        "power nodes ups-a, ups-b, rpp-a, rpp-b: rating not judged, draw of mystery not published",
    ]


def test_a_loss_that_moves_load_onto_such_a_node_is_not_judged_either() -> None:
    known = rack("r2", *stack(DUAL, 2), feeds=pdus("rpp-a", "rpp-b", amps=30))
    report = capacity([partial_rack(), known], tree())
    assert [case.judged for case in report.losses if case.kind == "feed" and case.racks == ("r2",)] == [False, False]


def test_what_is_known_alone_still_fails() -> None:
    report = capacity([partial_rack(count=8)], tree(rating_kw=10))
    feeds = texts(capacity([partial_rack(count=9)], tree()))
    assert [text.partition(" The loss")[0] for text in feeds] == [
        (
            "rack r1: feed b (415 V three-phase 30 A at 80 %) is over its rating with feed a lost - "
            "Expected: at most 17.3 kW Actual: at least 18.0 kW."
        )
    ]
    assert [text.partition(", from ")[0] for text in texts(report)[:1]] == [
        (
            "power node ups-a: ups (10 kW) is over its rating at the loss of ups-b - Expected: at most 10.0 kW "
            "Actual: at least 16.0 kW"
        )
    ]
    assert {case.element: (case.judged, case.fails) for case in report.losses}["ups-b"] == (True, True)


def test_limits_of_the_site_are_not_judged() -> None:
    facility = tree().model_copy(update={"cooling_kw": 100.0, "power_on": PowerOn(max_step_kw=500)})
    assert judged(capacity([partial_rack()], facility))[2:] == [
        "facility.cooling_kw not judged, draw of mystery not published",
        "facility.power_on.max_step_kw not judged, draw of mystery not published",
    ]
    small = capacity([partial_rack()], Facility(cooling_kw=3))
    assert (
        "facility.cooling_kw: the heat of the site exceeds its cooling plant - "
        "Expected: at most 3 kW Actual: at least 4.0 kW."
    ) in texts(small)[-1]


def test_a_step_that_is_too_large_already_is_a_least_one() -> None:
    facility = tree().model_copy(update={"power_on": PowerOn(max_step_kw=5)})
    assert texts(capacity([partial_rack()], facility)) == [
        (
            "rack r1: load cannot come on within facility.power_on.max_step_kw - Expected: at most 5 kW "
            "Actual: at least 5.2 kW. "
            "Agree a higher limit with the facility, or start the rack's nodes a few at a time."
        )
    ]


def test_pictures_say_at_least() -> None:
    item = partial_rack()
    report = capacity([item], tree())
    assert "5 of 48 U, at least 4.0 kW" in pictures.elevation(item)
    assert "at least 2.0 / 4.0 of 1000.0 kW" in pictures.power_bars(report.nodes)
    assert "Highest draw of 2 racks, of 1 at least this much" in pictures.distribution([4000, 5000], 1)


def test_feeds_without_a_rating_are_named() -> None:
    bare = tuple(Feed(name=name, source=f"rpp-{name}") for name in "ab")
    racks = [rack(f"r{number}", *stack(DUAL, 1), feeds=bare) for number in (1, 2)]
    assert judged(capacity(racks, tree())) == [
        "4 feeds of racks r1, r2 have no rating: not judged",
    ]
    one = rack("r1", *stack(DUAL, 1), feeds=(bare[0], *pdus("rpp-a", "rpp-b")[1:]))
    assert judged(capacity([one], tree())) == ["1 feed of rack r1 has no rating: not judged"]


def test_limits_whose_figures_are_missing_are_named() -> None:
    cooling = RackCooling(kind="hybrid", max_kw=132, max_air_kw=20, max_liquid_kw=120)
    racks = [
        RackInput(f"r{number:02}", (*stack(PLATFORM, 18), *stack(MYSTERY, 1, "m")), (), 48, cooling, 1500.0)
        for number in range(1, 9)
    ]
    assert judged(capacity(racks, None))[1:] == [
        "racks r01 .. r08 (8 racks): max_weight_kg not judged, weight of mystery not published",
        "racks r01 .. r08 (8 racks): max_kw not judged, draw of mystery not published",
        (
            "racks r01 .. r08 (8 racks): max_air_kw not judged, draw of mystery and liquid share of gb200_nvl72, "
            "mystery not published"
        ),
        (
            "racks r01 .. r08 (8 racks): max_liquid_kw not judged, draw of mystery and liquid share of gb200_nvl72, "
            "mystery not published"
        ),
    ]


def test_limits_that_the_known_part_exceeds_are_problems() -> None:
    dry = DeviceModel("dry", 1, 9000.0, weight_kg=900.0, liquid_share=0.0)
    wet = DeviceModel("wet", 1, 9000.0, liquid_share=1.0)
    limits = RackCooling(kind="hybrid", max_kw=20, max_air_kw=8, max_liquid_kw=8)
    item = RackInput(
        "r1",
        (*stack(dry, 1), *stack(wet, 1, "w"), *stack(PLATFORM, 1, "p"), *stack(MYSTERY, 1, "m")),
        (),
        48,
        limits,
        800.0,
    )
    report = capacity([item], None)
    assert texts(report) == [
        f"rack r1: total weight is too high - Expected: at most 800 kg Actual: at least 930.0 kg. {NO_ROOM}",
        f"rack r1: heat exceeds its cooling - Expected: at most 20 kW Actual: at least 23.4 kW. {NO_ROOM}",
        (f"rack r1: heat into air exceeds its cooling - Expected: at most 8 kW Actual: at least 9.0 kW. {NO_ROOM}"),
        (f"rack r1: heat into liquid exceeds its cooling - Expected: at most 8 kW Actual: at least 9.0 kW. {NO_ROOM}"),
    ]
    assert judged(report)[1:] == [], "what is broken already is a problem, not a note"


def test_an_unrated_power_node_leaves_nothing_unjudged() -> None:
    free = Facility(power=[PowerNode(name=name, kind="rpp") for name in ("rpp-a", "rpp-b")])
    assert [note for note in judged(capacity([partial_rack()], free)) if "power node" in note] == []


def test_a_place_beside_a_draw_not_published_is_offered_as_not_known_to_fit() -> None:
    over = rack("r1", *stack(DUAL, 9), feeds=pdus("rpp-a", "rpp-b", amps=30), height_u=18)
    unclear = rack("r2", *stack(MYSTERY, 1, "m"), feeds=pdus("rpp-a", "rpp-b", amps=30), height_u=20)
    assert (
        "Move n9 to rack r2 unit 2 (not known to fit: draw of mystery not published), n8 to rack r2"
        in texts(capacity([over, unclear], tree()))[0]
    )


def test_a_place_that_is_known_to_fit_comes_first() -> None:
    over = rack("r1", *stack(DUAL, 9), feeds=pdus("rpp-a", "rpp-b", amps=30), height_u=18)
    unclear = rack("r2", *stack(MYSTERY, 1, "m"), feeds=pdus("rpp-c", amps=30), height_u=20)
    known = rack("r3", feeds=pdus("rpp-a", "rpp-b", amps=30), height_u=20)
    assert "Move n9 to rack r3 unit 1, n8 to rack r3 unit 3," in texts(capacity([over, unclear, known], tree("abc")))[0]


def test_a_move_names_models_of_unknown_weight() -> None:
    heavy = RackInput("r1", stack(DUAL, 2), (), 48, None, 50.0)
    unclear = RackInput("r2", stack(MYSTERY, 1, "m"), (), 48, None, 50.0)
    assert texts(capacity([heavy, unclear], None)) == [
        (
            "rack r1: total weight is too high - Expected: at most 50 kg Actual: 60.0 kg. "
            "Move n2 to rack r2 unit 2 (not known to fit: weight of mystery not published)."
        )
    ]


def test_bigger_feeds_and_sources_are_least_ones() -> None:
    feeds = texts(capacity([partial_rack(count=9)], tree()))
    assert feeds[0].endswith(
        "use a breaker of at least 35 A (415 V) for feeds a, b, or split its nodes over one more rack."
    )
    nodes = texts(capacity([partial_rack(count=8)], tree(rating_kw=10)))
    assert nodes[0].endswith("Feed at least 6.0 kW of racks from elsewhere, or use a rating of at least 16 kW.")


def test_a_source_with_a_draw_not_published_is_offered_with_that_doubt() -> None:
    power = [PowerNode(name=f"rpp-{side}", kind="rpp", rating_kw=5) for side in "ab"]
    full = rack("r1", *stack(DUAL, 3), feeds=pdus("rpp-a"))
    other = rack("r2", *stack(DUAL, 1), *stack(MYSTERY, 1, "m"), feeds=pdus("rpp-b"))
    found = [text for text in texts(capacity([full, other], Facility(power=power))) if text.startswith("power node")]
    assert found[0].endswith(
        "Feed 1.0 kW of racks from rpp-b, which has that much spare capacity, based on the published draw of its "
        "racks, or use a rating of 6 kW."
    )


def test_waves_of_power_on_are_least_ones_from_the_first_rack_that_is_not_known() -> None:
    known = rack("r1", *stack(DUAL, 1), feeds=pdus("rpp-a", "rpp-b"))
    last = rack("r3", *stack(DUAL, 1), feeds=pdus("rpp-a", "rpp-b"))
    limit = tree().model_copy(update={"power_on": PowerOn(max_racks=1)})
    report = capacity([known, partial_rack("r2"), last], limit)
    assert report.power_on is not None
    assert [(wave.step_partial, wave.running_partial) for wave in report.power_on.waves] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    page = plan_html("site", report, [known, partial_rack("r2"), last])
    assert '<td>r2</td><td class="n">at least 5.2</td><td class="n">at least 6.0</td>' in page
    assert '<td>r1</td><td class="n">2.6</td><td class="n">2.0</td>' in page


def test_a_source_of_which_every_draw_is_known_comes_first() -> None:
    power = [PowerNode(name=f"rpp-{side}", kind="rpp", rating_kw=5) for side in "abc"]
    full = rack("r1", *stack(DUAL, 3), feeds=pdus("rpp-a"))
    unclear = rack("r2", *stack(MYSTERY, 1, "m"), feeds=pdus("rpp-b"))
    known = rack("r3", *stack(DUAL, 1), feeds=pdus("rpp-c"))
    found = [
        text for text in texts(capacity([full, unclear, known], Facility(power=power))) if text.startswith("power node")
    ]
    assert found[0].endswith(
        "Feed 1.0 kW of racks from rpp-c, which has that much spare capacity, or use a rating of 6 kW."
    )
