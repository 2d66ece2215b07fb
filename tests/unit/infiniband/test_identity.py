"""Which device an InfiniBand node is: by GUID, else by name; nothing is guessed from its cable."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.plan import lay
from rackready.design.site import load_site
from rackready.drivers.cabling_check.types import End
from rackready.drivers.ib.cabling import check_cabling
from rackready.drivers.ib.discover import read_ibnetdiscover
from rackready.drivers.ib.planned import IbPlan, IbPlanError, planned_cables
from rackready.drivers.ib.text import guid_text
from rackready.model.outcome import Finding
from rackready_sim.ibtwin.topology import Twin, TwinLink, TwinPort, as_declared, net_text, twin_of
from tests.unit.infiniband.fabrics import plan_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def plan(tmp_path: Path) -> IbPlan:
    return plan_of(tmp_path, 8, 4)[1]


def findings(plan: IbPlan, twin: Twin, guids: dict[int, End] | None = None) -> list[Finding]:
    """Findings of a fabric that looks like the twin's topology: its file has ibnetdiscover's shape."""
    return check_cabling(as_declared(plan), read_ibnetdiscover(net_text(twin)), guids)


def codes(plan: IbPlan, twin: Twin, guids: dict[int, End] | None = None) -> list[str]:
    return [item.code for item in findings(plan, twin, guids)]


def rename(twin: Twin, end: End, description: str) -> int:
    node = twin.adapters[end]
    twin.names[node] = description
    return int(node.partition("-")[2], 16)


FIRST = End("a01-n1", "mlx5_0")


def test_names_of_the_plan_are_enough(plan: IbPlan) -> None:
    assert codes(plan, twin_of(plan)) == []


def test_a_name_with_a_domain_is_the_host(plan: IbPlan) -> None:
    twin = twin_of(plan)
    rename(twin, FIRST, "a01-n1.example.com mlx5_0")
    assert codes(plan, twin) == []


@pytest.mark.parametrize("description", ["MT4129 ConnectX7   Mellanox Technologies", "a01-n1 HCA-1", ""])
def test_an_adapter_without_a_usable_name_is_an_error_and_its_cable_no_fault(plan: IbPlan, description: str) -> None:
    twin = twin_of(plan)
    guid = rename(twin, FIRST, description)
    assert codes(plan, twin) == ["ib-hca-unnamed"]
    assert codes(plan, twin, {guid: FIRST}) == []
    assert codes(plan, twin, {guid + 1: FIRST}) == [], "its port GUID tells as well"


def test_a_name_of_two_adapters_and_a_name_against_the_guid_are_errors(plan: IbPlan) -> None:
    twin = twin_of(plan)
    guid = rename(twin, FIRST, "a01-n2 mlx5_0")
    assert codes(plan, twin) == ["ib-name-twice"]
    assert codes(plan, twin, {guid: FIRST}) == ["ib-name-contradicts"]


def test_a_switch_without_the_planned_name_is_told_by_its_cables(plan: IbPlan) -> None:
    twin = twin_of(plan)
    twin.names[twin.switches["leaf-su001-r1"]] = "Quantum Mellanox Technologies"
    assert codes(plan, twin) == ["cable-device-exchanged"]
    guid = int(twin.switches["leaf-su001-r1"].partition("-")[2], 16)
    assert codes(plan, twin, {guid: End("leaf-su001-r1", "")}) == []


def test_a_switch_and_a_host_may_tell_their_names_in_upper_case(plan: IbPlan) -> None:
    """Site files have names in lower case only."""
    twin = twin_of(plan)
    for name, node in twin.switches.items():
        twin.names[node] = f"MF0;{name.upper()}:MQM9701/U1"
    rename(twin, FIRST, "A01-N1.Example.COM mlx5_0")
    assert codes(plan, twin) == []


def test_a_name_that_is_not_of_the_site_is_shown_as_the_fabric_tells_it(plan: IbPlan) -> None:
    twin = twin_of(plan)
    leaf = twin.switches["leaf-su001-r1"]
    twin.names[leaf] = "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1"
    found = findings(plan, twin)
    assert [item.code for item in found] == ["cable-device-exchanged"]
    assert "'MF0;A09-P1-IBLEAF-04-04:MQM9701/U1'" in found[0].actual


def test_switches_whose_names_differ_by_case_alone_are_shown_with_both(plan: IbPlan) -> None:
    twin = twin_of(plan)
    first, second = (twin.switches[f"leaf-su001-r{rail}"] for rail in (1, 2))
    twin.names[second] = "MF0;LEAF-SU001-R1:rackready/U1"
    found = next(item for item in findings(plan, twin) if item.code == "ib-name-twice")
    told = {first: "MF0;leaf-su001-r1:rackready/U1", second: "MF0;LEAF-SU001-R1:rackready/U1"}
    assert (found.where, found.actual) == (
        "leaf-su001-r1",
        ", ".join(f"0x{node.partition('-')[2]} '{told[node]}'" for node in sorted(told)),
    )


def test_the_sharp_node_of_a_switch_is_no_cable(plan: IbPlan) -> None:
    twin = twin_of(plan)
    leaf, sharp = twin.switches["leaf-su001-r1"], f"H-{0x0200_0003_0000_0000:016x}"
    twin.sizes[leaf] = 65
    twin.names[sharp], twin.sizes[sharp] = "Mellanox Technologies Aggregation Node", 1
    twin.links.append(TwinLink(TwinPort(sharp, 1), TwinPort(leaf, 65), "4xHDR"))
    assert codes(plan, twin) == []
    twin.names[sharp] = "intruder mlx5_0"
    assert codes(plan, twin) == ["cable-foreign-device"]


def test_devices_in_the_places_of_nodes_are_known_by_their_host_alone() -> None:
    site = load_site("h100", site_file=ROOT / "inventories/examples/h100-1su-infiniband.yml", root=ROOT)
    plan = planned_cables(lay(site))
    twin = twin_of(plan)
    for end in [end for end in twin.adapters if end.device == "ufm-1"]:
        rename(twin, end, "ufm-1 mlx5_7" if end.port == "rail1" else "ufm-1 HCA-2")
    assert codes(plan, twin) == []


def test_a_site_of_ethernet_is_refused() -> None:
    site = load_site("sim", root=ROOT)
    with pytest.raises(IbPlanError, match=r"fabric\.kind - Expected: infiniband Actual: roce"):
        planned_cables(lay(site))


def test_guids_are_written_as_the_tools_take_them() -> None:
    assert guid_text(0x2C90300A1B2C3) == "0x0002c90300a1b2c3"
