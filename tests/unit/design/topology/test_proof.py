"""The proof refuses a fabric with wrong cables: swapped, missing or doubled trunks, wrong leafs, shared ports.

It reads cables alone. Max-flow has its own tests, since one cut proves nothing: a miscabled fabric of four leafs has 8
of 8 over one cut and 0 of 8 over another.
"""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.topology.cuts import flows
from rackready.design.topology.graph import classes, contracted, downward, upward
from rackready.design.topology.prove import Design, prove
from rackready.design.topology.types import EndpointLink, FabricPlan, Proof, TopoSwitch, TrunkLink
from tests.unit.design.topology.fabrics import fabric
from tests.unit.design.written import texts

SMALL = {
    "two tiers": fabric(32, 8, 16, 4),
    "two tiers, several cables to each spine": fabric(16, 8, 16, 4),
    "three tiers": fabric(100, 8, 16, 4, tiers=3),
    "three tiers, two groups of cores": fabric(16, 4, 8, 4, tiers=3),
    "three tiers at 2:1": fabric(60, 8, 12, 4, tiers=3, oversubscription="2:1", spine_oversubscription="2:1"),
    "fat tree in two planes": fabric(40, 8, 16, 4, kind="fat_tree", planes=2),
}


def again(
    plan: FabricPlan, *, trunks: tuple[TrunkLink, ...] | None = None, endpoints: tuple[EndpointLink, ...] | None = None
) -> Proof:
    kind = "rail_optimized" if any(switch.rail for switch in plan.switches) else "fat_tree"
    ratio = "2:1" if plan is SMALL["three tiers at 2:1"] else "1:1"
    design = Design(ratio, ratio, kind == "rail_optimized")
    return prove(plan.switches, endpoints or plan.endpoints, plan.trunks if trunks is None else trunks, design)


@pytest.mark.parametrize("name", SMALL)
def test_a_fabric_as_built_is_proved(name: str) -> None:
    plan = SMALL[name]
    assert plan.problems == ()
    proof = again(plan)
    assert proof.ok
    assert proof.cuts
    assert all(cut.actual >= cut.expected > 0 for cut in proof.cuts)


PLANS = st.sampled_from(sorted(SMALL))


@settings(max_examples=60, deadline=None)
@given(PLANS, st.data())
def test_two_swapped_trunks_are_found(name: str, data: st.DataObject) -> None:
    plan = SMALL[name]
    first = data.draw(st.integers(0, len(plan.trunks) - 1))
    one = plan.trunks[first]
    others = [k for k, other in enumerate(plan.trunks) if other.lower != one.lower and other.upper != one.upper]
    second = data.draw(st.sampled_from(others))
    two = plan.trunks[second]
    trunks = list(plan.trunks)
    trunks[first] = one._replace(upper=two.upper, upper_port=two.upper_port)
    trunks[second] = two._replace(upper=one.upper, upper_port=one.upper_port)
    assert again(plan, trunks=tuple(trunks)).problems


@settings(max_examples=40, deadline=None)
@given(PLANS, st.data())
def test_a_missing_trunk_is_found(name: str, data: st.DataObject) -> None:
    plan = SMALL[name]
    gone = data.draw(st.integers(0, len(plan.trunks) - 1))
    assert again(plan, trunks=plan.trunks[:gone] + plan.trunks[gone + 1 :]).problems


@settings(max_examples=40, deadline=None)
@given(PLANS, st.data())
def test_a_doubled_trunk_is_found(name: str, data: st.DataObject) -> None:
    plan = SMALL[name]
    trunk = data.draw(st.sampled_from(plan.trunks))
    assert again(plan, trunks=(*plan.trunks, trunk)).problems


@settings(max_examples=40, deadline=None)
@given(PLANS, st.data())
def test_a_trunk_on_another_upper_is_found_though_its_port_is_free(name: str, data: st.DataObject) -> None:
    plan = SMALL[name]
    radix = {switch.name: switch.radix for switch in plan.switches}
    place = data.draw(st.integers(0, len(plan.trunks) - 1))
    one = plan.trunks[place]
    used = {(trunk.upper, trunk.upper_port) for trunk in plan.trunks} | {
        (trunk.lower, trunk.lower_port) for trunk in plan.trunks
    }
    uppers = sorted({trunk.upper for trunk in plan.trunks if trunk.upper != one.upper})
    other = data.draw(st.sampled_from(uppers))
    free = [port for port in range(1, radix[other] + 1) if (other, port) not in used]
    moved = one._replace(upper=other, upper_port=free[0] if free else radix[other])
    assert again(plan, trunks=(*plan.trunks[:place], moved, *plan.trunks[place + 1 :])).problems


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_two_swapped_nics_of_different_rails_are_found(data: st.DataObject) -> None:
    plan = SMALL["three tiers"]
    first = data.draw(st.integers(0, len(plan.endpoints) - 1))
    one = plan.endpoints[first]
    second = data.draw(st.sampled_from([k for k, other in enumerate(plan.endpoints) if other.nic != one.nic]))
    links = list(plan.endpoints)
    links[first] = one._replace(switch=links[second].switch, port=links[second].port)
    links[second] = plan.endpoints[second]._replace(switch=one.switch, port=one.port)
    assert again(plan, endpoints=tuple(links)).problems


