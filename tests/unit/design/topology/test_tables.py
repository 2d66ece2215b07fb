"""Published SuperPOD tables, row by row: the rules, not a table in the code, give the counts.

Sources: DGX SuperPOD reference architectures B200 and H100 (64-port switches, units of 32 nodes, 8 compute NICs a
node), B300 with two planes, and B300-XDR (144-port switches, units of 72 nodes).
"""

from __future__ import annotations

import pytest

from rackready.design.topology.build import build, build_at
from rackready.design.topology.sizing import Demand, most_units
from rackready.design.topology.types import EndpointNode, FabricPlan
from tests.unit.design.topology.fabrics import fabric, nodes, topology

UFM = [{"su": 1, "slot": 32, "devices": {"ufm-1": [1, 2], "ufm-2": [3, 4]}}]
"""An H100 SuperPOD gives one node's place to UFM, which takes four of its eight ports (252 = 31 x 8 + 4)."""


def row(plan: FabricPlan) -> tuple[int, ...]:
    counts = plan.counts
    cables = (counts["endpoint_cables"], counts["leaf_spine_cables"], counts["spine_core_cables"])
    return (counts["leaf"], counts["spine"], counts["core"], *cables)


def counted(plan: FabricPlan) -> tuple[int, ...]:
    """Return the same from the switches and cables themselves."""
    tiers = [sum(switch.tier == tier for switch in plan.switches) for tier in ("leaf", "spine", "core")]
    cores = {switch.name for switch in plan.switches if switch.tier == "core"}
    upper = sum(trunk.upper in cores for trunk in plan.trunks)
    return (*tiers, len(plan.endpoints), len(plan.trunks) - upper, upper)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (2, (16, 8, 0, 512, 512, 0)),
        (4, (32, 16, 0, 1024, 1024, 0)),
        (8, (64, 32, 0, 2048, 2048, 0)),
        (16, (128, 128, 64, 4096, 4096, 4096)),
        (32, (256, 256, 128, 8192, 8192, 8192)),
        (64, (512, 512, 256, 16384, 16384, 16384)),
    ],
)
def test_b200(units: int, expected: tuple[int, ...]) -> None:
    plan = fabric(units * 32, 32, 64)
    assert row(plan) == counted(plan) == expected
    assert plan.proof is not None
    assert plan.proof.ok
    assert plan.counts["tiers"] == (2 if units <= 8 else 3)


