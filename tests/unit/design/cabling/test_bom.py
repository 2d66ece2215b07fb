"""The bill of materials: modules, splitters, spares, and the counts of NVIDIA's list for an H100 SuperPOD."""

from __future__ import annotations

import pytest
import yaml

from rackready.design.cabling.bom import bill_of_materials, spares
from rackready.design.cabling.plan import plan_cables
from rackready.design.cabling.runs import site_runs
from rackready.design.cabling.types import BomLine, Cable
from rackready.design.endpoints import endpoints
from rackready.design.topology.build import build
from tests.unit.design.cabling.kit import ROOT, Bench, catalogue, floor, parse

HALL = floor(near=(0, 4))


def needed(cables: tuple[Cable, ...]) -> dict[str, int]:
    return {line.part: line.needed for line in bill_of_materials(cables, catalogue(), 0)}


def test_a_twin_port_module_is_counted_once_for_its_two_cables() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    for sub in (0, 1):
        bench.join(bench.nic(f"near/1/gpu0{sub}/rail1"), switch, (0, sub))
    assert needed(bench.plan(HALL).cables) == {"MFP7E10-N010": 2, "MMA4Z00-NS400": 2, "MMA4Z00-NS": 1}


def test_half_a_twin_port_module_is_a_whole_one() -> None:
    bench = Bench()
    for cage in (1, 2, 3):
        bench.join(bench.nic(f"near/1/gpu0{cage}/rail1"), bench.twin(f"r/20/leaf01/swp{cage}"))
    assert needed(bench.plan(HALL).cables) == {"MFP7E10-N010": 3, "MMA4Z00-NS400": 3, "MMA4Z00-NS": 3}


def test_a_splitter_is_one_piece_without_modules() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    for sub in (0, 1):
        bench.join(bench.nic(f"r/{sub + 1}/gpu0{sub}/rail1"), switch, (0, sub))
    assert needed(bench.plan(HALL).cables) == {"MCP7Y00-N02A": 1}


def test_a_link_of_two_fibres_has_two_fibres_and_one_module_an_end() -> None:
    bench = Bench()
    bench.join(bench.twin("r/1/leaf01/swp1"), bench.twin("near/1/spine01/swp9"), rate=800, lanes=8)
    assert needed(bench.plan(HALL).cables) == {"MFP7E10-N010": 2, "MMA4Z00-NS": 2}


def test_what_cannot_be_served_is_not_ordered() -> None:
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/rail1"), bench.twin("nowhere/1/leaf01/swp1"))
    assert needed(bench.plan(HALL).cables) == {}


@pytest.mark.parametrize(
    ("count", "pct", "expected"),
    [(0, 5, 0), (1, 5, 1), (1, 0, 1), (100, 5, 5), (101, 5, 6), (20, 5, 1), (21, 5, 2), (3, 100, 3)],
)
def test_spares_are_rounded_up_and_at_least_one(count: int, pct: float, expected: int) -> None:
    assert spares(count, pct) == expected


def test_a_negative_share_of_spares_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^spares - Expected: 0 percent or more Actual: -1\. Correct the share of spares\.$"
    ):
        bill_of_materials((), catalogue(), -1)


def test_lines_say_what_the_part_is_and_devices_stand_beside_them() -> None:
    bench = Bench()
    bench.join(bench.nic("near/1/gpu01/rail1"), bench.twin("r/20/leaf01/swp1"))
    lines = bill_of_materials(
        bench.plan(HALL).cables, catalogue(), 10, {"node": {"dgx_h100": 4}, "switch": {"sn5600": 2}}
    )
    assert [(line.group, line.part, line.description, line.needed, line.spare, line.total) for line in lines] == [
        ("fibre", "MFP7E10-N010", "OM4 fibre, MPO12/APC, 10 m", 1, 1, 2),
        ("module", "MMA4Z00-NS", "2 x 400 Gb/s sr4, osfp finned, 50 m", 1, 1, 2),
        ("module", "MMA4Z00-NS400", "1 x 400 Gb/s sr4, osfp flat, 50 m", 1, 1, 2),
        ("switch", "sn5600", "", 2, 0, 2),
        ("node", "dgx_h100", "", 4, 0, 4),
    ]
    assert all(line.source for line in lines)


def superpod() -> list[BomLine]:
    """Return an H100 SuperPOD of four units with 127 nodes; UFM takes one place.

    Copper is left out, as in NVIDIA's list: leafs and spines are apart.
    """
    site = yaml.safe_load((ROOT / "inventories/examples/h100-1su-infiniband.yml").read_text(encoding="utf-8"))
    place = {"hall": "hall-a", "row": "row-1", "position": {"offset": 0}, "height_u": 48}
    node = {"template": "h100", "unit": {"first": 1, "step": 10}}
    site["racks"] = [
        {"name": "r[01-31]", **place, "nodes": [{"name": "{rack}-n[1-4]", **node}]},
        {"name": "r32", **place, "nodes": [{"name": "r32-n[1-3]", **node}]},
        {"name": "r33", **place, "row": "row-2", "position": 1, "switch_slots": [{"tier": "leaf", "units": "1-32"}]},
        {"name": "r34", **place, "row": "row-2", "position": 20, "switch_slots": [{"tier": "spine", "units": "1-16"}]},
    ]
    site["halls"] = [{"name": "hall-a", "rows": ["row-1", "row-2"], "row_pitch_m": 2.0, "tray_height_m": 2.7}]
    site["devices"] = [
        {"name": f"ufm-{number}", "kind": "ufm", "rack": "r34", "unit": 40 + number} for number in (1, 2)
    ]
    site["topology"]["reserved"] = [{"su": 4, "slot": 32, "devices": {"ufm-1": [1, 2], "ufm-2": [3, 4]}}]
    for name in ("deliveries", "facility", "tenants", "nic_plans", "maintenance", "other_fabrics"):
        site.pop(name, None)
    found = parse(site)
    assert found.topology is not None
    fabric = build(found.topology, endpoints(found))
    runs = site_runs(found, fabric)
    assert (fabric.problems, runs.problems) == ((), [])
    plan = plan_cables(runs.runs, runs.floor, catalogue())
    assert plan.problems == ()
    return bill_of_materials(plan.cables, catalogue(), 0)


def test_counts_are_those_of_the_published_superpod() -> None:
    """RA-11333-001 V11, table 8 (4 SU): 1,536 switch transceivers, 508 in the DGX systems, 4 in the UFM hosts.

    1,020 + 1,024 cables (its table 4).
    """
    lines = superpod()
    modules = {line.part: line.needed for line in lines if line.group == "module"}
    assert modules == {"MMA4Z00-NS": 1536, "MMA4Z00-NS-FLT": 508, "MMA4Z00-NS400": 4}
    assert sum(line.needed for line in lines if line.group == "fibre") == 1020 + 1024
