"""An InfiniBand fabric as its nodes report it, compared with the site: every finding, and its negative twin."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from rackready.design.facts import node_facts
from rackready.design.infiniband import infiniband_vars, opensm_instances, subnets
from rackready.design.own_profiles import read_own
from rackready.design.site import load_site, parse_site
from rackready.design.yaml import read_yaml
from rackready.drivers.ib.discover import FarPort, IbFabric, IbNode, IbPort
from rackready.drivers.ib_fabric import findings as kinds
from rackready.drivers.ib_fabric.cables import compare
from rackready.drivers.ib_fabric.reading import NodeReading, SubnetReading
from rackready.drivers.ib_fabric.verify import _missed, _unasked, judge_fabric, result, way_request
from rackready.model.outcome import Outcome
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[3]
LEAFS = {"leaf01": 0xB83FD20300F00001, "leaf02": 0xB83FD20300F00002}


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site("no-overlay", site_file=ROOT / "inventories/sim-ib/site.yml", root=ROOT)


def guid(node: str, rail: int) -> int:
    return 0xB83FD20300000000 + int(node[-2:]) * 0x1000 + rail * 16


Cables = dict[tuple[str, int], tuple[str, int]]


def planned(site: Site) -> Cables:
    return {
        (node.name, nic.rail): (nic.switch, int(nic.port))
        for node in site.nodes()
        for nic in node_facts(site, node.name).nics
    }


def fabric(site: Site, cables: Cables) -> IbFabric:
    """Return what ibnetdiscover tells of these cables, as its reader returns it."""
    names = {(n.name, nic.rail): nic.rdma_device for n in site.nodes() for nic in node_facts(site, n.name).nics}
    nodes = {number: IbNode("switch", number, f"MF0;{name}:MQM8700/U1", 40, 1) for name, number in LEAFS.items()}
    for lid, ((node, rail), (leaf, port)) in enumerate(cables.items(), 10):
        own = guid(node, rail)
        hca = IbPort(1, FarPort(LEAFS[leaf], port), 4, "HDR", own + 1, lid)
        nodes[own] = IbNode("ca", own, f"{node} {names[node, rail]}", 1, 0, {1: hca})
        nodes[LEAFS[leaf]].ports[port] = IbPort(port, FarPort(own, 1), 4, "HDR")
    return IbFabric(nodes)


def ports(site: Site, node: str) -> dict[str, dict[str, Any]]:
    return {
        nic.rdma_device: {
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "lid": hex(10 * int(node[-2:]) + nic.rail),
            "port_guid": f"{guid(node, nic.rail) + 1:016x}",
            "keys": ["0xffff"],
            "first_key": "0xffff",
            "problem": "",
        }
        for nic in node_facts(site, node).nics
    }


def readings(site: Site) -> dict[str, NodeReading]:
    return {node.name: NodeReading(ports(site, node.name)) for node in site.nodes()}


def seen(site: Site, cables: Cables) -> list[SubnetReading]:
    return [SubnetReading((leaf,), fabric(site, cables), has_master=True) for leaf in LEAFS]


def judged(
    site: Site, cables: Cables, known: dict[str, NodeReading] | None = None, subnet: list[SubnetReading] | None = None
) -> dict[str, list[str]]:
    nodes = [node.name for node in site.nodes()]
    found = judge_fabric(site, nodes, known or readings(site), seen(site, cables) if subnet is None else subnet)
    return {node: [f"{item.code} {item.where}" for item in findings] for node, findings in found.items() if findings}


def test_a_fabric_as_planned_has_no_finding(site: Site) -> None:
    assert judged(site, planned(site)) == {}
    assert result("node01", []).outcome is Outcome.PASS


def test_a_pulled_cable_names_both_ends_on_its_node_alone(site: Site) -> None:
    cables = planned(site)
    del cables["node02", 3]
    found = judge_fabric(site, ["node01", "node02"], readings(site), seen(site, cables))
    assert found["node01"] == []
    [finding] = found["node02"]
    assert (finding.code, finding.node) == ("cable-missing", "node02")
    assert finding.where.startswith("node02 mlx5_4 (")
    assert (finding.expected.split(" (")[0], finding.actual) == ("a link to leaf01 7", "none at either end")
    assert result("node02", [finding]).outcome is Outcome.FAIL


def test_cables_that_are_swapped_are_one_finding_with_all_ends(site: Site) -> None:
    cables = planned(site)
    cables["node01", 1], cables["node01", 2] = cables["node01", 2], cables["node01", 1]
    found = judge_fabric(site, ["node01", "node02"], readings(site), seen(site, cables))
    [finding] = found["node01"]
    assert (finding.code, found["node02"]) == ("cable-swapped", [])
    assert "mlx5_0" in finding.expected
    assert "leaf01 1" in finding.expected
    assert "leaf01 2" in finding.actual


def test_ports_and_subnets_that_are_not_read_are_errors(site: Site) -> None:
    known = readings(site) | {"node01": NodeReading(trouble="exit 1")}
    assert judged(site, planned(site), known) == {"node01": ["ib-ports-unread node01"]}
    blind = [SubnetReading(("leaf01",), trouble="no port"), seen(site, planned(site))[1]]
    found = judge_fabric(site, ["node01"], readings(site), blind)["node01"]
    assert "ib-subnet-unread" in {item.code for item in found}
    unread = [kinds.SUBNET_UNREAD.found("node01", "a", "b"), kinds.PORTS_UNREAD.found("node01", "a", "b")]
    assert result("node01", unread).outcome is Outcome.ERROR


def test_a_subnet_without_a_master_is_a_finding_of_its_nodes(site: Site) -> None:
    read = seen(site, planned(site))
    read[1].has_master, read[1].said = False, "sminfo: iberror: query failed"
    found = judge_fabric(site, ["node01"], readings(site), read)["node01"]
    assert [(item.code, item.where, item.actual) for item in found] == [
        ("ib-no-subnet-manager", "node01 (subnet of leaf02)", "sminfo: iberror: query failed")
    ]


def test_a_manager_that_could_not_be_asked_is_an_error(site: Site) -> None:
    read = seen(site, planned(site))
    read[1].has_master, read[1].unasked = False, "node01 mlx5_6: the connection was lost"
    [finding] = judge_fabric(site, ["node01"], readings(site), read)["node01"]
    assert (finding.code, finding.actual) == ("ib-subnet-manager-unasked", read[1].unasked)
    assert result("node01", [finding]).outcome is Outcome.ERROR


def test_a_port_with_a_link_must_be_active(site: Site) -> None:
    known = readings(site)
    port = deepcopy(known["node01"].ports["mlx5_0"])
    known["node01"] = NodeReading({**known["node01"].ports, "mlx5_0": {**port, "state": "2: INIT"}})
    assert judged(site, planned(site), known) == {"node01": ["ib-port-state node01 mlx5_0 (rail 1)"]}


@pytest.mark.parametrize(
    ("keys", "problem", "code"),
    [
        (["0x7fff"], "", "ib-port-pkeys"),
        (["0xffff", "0x8012"], "", "ib-port-pkeys"),
        ([], "", "ib-port-pkeys-unread"),
        ([], "smpquery pkeys exit 1", "ib-port-pkeys-unread"),
    ],
)
def test_a_port_holds_the_keys_of_its_tenant_and_no_others(
    site: Site, keys: list[str], problem: str, code: str
) -> None:
    known = readings(site)
    port = {**known["node01"].ports["mlx5_0"], "keys": keys, "problem": problem}
    known["node01"] = NodeReading({**known["node01"].ports, "mlx5_0": port})
    assert judged(site, planned(site), known) == {"node01": [f"{code} node01 mlx5_0 (rail 1)"]}


def test_every_port_asks_the_peers_of_its_rail(site: Site) -> None:
    request, unmeasured = way_request(site, "node01", readings(site))
    assert (len(request), unmeasured) == (8 * 3, [])
    assert request[0] == {
        "peer": "node02 mlx5_0",
        "device": "mlx5_0",
        "lid": 21,
        "port_guid": f"{guid('node02', 1) + 1:016x}",
        "shares_key": True,
    }
    alone = {"node01": readings(site)["node01"]}
    assert way_request(site, "node01", alone) == (
        [],
        [f"rail {rail}: no other node in this run to reach" for rail in range(1, 9)],
    )


def test_peers_that_do_not_answer_are_findings(site: Site) -> None:
    request, _ = way_request(site, "node01", readings(site))
    answer = NodeReading(missed=[{"peer": "node02 mlx5_0", "device": "mlx5_0", "said": "no output"}])
    [finding] = _missed(site, "node01", answer, request)
    assert (finding.code, finding.where, finding.expected, finding.actual) == (
        "ib-peer-unreached",
        "node01 mlx5_0 (rail 1, leaf01 1)",
        "answers of 3 peers",
        "node02 mlx5_0: no output",
    )
    assert list(_missed(site, "node01", NodeReading(), request)) == []
    [unread] = _missed(site, "node01", NodeReading(trouble="exit 1"), request)
    assert unread.code == "ib-ports-unread"


def test_leafs_that_no_cable_joins_are_subnets_with_managers_of_their_own(site: Site) -> None:
    assert [(item.name, [name for name, _ in item.managers]) for item in subnets(site)] == [
        ("leaf01", ["node01", "node02"]),
        ("leaf02", ["node01", "node02"]),
    ]
    assert [(item["name"], item["rdma_device"], item["priority"]) for item in opensm_instances(site, "node02")] == [
        ("leaf01", "mlx5_0", 14),
        ("leaf02", "mlx5_6", 14),
    ]
    assert opensm_instances(site, "node03") == []


def with_tenants(*tenants: dict[str, Any]) -> Site:
    document = read_yaml(ROOT / "inventories/sim-ib/site.yml")
    document["tenants"] = list(tenants)
    own = read_own(ROOT / "inventories/sim-ib/profiles", ROOT)
    return parse_site(document, source="tenants", base=ROOT, own=own)


def tenant_readings(site: Site) -> dict[str, NodeReading]:
    """Return ports that all hold the key of tenant red, at index 0."""
    known = readings(site)
    for reading in known.values():
        for port in reading.ports.values():
            port |= {"keys": ["0x8011", "0x7fff"], "first_key": "0x8011"}
    return known


RED = {"name": "red", "nodes": ["node[01-04]"], "pkey": "0x0011"}


def test_a_tenants_key_that_is_not_the_first_is_a_finding() -> None:
    """Programs use the key at index 0, which is then that of the default partition."""
    site = with_tenants(RED)
    known = tenant_readings(site)
    known["node03"].ports["mlx5_0"] |= {"keys": ["0x7fff", "0x8011"], "first_key": "0x7fff"}
    [finding] = judge_fabric(site, ["node03"], known, seen(site, planned(site)))["node03"]
    assert str(finding) == (
        "node03 mlx5_0 (rail 1): partition key at index 0 - Expected: 0x8011 Actual: 0x7fff. "
        "opensm: flag indx0 in the line of the partition, then send opensm a HUP. UFM: index0 true for the port. "
        "Another subnet manager: ask its owner for it."
    )


@pytest.mark.parametrize(
    ("tenants", "first", "shares"),
    [
        ([{**RED, "nodes": ["node01", "node03"]}], "node03", {"node03": True, "node02": False, "node04": False}),
        ([{**RED, "full_member": False}], "node02", {"node02": False, "node03": False, "node04": False}),
        ([{**RED, "nodes": ["node04"]}], "node02", {"node02": False, "node03": False, "node04": False}),
        ([{"name": "red", "nodes": ["node01"]}], "node02", {"node02": True, "node03": True, "node04": True}),
    ],
    ids=["another tenant", "limited members", "no tenant beside one", "no keys"],
)
def test_peers_of_the_own_tenant_come_first(tenants: list[dict[str, Any]], first: str, shares: dict[str, bool]) -> None:
    site = with_tenants(*tenants)
    request, _ = way_request(site, "node01", readings(site))
    of_rail = [item for item in request if item["device"] == "mlx5_0"]
    assert {str(item["peer"]).split()[0]: item["shares_key"] for item in of_rail} == shares
    assert of_rail[0]["peer"] == f"{first} mlx5_0"


def test_peers_that_cannot_be_asked_are_told(site: Site) -> None:
    answer = NodeReading(unasked=[{"peer": f"{node} mlx5_0", "device": "mlx5_0"} for node in ("node02", "node03")])
    why = "M_Key protection, and no partition key in common"
    assert list(_unasked(site, "node01", answer)) == [f"rail 1: node02 mlx5_0, node03 mlx5_0 not asked: {why}"]


def test_the_port_of_the_master_is_a_full_member_for_subnet_management() -> None:
    """Role opensm makes SELF one. A standby manager's port is not, until it becomes the master."""
    site = with_tenants(RED)
    known = tenant_readings(site)
    assert judged(site, planned(site), known) == {}
    for node, device in (("node01", "mlx5_0"), ("node01", "mlx5_6"), ("node02", "mlx5_0")):
        known[node].ports[device]["keys"] = ["0x8011", "0xffff"]
    assert judged(site, planned(site), known) == {}
    for node, device in (("node01", "mlx5_3"), ("node03", "mlx5_0")):
        known[node].ports[device]["keys"] = ["0x8011", "0xffff"]
    assert {
        node: [text.split()[0] for text in texts] for node, texts in judged(site, planned(site), known).items()
    } == {
        "node01": ["ib-port-pkeys"],
        "node03": ["ib-port-pkeys"],
    }


