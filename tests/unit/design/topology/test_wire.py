"""Names and ports: deterministic, used once, nodes never recabled by growth; growth of trunks is reported."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.topology.growth import growth
from rackready.design.topology.types import EndpointLink, FabricPlan, TrunkLink
from tests.unit.design.topology.fabrics import fabric


def named(plan: FabricPlan, tier: str) -> list[str]:
    return [switch.name for switch in plan.switches if switch.tier == tier]


def test_names_and_ports_of_a_small_fabric() -> None:
    plan = fabric(4, 2, 4, 2)
    assert named(plan, "leaf") == ["leaf-su001-r1", "leaf-su001-r2", "leaf-su002-r1", "leaf-su002-r2"]
    assert named(plan, "spine") == ["spine-001", "spine-002"]
    assert plan.endpoints[:4] == (
        EndpointLink("gpu-00000", 1, 1, "leaf-su001-r1", 1),
        EndpointLink("gpu-00000", 2, 1, "leaf-su001-r2", 1),
        EndpointLink("gpu-00001", 1, 1, "leaf-su001-r1", 2),
        EndpointLink("gpu-00001", 2, 1, "leaf-su001-r2", 2),
    )
    assert plan.trunks == tuple(
        TrunkLink(leaf, 2 + spine, f"spine-{spine:03d}", port)
        for port, leaf in enumerate(named(plan, "leaf"), 1)
        for spine in (1, 2)
    )


def test_names_of_pods_planes_and_cores() -> None:
    plan = fabric(64, 8, 16, planes=2)
    assert plan.counts["tiers"] == 3
    assert named(plan, "leaf")[0] == "p1-leaf-su001-r1"
    assert named(plan, "spine")[0] == "p1-spine-pod001-001"
    assert named(plan, "core")[-1].startswith("p2-core-0")


def test_switches_say_what_addresses_need() -> None:
    plan = fabric(64, 8, 16)
    for tier in ("leaf", "spine", "core"):
        own = [(switch.plane, switch.index) for switch in plan.switches if switch.tier == tier]
        assert len(set(own)) == len(own)
    leaf = next(switch for switch in plan.switches if switch.name == "leaf-su003-r2")
    assert (leaf.pod, leaf.index, leaf.su, leaf.rail) == (3, 18, 3, 2)
    assert {switch.pod for switch in plan.switches if switch.tier == "core"} == {0}


def test_the_same_topology_gives_the_same_fabric() -> None:
    assert fabric(100, 8, 16, 4) == fabric(100, 8, 16, 4)


def test_a_unit_without_nodes_between_others_keeps_its_leafs() -> None:
    assert fabric(32, 32, 64).counts["leaf"] == 8
    plan = fabric(33, 32, 64)
    assert plan.counts["leaf"] == 16, "the fabric is built for the full unit even where nodes are missing"


def test_growth_moves_no_node_and_reports_moved_trunks() -> None:
    result = growth(fabric(64, 32, 64), fabric(128, 32, 64))
    assert (result.moved_endpoints, result.moved_trunks) == (0, 510)
    assert result.text == (
        "topology: from 2 to 4 units (spine 8 to 16) - Expected: no cable moved "
        "Actual: 510 of 512 trunks and 0 of 512 cables of nodes. "
        "Set topology.grow_to_su: 4 before the first unit is cabled, or plan the move."
    )


def test_growth_where_the_number_of_spines_stays_moves_nothing() -> None:
    # Three units take the 16 spines of four: 12 would not spread evenly.
    result = growth(fabric(96, 32, 64), fabric(128, 32, 64))
    assert (result.moved_endpoints, result.moved_trunks) == (0, 0)
    assert result.text == "topology: from 3 to 4 units: no existing cable moves."


def test_growth_planned_for_moves_nothing() -> None:
    result = growth(fabric(64, 32, 64, grow_to_su=8), fabric(256, 32, 64, grow_to_su=8))
    assert (result.moved_endpoints, result.moved_trunks) == (0, 0)
    assert result.added == 2 * (2048 - 512)


def test_growth_of_pods_planned_for_moves_nothing() -> None:
    result = growth(fabric(160, 32, 64, tiers=3, grow_to_su=16), fabric(512, 32, 64, tiers=3, grow_to_su=16))
    assert (result.moved_endpoints, result.moved_trunks) == (0, 0)


def test_leafs_that_stay_half_empty_are_noted() -> None:
    def half_empty(*sizes: int) -> list[str]:
        return [note for note in fabric(*sizes).notes if note.startswith("topology.su_nodes")]

    (note,) = half_empty(64, 32, 128)
    assert note == (
        "topology.su_nodes: ports of a leaf in use - Expected: 64 down of 128 ports Actual: 32 down and 32 up. "
        "su_nodes: 64 needs fewer leafs for the same nodes."
    )
    assert half_empty(64, 32, 64) == half_empty(32, 32, 128) == []
    assert fabric(64, 64, 128).counts["leaf"] == fabric(64, 32, 128).counts["leaf"] // 2


SHAPES = st.tuples(
    st.sampled_from([8, 12, 16, 24]),
    st.integers(1, 4),
    st.sampled_from(["rail_optimized", "fat_tree"]),
    st.sampled_from(["1:1", "2:1"]),
)


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.integers(1, 60), st.integers(1, 40), st.integers(1, 6))
def test_growth_never_recables_a_node(shape: tuple[int, int, str, str], before: int, more: int, su: int) -> None:
    radix, rails, kind, ratio = shape
    fields = {"kind": kind, "oversubscription": ratio}
    small, large = fabric(before, su, radix, rails, **fields), fabric(before + more, su, radix, rails, **fields)
    if large.problems:
        return
    assert small.problems == ()
    assert growth(small, large).moved_endpoints == 0
    assert {switch.name for switch in small.switches if switch.tier == "leaf"} <= {
        switch.name for switch in large.switches
    }
    indexes = {switch.name: switch.index for switch in large.switches}
    assert all(indexes[switch.name] == switch.index for switch in small.switches if switch.tier == "leaf")


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.integers(1, 30), st.integers(0, 30), st.integers(1, 6))
def test_growth_planned_for_never_moves_a_cable(
    shape: tuple[int, int, str, str], before: int, more: int, su: int
) -> None:
    radix, rails, kind, ratio = shape
    units = -(-(before + more) // su)
    fields = {"kind": kind, "oversubscription": ratio, "grow_to_su": units}
    small, large = fabric(before, su, radix, rails, **fields), fabric(before + more, su, radix, rails, **fields)
    if not large.problems:
        assert growth(small, large).text.endswith("no existing cable moves.")


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1, 120), st.integers(1, 8), st.integers(1, 2), st.sampled_from([None, 2, 3]))
def test_every_fabric_that_is_built_is_proved(
    shape: tuple[int, int, str, str], count: int, su: int, planes: int, tiers: int | None
) -> None:
    radix, rails, kind, ratio = shape
    plan = fabric(count, su, radix, rails, kind=kind, oversubscription=ratio, planes=planes, tiers=tiers)
    if not plan.switches:
        assert len(plan.problems) == 1
        return
    assert plan.problems == ()
    assert plan.proof is not None
    assert plan.proof.ok
    ends = [(link.switch, link.port) for link in plan.endpoints]
    ends += [(trunk.lower, trunk.lower_port) for trunk in plan.trunks] + [
        (trunk.upper, trunk.upper_port) for trunk in plan.trunks
    ]
    assert len(set(ends)) == len(ends)
    tiers_of = {switch.name: switch.tier for switch in plan.switches}
    assert plan.counts["leaf_spine_cables"] == sum(tiers_of[trunk.lower] == "leaf" for trunk in plan.trunks)
    assert plan.counts["spine_core_cables"] == sum(tiers_of[trunk.lower] == "spine" for trunk in plan.trunks)
    assert [plan.counts[tier] for tier in ("leaf", "spine", "core")] == [
        sum(own == tier for own in tiers_of.values()) for tier in ("leaf", "spine", "core")
    ]


def test_spines_above_an_only_leaf_are_noted() -> None:
    def notes(**fields: object) -> list[str]:
        return [note for note in fabric(3, 4, 128, kind="fat_tree", **fields).notes if "only leaf" in note]

    (note,) = notes()
    assert note == (
        "topology: switches above the only leaf of a plane - Expected: none, since they join no other leaf "
        "Actual: 1 with 32 cables. Describe the cables of nodes by links instead of topology, or set grow_to_su if "
        "more units follow."
    )
    assert notes(grow_to_su=2) == []