def test_texts_of_a_missing_trunk() -> None:
    plan = SMALL["two tiers"]
    assert plan.trunks[0] == TrunkLink("leaf-su001-r1", 9, "spine-001", 1)
    assert texts(again(plan, trunks=plan.trunks[1:]).problems)[:2] == [
        (
            "topology: leaf-su001-r1: uplinks for 8 links down at 1:1 - Expected: at least 8 Actual: 7. "
            "Cable the missing uplinks."
        ),
        (
            "topology: leaf-su001-r1: cables to each of 8 switches above - Expected: the same number to each "
            "Actual: 0 to 1, to 7 switches. "
            "Compare its uplinks with the cable list."
        ),
    ]


def test_a_cable_into_another_plane_is_found() -> None:
    plan = SMALL["fat tree in two planes"]
    other = next(trunk for trunk in plan.trunks if trunk.lower.startswith("p2-leaf"))
    crossed = texts(
        again(plan, trunks=(plan.trunks[0]._replace(upper=other.upper, upper_port=16), *plan.trunks[1:])).problems
    )
    assert (
        f"topology: p1-leaf-su001-01 to {other.upper} - Expected: leaf to spine of one pod, or spine to core of one "
        "plane "
        "Actual: leaf of pod 1, plane 1 to spine of pod 1, plane 2. Correct the cable."
    ) in crossed


def crossed(plan: FabricPlan, one: str, two: str, most: int) -> tuple[TrunkLink, ...]:
    """Return the trunks with the upper ends of up to ``most`` uplinks of two spines exchanged."""
    rows = {name: [k for k, trunk in enumerate(plan.trunks) if trunk.lower == name][:most] for name in (one, two)}
    trunks = list(plan.trunks)
    for a, b in zip(*rows.values(), strict=True):
        trunks[a] = plan.trunks[a]._replace(upper=plan.trunks[b].upper, upper_port=plan.trunks[b].upper_port)
        trunks[b] = plan.trunks[b]._replace(upper=plan.trunks[a].upper, upper_port=plan.trunks[a].upper_port)
    return tuple(trunks)


def test_a_spine_in_the_wrong_group_by_one_cable_is_found() -> None:
    # Every spine still has one cable to each of four cores, and every core four cables of that pod.
    trunks = crossed(SMALL["three tiers, two groups of cores"], "spine-pod001-001", "spine-pod001-003", 1)
    assert texts(again(SMALL["three tiers, two groups of cores"], trunks=trunks).problems)[:1] == [
        (
            "topology: core-0001: cores that reach the same spines - Expected: 3 Actual: 1. "
            "Compare its cables with the cable list."
        ),
    ]


def test_a_whole_spine_in_another_pods_place_is_found() -> None:
    # Groups stay whole and spines even, but pod 1 has half its cables to the first group, and cannot use the rest of
    # pod 2's.
    trunks = crossed(SMALL["three tiers, two groups of cores"], "spine-pod001-001", "spine-pod002-003", 4)
    problems = texts(again(SMALL["three tiers, two groups of cores"], trunks=trunks).problems)
    assert (
        problems[0] == "topology: core-0005: cables from pod 1 - Expected: 1, as other cores have Actual: 3. "
        "Compare them with the cable list."
    )