def test_a_switch_without_a_name_is_known_by_its_guid() -> None:
    document = read_yaml(ROOT / "inventories/sim-ib/site.yml")
    own = read_own(ROOT / "inventories/sim-ib/profiles", ROOT)
    plain = parse_site(document, source="plain", base=ROOT, own=own)
    unnamed = fabric(plain, planned(plain))
    for number in LEAFS.values():
        node = unnamed.nodes[number]
        unnamed.nodes[number] = IbNode("switch", number, "Quantum Mellanox Technologies", 40, 1, node.ports)
    subnet = [SubnetReading((leaf,), unnamed, has_master=True) for leaf in LEAFS]
    found = judged(plain, planned(plain), None, subnet)
    assert {node: [text.split()[0] for text in texts] for node, texts in found.items()} == dict.fromkeys(
        ("node01", "node02", "node03", "node04"), ["cable-device-exchanged"] * 2
    )
    for switch in document["switches"]:
        switch["guid"] = f"0x{LEAFS[switch['name']]:016x}"
    named = parse_site(document, source="named", base=ROOT, own=own)
    assert judged(named, planned(named), None, subnet) == {}
    assert infiniband_vars(named)["opensm_switch_names"][0] == {"guid": "0xb83fd20300f00001", "name": "leaf01"}
    assert "opensm_switch_names" not in infiniband_vars(plain)


