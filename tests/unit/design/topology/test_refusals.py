"""Impossible fabrics are refused by exact text with the options; a size that just fits is built."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rackready.design.topology.build import build, build_at
from rackready.design.topology.types import EndpointNode
from tests.unit.design.topology.fabrics import fabric, nodes, topology
from tests.unit.design.written import texts


def refused(*args: int, **fields: object) -> str:
    plan = fabric(*args, **fields)
    assert plan.switches == plan.endpoints == plan.trunks == ()
    assert plan.proof is None
    assert len(plan.problems) == 1
    return str(plan.problems[0])


def test_100000_gpus_at_radix_64() -> None:
    assert refused(12500, 32, 64) == (
        "topology: 12500 nodes with 8 links into each plane are 100000 endpoints a plane, more than 3 non-blocking "
        "tiers at radix 64 carry - "
        "Expected: at most 65536 endpoints a plane (256 units of 32 nodes) Actual: 100000 (391 units). "
        "Options: radix 80 or more in every tier; planes: 2 with planes_by: rail; "
        "oversubscription: 4:1 with su_nodes: 51."
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"radix": 80, "su": 32},
        {"radix": 64, "su": 32, "planes": 2, "planes_by": "rail"},
        {"radix": 64, "su": 51, "oversubscription": "4:1"},
    ],
)
def test_every_way_out_that_is_named_does_carry_it(fields: dict[str, int]) -> None:
    fields = dict(fields)
    radix, su = fields.pop("radix"), fields.pop("su")
    # Only the ends of the fabric have nodes: that is enough to need all its units.
    ends = [
        EndpointNode("first", 1, tuple(range(1, 9)), 400),
        EndpointNode("last", -(-12500 // su), tuple(range(1, 9)), 400),
    ]
    plan = build_at((radix,) * 3, topology(su_nodes=su, **fields), ends)
    assert plan.problems == ()


def test_one_radix_less_than_the_way_out_does_not_carry_it() -> None:
    assert "more than 3 non-blocking tiers at radix 78 carry" in refused(12500, 32, 78)


def test_one_unit_more_than_two_tiers_carry() -> None:
    assert refused(257, 32, 64, tiers=2) == (
        "topology: 257 nodes with 8 links into each plane are 2056 endpoints a plane, more than 2 non-blocking "
        "tiers at radix 64 carry - "
        "Expected: at most 2048 endpoints a plane (8 units of 32 nodes) Actual: 2056 (9 units). "
        "Options: tiers: 3; radix 72 or more in every tier; planes: 2 with planes_by: rail; "
        "oversubscription: 2:1 with su_nodes: 42."
    )


def test_exactly_what_two_tiers_carry_is_built() -> None:
    assert fabric(256, 32, 64, tiers=2).problems == ()


def test_room_that_is_kept_counts() -> None:
    assert refused(32, 32, 64, tiers=2, grow_to_su=9).startswith(
        "topology: 288 nodes with 8 links into each plane are 2304 endpoints a plane"
    )


def test_units_that_are_mostly_empty_count_whole() -> None:
    # A slip of the keyboard in one number of a unit: what is short is room for units, and 16 endpoints are never more
    # than 65,536.
    far = [EndpointNode("a", 1, tuple(range(1, 9)), 400), EndpointNode("b", 4000, tuple(range(1, 9)), 400)]
    (text,) = texts(build_at((64, 64, 64), topology(su_nodes=32), far).problems)
    assert text.startswith(
        "topology: 128000 nodes with 8 links into each plane are 1024000 endpoints a plane, more than 3 "
        "non-blocking tiers at radix 64 carry - "
        "Expected: at most 65536 endpoints a plane (256 units of 32 nodes) Actual: 1024000 (4000 units). "
    )


def at(*units: int) -> list[EndpointNode]:
    return [EndpointNode(f"gpu-{unit}", unit, tuple(range(1, 9)), 400) for unit in units]


def test_leafs_of_units_that_hold_nothing_are_told() -> None:
    # 32 DGX H100 in racks r101 to r108 are units 13 and 14: they got 112 leafs, 112 spines and 64 cores without a word.
    plan = build_at((64, 64, 64), topology(su_nodes=32, tiers=3), at(13, 14))
    assert plan.problems == ()
    assert plan.notes[0] == (
        "topology: units below the highest without a node (1-12): 96 leafs are planned for them all the same. "
        "If nothing will stand there, set index or su of racks, so that units are filled from 1."
    )


def test_a_reserved_slot_holds_its_unit() -> None:
    reserved = [{"su": 2, "slot": 1, "devices": {"ufm-1": [1]}}]
    for declared, told in ((reserved, False), ([], True)):
        plan = build_at((64, 64, 64), topology(su_nodes=32, reserved=declared), at(1, 3))
        assert plan.problems == ()
        assert any("units below the highest" in note for note in plan.notes) is told


def test_planes_by_port_do_not_make_room() -> None:
    assert "Options: radix 80 or more in every tier; planes: 2 with planes_by: rail;" in refused(
        12500, 32, 64, planes=2
    )


def test_a_ratio_says_itself() -> None:
    assert "more than 2 tiers at 2:1 carry" not in refused(800, 32, 64, tiers=2)
    assert "more than 2 tiers at 2:1 at radix 64 carry" in refused(800, 32, 64, tiers=2, oversubscription="2:1")


def test_a_unit_with_more_leafs_than_a_spine_has_ports() -> None:
    assert refused(600, 600, 64, 16, tiers=2) == (
        "topology.su_nodes: a unit of 600 nodes needs 304 leafs, each with a link to every spine - "
        "Expected: at most 64 leafs (ports down of a spine) Actual: 304. Make units smaller, or use a larger radix."
    )


def test_a_leaf_of_a_fat_tree_narrower_than_a_node() -> None:
    assert refused(4, 4, 8, kind="fat_tree") == (
        "topology.leaf: ports down for all links of one node - Expected: at least 8 Actual: 4 (radix 8). "
        "Use a larger radix, or kind: rail_optimized."
    )


def test_rails_that_do_not_divide_over_planes() -> None:
    assert refused(32, 32, 64, planes=3, planes_by="rail") == (
        "topology.planes: 8 rails over 3 planes - Expected: a number that divides 8 Actual: 3. "
        "Use another number of planes, or planes_by: port."
    )


def test_no_nodes() -> None:
    assert texts(build(topology(), []).problems) == [
        "topology: nodes with a NIC - Expected: at least one Actual: none. Add nodes to the racks, or remove topology.",
    ]


def test_two_rates_in_one_fabric() -> None:
    mixed = [*nodes(1, 32, rate=400), EndpointNode("other", 1, (1,), 200)]
    assert texts(build(topology(leaf={"model": "sn5600"}), mixed).problems) == [
        (
            "topology: rates of compute NICs (Gb/s) - Expected: one rate in one fabric Actual: 200, 400. "
            "Describe a separate fabric for each rate."
        ),
    ]


def test_places_problems_are_all_reported() -> None:
    rows = [
        EndpointNode("a", 1, (1, 2), 400, slot=1),
        EndpointNode("b", 1, (1, 2), 400, slot=1),
        EndpointNode("c", 1, (1, 2), 400, slot=5),
        EndpointNode("d", 0, (1, 2), 400),
        EndpointNode("a", 1, (1, 2), 400),
    ]
    reserved = [{"su": 1, "slot": 9, "devices": {"ufm-1": [1, 1]}}, {"su": 1, "slot": 2, "devices": {"ufm-2": [7]}}]
    assert texts(build_at((8, 8, 8), topology(su_nodes=4, reserved=reserved), rows).problems) == [
        "topology.reserved: ufm-2: rail - Expected: one of 1, 2 Actual: 7. Correct the rail.",
        (
            "topology: ufm-1: slot 9 of unit 1 - Expected: 1 to 4 Actual: 9. "
            "Move the node to the next unit, or raise topology.su_nodes."
        ),
        (
            "topology.reserved[0].devices: rail 1 - Expected: given once Actual: given twice. "
            "A slot has one port on each leaf."
        ),
        "topology: a - Expected: given once Actual: given twice. Rename one of the two.",
        "topology: b: slot 1 of unit 1 - Expected: free Actual: taken by a. Give one of them another slot.",
        (
            "topology: c: slot 5 of unit 1 - Expected: 1 to 4 Actual: 5. "
            "Move the node to the next unit, or raise topology.su_nodes."
        ),
        "topology: d: unit - Expected: 1 or more Actual: 0. Number units from 1.",
    ]


def test_a_full_unit_refuses_one_more_node() -> None:
    assert texts(
        build_at((8, 8, 8), topology(su_nodes=2), [EndpointNode(name, 1, (1,), 400) for name in "abc"]).problems
    ) == [
        (
            "topology: c: slot 3 of unit 1 - Expected: 1 to 2 Actual: 3. "
            "Move the node to the next unit, or raise topology.su_nodes."
        ),
    ]


@pytest.mark.parametrize("ratio", ["1:2", "0:1", "one", "1", "2:1:1"])
def test_a_ratio_that_is_none(ratio: str) -> None:
    with pytest.raises(ValidationError, match="is not a ratio of capacity down to capacity up"):
        topology(oversubscription=ratio)


def test_two_tiers_with_a_core() -> None:
    with pytest.raises(ValidationError, match="tiers: 2 has no core - Expected: tiers: 3, or no core"):
        topology(tiers=2, core={"model": "any"})