def test_texts_of_wrong_ends() -> None:
    plan = SMALL["three tiers"]
    one, link = plan.trunks[0], plan.endpoints[0]
    core = next(switch.name for switch in plan.switches if switch.tier == "core")
    skipped = texts(again(plan, trunks=(one._replace(upper=core), *plan.trunks[1:])).problems)
    assert skipped[1] == (
        f"topology: leaf-su001-r1 to {core} - Expected: leaf to spine of one pod, or spine to core of one plane "
        "Actual: leaf of pod 1, plane 1 to core of pod 0, plane 1. Correct the cable."
    )
    assert skipped[0] == f"topology: {core} port 1 - Expected: one cable Actual: 2. Move one of them to its own port."
    assert texts(again(plan, trunks=(one._replace(upper="nobody"), *plan.trunks[1:])).problems) == [
        "topology: nobody - Expected: a switch of this fabric Actual: unknown. Correct the cable's end.",
    ]
    assert texts(again(plan, trunks=(one._replace(lower_port=17), *plan.trunks[1:])).problems) == [
        "topology: leaf-su001-r1 port 17 - Expected: 1 to 16 Actual: 17. Correct the port.",
    ]
    wrong = texts(again(plan, endpoints=(link._replace(switch="leaf-su001-r2", port=16), *plan.endpoints[1:])).problems)
    assert (
        "topology: gpu-00000 rail 1 to leaf-su001-r2 - Expected: a leaf of rail 1 Actual: of rail 2. Correct the cable."
        in wrong
    )
    twice = texts(again(plan, endpoints=(link, link._replace(port=16), *plan.endpoints[1:])).problems)
    assert "topology: gpu-00000 rail 1 in plane 1 - Expected: one cable Actual: two or more. Remove one." in twice
    upper = texts(again(plan, endpoints=(link._replace(switch=core), *plan.endpoints[1:])).problems)
    assert (
        f"topology: gpu-00000 rail 1 to {core} - Expected: a leaf of plane 1 Actual: core of plane 1. "
        "Correct the cable." in upper
    )


def test_many_faults_of_one_kind_are_counted() -> None:
    plan = SMALL["two tiers"]
    problems = texts(again(plan, trunks=()).problems)
    assert "topology: 27 more of the same kind. Fix those above first." in problems
    assert sum("max-flow" in text for text in problems) == 5


def test_nothing_is_no_proof() -> None:
    assert not Proof((), (), ()).ok


# --- max-flow by itself


def leaf(number: int) -> TopoSwitch:
    return TopoSwitch(f"l{number}", "leaf", 1, 1, number, "any", 8, su=number)


def four_leafs(cables: dict[int, tuple[int, int]]) -> dict[str, int]:
    """Return flow by cut of four leafs with four endpoints each, whose uplinks go to two spines as given."""
    spines = [TopoSwitch(f"s{number}", "spine", 1, 1, number, "any", 16) for number in (1, 2)]
    trunks = [
        TrunkLink(f"l{number}", 5 + k, f"s{1 + (k >= row[0])}", 4 * number - 3 + k)
        for number, row in cables.items()
        for k in range(sum(row))
    ]
    up = upward(trunks)
    switches = [*map(leaf, cables), *spines]
    found = flows(1, switches, {f"l{number}": 4 for number in cables}, up, downward(up), ((1, 1), (1, 1)))
    assert all(cut.expected in {8, 4} for cut in found)
    return {cut.name: cut.actual for cut in found}


def test_one_cut_is_no_proof() -> None:
    # Leafs 1 and 3 reach only the first spine, 2 and 4 only the second: half against half is full, odd against even has
    # nothing.
    result = four_leafs({1: (4, 0), 2: (0, 4), 3: (4, 0), 4: (0, 4)})
    assert result["first half of the units against the second"] == 8
    assert result["odd units against even ones"] == 0
    assert set(four_leafs(dict.fromkeys((1, 2, 3, 4), (2, 2))).values()) == {8, 4}


@settings(max_examples=40, deadline=None)
@given(PLANS, st.lists(st.integers(0, 10_000), max_size=12))
def test_the_contracted_flow_is_that_of_the_whole_graph(name: str, dropped: list[int]) -> None:
    plan = SMALL[name]
    gone = {number % len(plan.trunks) for number in dropped}
    up = upward(trunk for number, trunk in enumerate(plan.trunks) if number not in gone)
    switches = [switch for switch in plan.switches if switch.plane == 1]
    ends: dict[str, int] = {}
    for link in plan.endpoints:
        ends[link.switch] = ends.get(link.switch, 0) + 1
    cut = next(
        item
        for item in flows(1, switches, ends, up, downward(up), ((1, 1), (1, 1)))
        if item.name.startswith("first half of the units")
    )
    units = sorted({switch.su for switch in switches if switch.su})
    graph = nx.DiGraph()
    for lower, row in up.items():
        for upper, count in row.items():
            graph.add_edge(lower, upper, capacity=count)
            graph.add_edge(upper, lower, capacity=count)
    for switch in switches:
        if switch.tier == "leaf":
            first = switch.su in units[: len(units) // 2]
            graph.add_edge(*(("to", switch.name)[::-1] if first else ("from", switch.name)), capacity=ends[switch.name])
    assert cut.actual == nx.maximum_flow_value(graph, "from", "to")


def test_contraction_is_small_for_a_large_fabric() -> None:
    plan = fabric(1024, 32, 64)
    up = upward(plan.trunks)
    groups = classes({switch.name: switch.tier for switch in plan.switches}, up, downward(up))
    assert len(plan.switches) == 640
    assert len(set(groups.values())) == 3
    assert sorted(contracted(up, groups).values()) == [8192, 8192]
