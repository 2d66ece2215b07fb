"""Every single loss: 2N, N+1, 4+2 supplies, shelves, transfer switches; and invariants of any power graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.capacity import poles
from rackready.design.capacity.graph import PowerGraph
from rackready.design.capacity.losses import LossCase, losses
from rackready.design.capacity.parts import PoweredDevice, RackInput
from rackready.design.capacity.report import CapacityReport, capacity
from rackready.design.capacity.supply import Supplies, spread
from rackready.model.facility import Facility, Feed, PowerNode
from tests.unit.design.capacity.racks import DGX, DUAL, TRAY, pdus, rack, stack, tree


def case(report: CapacityReport, element: str) -> LossCase:
    return next(item for item in report.losses if item.element == element)


def load(report: CapacityReport, name: str) -> float:
    return next(node.load_w for node in report.nodes if node.name == name)


def test_2n_survives_every_loss_and_the_other_side_carries_all() -> None:
    report = capacity([rack("r1", *stack(DUAL, 4), feeds=pdus("rpp-a", "rpp-b", amps=30))], tree())
    assert report.problems == ()
    assert all(item.survived for item in report.losses)
    assert load(report, "rpp-a") == load(report, "rpp-b") == pytest.approx(4000)
    worst = {node.name: (node.worst_w, node.worst_case) for node in report.nodes}
    assert worst["rpp-b"] == (pytest.approx(8000), "loss of ups-a")


def test_standby_utility_takes_over_without_touching_racks() -> None:
    report = capacity([rack("r1", *stack(DUAL, 4), feeds=pdus("rpp-a", "rpp-b", amps=30))], tree())
    assert load(report, "grid-1") == pytest.approx(8000)
    assert load(report, "grid-2") == 0
    assert case(report, "grid-1").racks == ()
    assert next(node.worst_w for node in report.nodes if node.name == "grid-2") == pytest.approx(8000)


def test_only_utility_lost_darkens_everything_unless_the_site_accepts_it() -> None:
    power = [
        PowerNode(name="grid", kind="utility"),
        PowerNode(name="rpp-a", kind="rpp", fed_by=["grid"]),
        PowerNode(name="rpp-b", kind="rpp", fed_by=["grid"]),
    ]
    racks = [rack("r1", *stack(DUAL, 2), feeds=pdus("rpp-a", "rpp-b", amps=30))]
    report = capacity(racks, Facility(power=power))
    assert case(report, "grid").dark == ("r1",)
    assert [str(problem) for problem in report.problems] == [
        (
            "rack r1: 2 x dual keep too few power supplies with feed a and b lost - Expected: at least 1 "
            "Actual: 0 of 2. The loss of grid has the same effect. "
            "Feeds a and b depend on one power node: feed one of them from another."
        )
    ]
    accepted = power[0].model_copy(update={"loss_accepted": "one utility only at this site"})
    again = capacity(racks, Facility(power=[accepted, *power[1:]]))
    assert again.problems == ()
    assert "loss of grid is accepted: one utility only at this site" in again.notes
    assert case(again, "grid").dark == ("r1",), "accepted, and still told"


def test_four_plus_two_on_two_feeds_is_not_redundant() -> None:
    report = capacity([rack("r1", *stack(DGX, 4), feeds=pdus("rpp-a", "rpp-b", amps=100))], tree())
    assert [str(problem) for problem in report.problems] == [
        (
            "rack r1: 4 x dgx_h100 keep too few power supplies with feed a lost - Expected: at least 4 Actual: 3 of 6. "
            "The loss of ups-a, rpp-a has the same effect. "
            "Spread its 6 supplies over 3 feeds (2 + 2 + 2): add 1 feed to "
            "the rack."
        )
    ]
    assert case(report, "ups-a").short == ("r1",)
    assert case(report, "ups-a").dark == ()


def test_four_plus_two_on_three_feeds_survives_the_loss_of_any() -> None:
    report = capacity([rack("r1", *stack(DGX, 3), feeds=pdus("rpp-a", "rpp-b", "rpp-c"))], tree("abc"))
    assert report.problems == ()
    assert all(item.survived for item in report.losses)


def test_n_plus_1_ups_share_and_the_others_take_over() -> None:
    power = [PowerNode(name="grid-1", kind="utility"), PowerNode(name="grid-2", kind="utility")]
    power += [PowerNode(name=f"ups-{n}", kind="ups", fed_by=["grid-1", "grid-2"], rating_kw=10) for n in (1, 2, 3)]
    power += [
        PowerNode(name=f"rpp-{s}", kind="rpp", fed_by=["ups-1", "ups-2", "ups-3"], sharing="shared") for s in "ab"
    ]
    racks = [rack(f"r{n}", *stack(DUAL, 5), feeds=pdus("rpp-a", "rpp-b", amps=30)) for n in (1, 2)]
    fits = capacity(racks, Facility(power=power))
    assert fits.problems == ()
    assert load(fits, "ups-1") == pytest.approx(20000 / 3)
    assert next(node.worst_w for node in fits.nodes if node.name == "ups-1") == pytest.approx(10000)
    more = capacity([*racks, rack("r3", *stack(DUAL, 1), feeds=pdus("rpp-a", "rpp-b", amps=30))], Facility(power=power))
    assert str(more.problems[0]) == (
        "power node ups-1: ups (10 kW) is over its rating at the loss of ups-2 - Expected: at most 10.0 kW "
        "Actual: 11.0 kW, from racks r1, r2, r3. "
        "Feed 1.0 kW of racks from elsewhere, or use a rating of 11 kW."
    )
    assert len(more.problems) == 3


def test_shelves_of_a_bus_bar_carry_one_load_and_survive_a_grid() -> None:
    shelves = tuple(
        Feed(name=f"shelf-{n}", source="rpp-a" if n <= 4 else "rpp-b", kind="shelf", rating_kw=33) for n in range(1, 9)
    )
    report = capacity([rack("r1", *stack(TRAY, 20), feeds=shelves)], tree())
    assert report.problems == ()
    assert [feed.load_w for feed in report.racks[0].feeds] == [pytest.approx(15000)] * 8
    heavy = capacity([rack("r1", *stack(TRAY, 23), feeds=shelves)], tree())
    assert [str(problem) for problem in heavy.problems] == [
        (
            "rack r1: feed shelf-5 (33 kW) is over its rating with feed shelf-1 and shelf-2 and shelf-3 and shelf-4 "
            "lost"
            " - Expected: at most 33.0 kW Actual: 34.5 kW. The loss of ups-a, rpp-a has the same effect. "
            "No rack has room for its nodes: "
            "use a rating of 35 kW for feeds shelf-1, shelf-2, shelf-3, shelf-4, shelf-5, shelf-6, shelf-7, shelf-8, "
            "or split its nodes over one more rack."
        )
    ]


def test_single_phase_feeds_load_the_poles_of_their_panel() -> None:
    power = [
        PowerNode(name="grid", kind="utility"),
        PowerNode(name="rpp", kind="rpp", fed_by=["grid"], breaker_a=30, volts=208),
    ]
    feeds = tuple(
        Feed(name=name, source="rpp", breaker_a=30, volts=208, phases=1, phase=phase)
        for name, phase in (("a", "L1-L2"), ("b", "L2-L3"))
    )  # type: ignore[arg-type]
    report = capacity([rack("r1", *stack(DUAL, 3), feeds=feeds)], Facility(power=power))
    assert load(report, "rpp") == pytest.approx(3 * 3000), (
        "two banks: the shared line draws sqrt(3) x 3,000 / 208 V, as 9 kW in balance would"
    )


def test_alike_racks_are_one_case_and_each_is_named() -> None:
    racks = [rack(f"r{n}", *stack(DUAL, 2, f"r{n}-n"), feeds=pdus("rpp-a", "rpp-b", amps=30)) for n in range(1, 6)]
    report = capacity(racks, tree())
    assert [item.racks for item in report.losses if item.kind == "feed"] == [("r1", "r2", "r3", "r4", "r5")] * 2


def test_invalid_graphs_are_reported_and_nothing_is_computed() -> None:
    power = [
        PowerNode(name="a", kind="ups", fed_by=["b"]),
        PowerNode(name="b", kind="ups", fed_by=["a"]),
        PowerNode(name="b", kind="rpp", fed_by=["nobody"]),
    ]
    report = capacity([rack("r1", *stack(DUAL, 1), feeds=pdus("c"))], Facility(power=power[:1]))
    assert [str(problem) for problem in report.problems] == [
        (
            "facility.power[0].fed_by[0]: power node 'b' does not exist - Expected: a name in facility.power. "
            "Correct it or declare it."
        ),
        (
            "rack r1: feed a comes from 'c' - Expected: a name in facility.power Actual: not declared. "
            "Correct it or declare the power node."
        ),
        # What the rack's own feeds say does not wait until the graph is right.
        (
            "rack r1: 1 x dual keep too few power supplies with feed a lost - Expected: at least 1 Actual: 0 of 2. "
            "Spread its 2 supplies over 2 feeds (1 + 1): add 1 feed to the rack."
        ),
    ]
    assert report.nodes == ()
    texts = [str(problem) for problem in capacity([], Facility(power=power[:2])).problems]
    assert len(texts) == 1
    assert texts[0].startswith("facility.power: power runs in a circle: ")
    assert (
        str(capacity([], Facility(power=power)).problems[0])
        == "facility.power[2].name: power node b is already facility.power[1]. Give each its own name."
    )


@given(st.integers(1, 16), st.integers(1, 8), st.integers(0, 7))
def test_spread_is_even_and_complete(psus: int, feeds: int, first: int) -> None:
    counts = spread(psus, feeds, first % feeds)
    assert sum(counts) == psus
    assert max(counts) - min(counts) <= 1


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[RackInput], list[PowerNode]]:
    """Return racks on a random graph of four levels."""
    power = [PowerNode(name=f"n0-{n}", kind="utility") for n in range(draw(st.integers(1, 3)))]
    above = [node.name for node in power]
    for level in (1, 2, 3):
        here = []
        for n in range(draw(st.integers(1, 4))):
            fed_by = draw(st.lists(st.sampled_from(above), min_size=1, max_size=3, unique=True))
            here.append(
                PowerNode(
                    name=f"n{level}-{n}",
                    kind="rpp",
                    fed_by=fed_by,
                    sharing=draw(st.sampled_from(["preferred", "shared"])),
                )
            )
        power += here
        above = [node.name for node in here]
    racks = []
    for number in range(draw(st.integers(1, 4))):
        model = draw(st.sampled_from([DGX, DUAL, TRAY]))
        names = draw(st.lists(st.sampled_from(above), min_size=1, max_size=4))
        racks.append(
            RackInput(f"r{number}", (PoweredDevice("x", model, 1), PoweredDevice("y", DUAL, 20)), pdus(*names))
        )
    return racks, power


@settings(max_examples=60, deadline=None)
@given(sites())
def test_a_loss_computed_by_difference_is_that_of_the_graph_without_the_element(
    given_site: tuple[list[RackInput], list[PowerNode]],
) -> None:
    racks, power = given_site
    graph = PowerGraph(power)
    supplies = Supplies()
    whole = {number: losses(graph, racks, supplies).base[number] for number in range(len(graph.nodes))}
    for lost in range(len(graph.nodes)):
        dead = graph.lost_with(lost)
        asked: dict[int, poles.Poles] = {}
        left: dict[int, poles.Poles] = {}
        for item in racks:
            live = tuple(graph.index[source] not in dead for source in item.sources)
            for state, times, into in (((True,) * len(live), -1.0, asked), (live, 1.0, asked), (live, 1.0, left)):
                for source, part in zip(item.sources, supplies.of(item, state).upstream, strict=True):
                    node = graph.index[source]
                    into[node] = poles.add(into.get(node, poles.NONE), poles.scaled(part, times))
        new = graph.change(list(whole.values()), asked, dead)
        expected = [left.get(number, poles.NONE) for number in range(len(graph.nodes))]
        for number in range(len(graph.nodes) - 1, -1, -1):
            for parent, share in graph.shares(number, dead) if number not in dead else []:
                expected[parent] = poles.add(expected[parent], poles.scaled(expected[number], share))
        for number in set(range(len(graph.nodes))) - dead:
            assert poles.watts(new.get(number, whole[number])) == pytest.approx(poles.watts(expected[number]), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(1, 6), st.sampled_from([DGX, DUAL, TRAY]), st.data())
def test_losing_a_feed_never_lowers_what_another_carries(
    feeds: int, devices: int, model: object, data: st.DataObject
) -> None:
    item = rack("r", *stack(model, devices), feeds=pdus(*["rpp-a"] * feeds))  # type: ignore[arg-type]
    alive = tuple(data.draw(st.lists(st.booleans(), min_size=feeds, max_size=feeds)))
    lost = data.draw(st.integers(0, feeds - 1))
    supplies = Supplies()
    before = supplies.of(item, alive)
    after = supplies.of(item, tuple(flag and number != lost for number, flag in enumerate(alive)))
    for number in range(feeds):
        if number != lost:
            assert poles.watts(after.upstream[number]) >= poles.watts(before.upstream[number]) - 1e-6
