"""The loss with one switch in numbers; single points of failure are named, redundancy is not."""

from __future__ import annotations

from tests.unit.design.topology.fabrics import fabric
from tests.unit.design.written import texts


def test_a_leaf_is_the_only_one_of_a_rail() -> None:
    plan = fabric(95, 32, 64)
    assert plan.spof == (
        (
            "leaf-su001-r1 to leaf-su002-r8 (16 switches), each: the only leaf of a rail for 32 nodes: after its "
            "loss they keep 7 of 8 rails (12.5 % lost)."
        ),
        (
            "leaf-su003-r1 to leaf-su003-r8 (8 switches), each: the only leaf of a rail for 31 nodes: after its "
            "loss they keep 7 of 8 rails (12.5 % lost)."
        ),
    )
    assert plan.losses[0].nodes == 32
    assert plan.losses[0].links_lost_pct == 12.5
    assert plan.losses[-1].text == (
        "spine-001 to spine-016 (16 switches), each: one of 16 spines between a pod's leafs: its loss takes 6.25 % "
        "of that capacity from 24 switches below."
    )


def test_two_planes_leave_no_single_point() -> None:
    plan = fabric(64, 32, 64, planes=2)
    assert plan.spof == ()
    assert plan.losses[0].text == (
        "p1-leaf-su001-r1 to p2-leaf-su002-r8 (32 switches), each: 32 nodes keep all rails and 15 of 16 links (6.2 "
        "% lost)."
    )


def test_planes_by_rail_are_no_second_way() -> None:
    plan = fabric(64, 32, 64, planes=2, planes_by="rail")
    assert plan.spof == (
        (
            "p1-leaf-su001-r1 to p2-leaf-su002-r8 (16 switches), each: the only leaf of a rail for 32 nodes: "
            "after its loss they keep 7 of 8 rails (12.5 % lost)."
        ),
    )


def test_a_leaf_of_a_fat_tree_cuts_its_nodes_off() -> None:
    plan = fabric(32, 32, 64, kind="fat_tree")
    assert plan.spof == (
        (
            "leaf-su001-01 to leaf-su001-08 (8 switches), each: the only path of 4 nodes: its loss cuts them off "
            "(100 % of their links)."
        ),
    )


def test_a_spine_without_another_is_an_articulation_point() -> None:
    plan = fabric(4, 2, 8, 2)
    assert plan.counts["spine"] == 1
    assert "spine-001: articulation point: its loss separates the leafs into 4 parts." in plan.spof


def test_a_device_with_one_cable_is_named() -> None:
    plan = fabric(31, 32, 64, reserved=[{"su": 1, "slot": 32, "devices": {"ufm-1": [1], "ufm-2": [2, 3]}}])
    assert plan.spof[0].startswith(
        "leaf-su001-r1 to leaf-su001-r3 (3 switches), each: the only leaf of a rail for 31 nodes and 1 device:"
    )
    assert "leaf-su001-r1: articulation point: ufm-1 - no other leaf: its loss cuts them off." in plan.spof
    assert not any("ufm-2" in text for text in plan.spof)


def test_cores_share_what_a_lost_one_takes() -> None:
    plan = fabric(512, 32, 64)
    assert plan.losses[-1].text == (
        "core-0001 to core-0064 (64 switches), each: one of 64 cores between all pods: its loss takes 1.56 % of "
        "that capacity from 64 switches below."
    )


def test_settings_of_a_missing_tier_are_refused() -> None:
    more = {"spine_oversubscription": "2:1", "core": {"model": "qm9700"}}
    plan = fabric(32, 32, 64, **more)
    assert texts(plan.problems) == [
        (
            "topology.spine_oversubscription: two tiers are enough for these nodes - "
            "Expected: no spine_oversubscription "
            "Actual: 2:1. Remove it, or set tiers: 3."
        ),
        (
            "topology.core: two tiers are enough for these nodes - Expected: no core Actual: qm9700. "
            "Remove it, or set tiers: 3."
        ),
    ]