@pytest.mark.parametrize(
    ("units", "hosts", "expected"),
    [
        (1, 31, (8, 4, 0, 252, 256, 0)),
        (2, 63, (16, 8, 0, 508, 512, 0)),
        # 12 spines would carry 24 leafs, but 32 uplinks do not spread evenly over 12.
        (3, 95, (24, 16, 0, 764, 768, 0)),
        (4, 127, (32, 16, 0, 1020, 1024, 0)),
    ],
)
def test_h100_with_a_place_for_ufm(units: int, hosts: int, expected: tuple[int, ...]) -> None:

    # The first unit has 31 nodes, since UFM has its last place.
    own = [
        EndpointNode(f"gpu-{number:03d}", 1 if number < 31 else (number + 1) // 32 + 1, tuple(range(1, 9)), 400)
        for number in range(hosts)
    ]
    plan = build_at((64, 64, 64), topology(reserved=UFM), own)
    assert plan.problems == ()
    assert row(plan) == counted(plan) == expected
    assert plan.counts["units"] == units
    ufm = {(link.node, link.nic, link.switch, link.port) for link in plan.endpoints if link.node.startswith("ufm")}
    assert ufm == {(f"ufm-{(rail + 1) // 2}", rail, f"leaf-su001-r{rail}", 32) for rail in (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("count", "leafs", "spines"), [(72, 8, 4), (144, 16, 8), (288, 32, 18), (576, 64, 36), (1296, 144, 72)]
)
def test_b300_xdr(count: int, leafs: int, spines: int) -> None:
    plan = fabric(count, 72, 144)
    assert row(plan)[:3] == (leafs, spines, 0)
    assert plan.proof is not None
    assert plan.proof.ok


def test_the_last_row_of_b300_xdr_has_more_cables_than_the_gpus_that_it_prints() -> None:
    # The document prints 9,216 GPUs beside 10,368 cables: 1,296 nodes are 10,368 GPUs.
    plan = fabric(1296, 72, 144)
    assert plan.counts["endpoint_cables"] == 10368
    assert plan.counts["endpoint_cables"] != 9216
    assert 144 * 144 // 2 == 10368, "and that is all that two tiers of radix 144 carry"


def test_b300_twin_plane() -> None:
    # Every 800G port is split into two planes, so that a 64-cage switch has 128 ports.
    plan = fabric(64, 64, 128, planes=2)
    assert row(plan) == counted(plan) == (16, 8, 0, 1024, 1024, 0)
    for plane in (1, 2):
        own = [switch for switch in plan.switches if switch.plane == plane]
        assert (sum(switch.tier == "leaf" for switch in own), sum(switch.tier == "spine" for switch in own)) == (8, 4)


@pytest.mark.parametrize("radix", [64, 128])
def test_three_tiers_end_at_a_quarter_of_the_cube_of_the_radix(radix: int) -> None:

    su = radix // 2
    assert most_units(Demand((radix,) * 3, 8, su, 1), 3) * su * 8 == radix**3 // 4


@pytest.mark.parametrize(
    ("model", "link", "rate", "radix"),
    [("qm9700", "infiniband", 400, 64), ("sn5600_2x400", "roce", 400, 128), ("q3400_ra", "infiniband", 800, 144)],
)
def test_the_radix_comes_from_the_switch_profile(model: str, link: str, rate: int, radix: int) -> None:
    plan = build(topology(leaf={"model": model}, link=link), nodes(2, 2, rate=rate))
    assert plan.problems == ()
    assert {(switch.model, switch.radix) for switch in plan.switches} == {(model, radix)}


@pytest.mark.parametrize(
    "fields",
    [{"radix": 128, "su": 64}, {"radix": 144, "su": 72}, {"radix": 64, "su": 32, "planes": 2, "planes_by": "rail"}],
)
def test_100000_gpus(fields: dict[str, int]) -> None:
    fields = dict(fields)
    radix, su = fields.pop("radix"), fields.pop("su")
    plan = fabric(12500, su, radix, **fields)
    assert plan.problems == ()
    assert plan.counts["tiers"] == 3
    assert plan.counts["endpoint_cables"] == 100_000
    assert plan.proof is not None
    assert plan.proof.ok


def test_nvl72_racks() -> None:
    # 8 racks of 18 trays with 4 NICs: two units of 4 racks (72 trays), one leaf a rail at radix 144.
    plan = fabric(144, 72, 144, rails=4)
    assert row(plan) == counted(plan) == (8, 4, 0, 576, 576, 0)


def test_a_unit_that_no_leaf_takes_whole_has_several_leafs_a_rail() -> None:
    # 144 trays at 32 ports down: five leafs a rail with at most 29 trays each.
    plan = fabric(144, 144, 64, rails=4)
    assert plan.counts["leaf"] == 20
    assert plan.proof is not None
    assert plan.proof.ok
    assert {link.switch for link in plan.endpoints if link.node == "gpu-00029" and link.nic == 1} == {"leaf-su001-r1-2"}


def test_fat_tree_puts_all_nics_of_a_node_on_one_leaf() -> None:
    plan = fabric(32, 32, 64, kind="fat_tree")
    assert row(plan) == counted(plan) == (8, 4, 0, 256, 256, 0)
    assert {link.switch for link in plan.endpoints if link.node == "gpu-00005"} == {"leaf-su001-02"}
    assert [link.port for link in plan.endpoints if link.node == "gpu-00005"] == list(range(9, 17))


@pytest.mark.parametrize(
    ("ratio", "su", "uplinks", "spines"), [("2:1", 32, 16, 2), ("3:1", 48, 16, 2), ("4:3", 32, 24, 3)]
)
def test_a_ratio_takes_fewer_uplinks(ratio: str, su: int, uplinks: int, spines: int) -> None:
    plan = fabric(su, su, 64, oversubscription=ratio)
    assert plan.counts["leaf_spine_cables"] == 8 * uplinks
    assert plan.counts["spine"] == spines
    assert plan.proof is not None
    assert plan.proof.ok


def test_a_ratio_at_the_spine_takes_fewer_cores() -> None:
    full, thin = fabric(512, 32, 64), fabric(512, 32, 64, spine_oversubscription="2:1")
    assert (
        full.counts["core"],
        thin.counts["spine_core_cables"] * 2 <= full.counts["spine_core_cables"] + 32 * 16,
    ) == (64, True)
    assert thin.counts["core"] < 64
    assert thin.proof is not None
    assert thin.proof.ok


def test_planes_by_rail_carry_a_part_of_the_rails_each() -> None:
    plan = fabric(64, 32, 64, planes=2, planes_by="rail")
    assert len(plan.endpoints) == 512
    assert {link.plane for link in plan.endpoints if link.nic in (1, 3, 5, 7)} == {1}
    assert {link.plane for link in plan.endpoints if link.nic in (2, 4, 6, 8)} == {2}