def unnamed_at(site: Site, description: str, port: int = 0) -> tuple[dict[str, NodeReading], list[SubnetReading]]:
    """Return readings of a fabric with such an adapter in place of node03's of rail 2, or at another port of leaf01.

    Node03 does not tell its GUID: its port is not there in its own reading.
    """
    cables = planned(site)
    if port:
        cables["node03", 2] = ("leaf01", port)
    read = seen(site, cables)
    for reading in read:
        assert reading.fabric is not None
        own = guid("node03", 2)
        reading.fabric.nodes[own] = IbNode("ca", own, description, 1, 0, reading.fabric.nodes[own].ports)
    known = readings(site)
    known["node03"] = NodeReading({name: port for name, port in known["node03"].ports.items() if name != "mlx5_3"})
    return known, read


@pytest.mark.parametrize("description", ["localhost", "MT4129 ConnectX7   Mellanox Technologies", "node03 HCA-2"])
def test_adapters_that_no_name_and_no_node_tells_are_an_error_of_the_node_at_their_port(
    site: Site, description: str
) -> None:
    """The cabling of no other node is unproven by it: each has its own links."""
    known, read = unnamed_at(site, description)
    nodes = ["node01", "node03"]
    cables = compare(site, nodes, known, read)
    found = judge_fabric(site, nodes, known, read, cables=cables)
    assert found["node01"] == []
    words = f"0xb83fd20300003020 '{description}' at leaf01 10"
    [finding] = found["node03"]
    assert (finding.code, finding.where, finding.actual) == ("ib-hca-unnamed", "node03", words)
    assert result("node03", found["node03"]).outcome is Outcome.ERROR
    assert cables.remarks("node01") == [f"adapters of no known node, whose cables were not judged: {words}"]
    assert cables.remarks("node03") == []


def test_an_unnamed_adapter_at_a_free_port_is_of_nobody_and_the_planned_port_has_no_link(site: Site) -> None:
    known, read = unnamed_at(site, "localhost", port=33)
    found = judge_fabric(site, ["node01", "node03"], known, read)
    assert (found["node01"], [item.code for item in found["node03"]]) == ([], ["cable-missing"])


@pytest.mark.parametrize("description", ["localhost", "node03 HCA-2"])
def test_an_adapter_of_a_known_node_concerns_that_node_at_any_port(site: Site, description: str) -> None:
    """A node that is off tells no GUID; those that an earlier run read are kept."""
    known, read = unnamed_at(site, description, port=33)
    kept = {"node03": [f"{guid('node03', 2) + 1:016x}"]}
    cables = compare(site, ["node01", "node03"], known, read, kept)
    assert [item.code for item in cables.of("node03")] == ["cable-missing", "ib-hca-unnamed"]
    assert cables.of("node01") == []
