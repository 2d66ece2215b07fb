"""UFM's documents: the examples that NVIDIA published, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.design.plan import lay
from rackready.drivers.ib.cabling import check_cabling
from rackready.drivers.ib.planned import planned_cables
from rackready.drivers.ufm import reading
from rackready.drivers.ufm.errors import UfmError
from rackready.drivers.ufm.fabric import fabric_of
from rackready.drivers.ufm.read import (
    Alarm,
    UfmPartition,
    read_alarms,
    read_links,
    read_partitions,
    read_ports,
    read_version,
)
from rackready.drivers.ufm.reading import alarms_by_port, read_ufm
from rackready.model.site import Site
from rackready_sim.ufm.server import Ufm
from tests.unit.ufm.ufms import simulated, site_of, up

# NVIDIA UFM Enterprise REST API Guide: 6.22.1 "UFM Version", 6.22.1 "Ports" (cut after the fields that matter here,
# which are completed from its table and from bare-metal-manager-core), 6.11.1 and 6.20.0 "Links", 6.19.6 "Alarms".
VERSION = {"opensm": "5.20.0_ef1f438", "ufm_webui": "6.18.0-3", "ufm_release_version": "6.18.0-5", "plugins": {}}
DOWN = {
    "description": "Switch IB Port",
    "number": 52,
    "physical_state": "Polling",
    "lid": 34,
    "logical_state": "Down",
    "active_speed": None,
    "active_width": None,
    "peer": "N/A",
    "systemID": "900a840300ac8c40",
    "system_name": "sw-ufm-ndr03",
    "node_description": "sw-ufm-ndr03:1/26/2",
    "guid": "900a840300ac8c40",
    "name": "900a840300ac8c40_52",
}
UP = DOWN | {
    "number": 5,
    "physical_state": "Link Up",
    "logical_state": "Active",
    "active_speed": "NDR",
    "active_width": "4x",
    "peer": "9c0591030085abc0_5",
    "name": "900a840300ac8c40_5",
}
LINK = {
    "source_guid": "900a840300ac8c40",
    "source_port": "5",
    "destination_guid": "9c0591030085abc0",
    "destination_port": "5",
    "width": "4x",
    "severity": "Info",
    "name": "900a840300ac8c40_5:9c0591030085abc0_5",
}
OLD_LINK = {"width": "IB_4x", "name": "248a070300f88fe0_20:ec0d9a03007d7d0b_2", "destination_guid": "b8599f03000a77d0"}
ALARM = {
    "id": 3,
    "type": "IBPort",
    "name": "Link HW Error",
    "description": "Link Downed",
    "event_type": 112,
    "reason": "Link-Downed counter delta threshold exceeded.",
    "severity": "Critical",
    "object_name": "b8599f03000a7768_1",
}
OLD_ALARM = {
    "type": 55,
    "name": "Module status FAULT",
    "reason": "x",
    "severity": "Critical",
    "related_object_name": "e",
}
# bare-metal-manager-core @7778162cf, crates/api/src/ib/ufmclient/mod.rs, test_deserialize_partition_data
PARTITION = {
    "guids": [{"guid": "946dae03005985c8", "index0": True, "membership": "full"}],
    "ip_over_ib": True,
    "partition": "api_pkey_0x31a",
}
PARTITIONS = {"0x7fff": {"partition": "management", "ip_over_ib": True, "guids": []}, "0x31a": PARTITION}


def test_published_examples_are_read() -> None:
    assert read_version(VERSION) == "6.18.0-5"
    ports = read_ports([DOWN, UP])
    found = ports["900a840300ac8c40_5"]
    assert (found.number, found.kind, found.width, found.speed, found.peer) == (
        5,
        "switch",
        4,
        "NDR",
        "9c0591030085abc0_5",
    )
    assert (ports["900a840300ac8c40_52"].width, ports["900a840300ac8c40_52"].peer) == (0, "")
    assert read_links([LINK]) == (("900a840300ac8c40_5", "9c0591030085abc0_5"),)
    assert read_links([OLD_LINK]) == (("248a070300f88fe0_20", "ec0d9a03007d7d0b_2"),)
    alarm = Alarm("b8599f03000a7768_1", "Critical", "Link HW Error", "Link-Downed counter delta threshold exceeded.")
    assert read_alarms([ALARM]) == (alarm,)
    assert read_alarms([]) == ()
    ports = {0x946DAE03005985C8: True}
    assert read_partitions(PARTITIONS)[0x31A] == UfmPartition(0x31A, "api_pkey_0x31a", ports, first=frozenset(ports))


def test_the_default_partition_tells_its_default_since_6_19() -> None:
    told = read_partitions({"0x7fff": PARTITIONS["0x7fff"] | {"membership": "full"}})
    assert told[0x7FFF].default_full is True
    assert read_partitions(PARTITIONS)[0x7FFF].default_full is None


@pytest.mark.parametrize(
    ("read", "document"),
    [
        (read_version, []),
        (read_version, {"ufm_release_version": 6}),
        (read_ports, []),
        (read_ports, {"ports": []}),
        (read_ports, ["900a840300ac8c40_5"]),
        (read_ports, [UP, UP]),
        (read_ports, [{key: value for key, value in UP.items() if key != "node_description"}]),
        (read_ports, [UP | {"name": "sw-ufm-ndr03_5"}]),
        (read_ports, [UP | {"description": "Computer IB Port", "guid": "900a840300ac8c41"}]),
        (read_ports, [UP | {"active_speed": "GDR"}]),
        (read_ports, [UP | {"active_speed": None}]),
        (read_ports, [UP | {"active_width": "wide"}]),
        (read_ports, [UP | {"peer": "leaf02 5"}]),
        (read_ports, [UP | {"description": "Switch Ethernet Port"}]),
        (read_links, []),
        (read_links, [LINK, LINK]),
        (read_links, [{"name": "900a840300ac8c40_5"}]),
        (read_links, [{"source_guid": "900a840300ac8c40"}]),
        (read_partitions, {}),
        (read_partitions, ["0x7fff"]),
        (read_partitions, {"0x31a": PARTITION}),
        (read_partitions, PARTITIONS | {"0x31a": {"partition": "a", "ip_over_ib": True}}),
        (read_partitions, PARTITIONS | {"0x31a": PARTITION | {"guids": [{"guid": "946dae03005985c8"}]}}),
        (read_partitions, PARTITIONS | {"0x31a": PARTITION | {"guids": PARTITION["guids"] * 2}}),
        (read_partitions, PARTITIONS | {"31a": PARTITION}),
        (read_alarms, {}),
        (read_alarms, [OLD_ALARM]),
    ],
)
def test_every_other_shape_is_refused(read: Callable[[Any], object], document: object) -> None:
    with pytest.raises(UfmError) as caught:
        read(copy.deepcopy(document))
    assert caught.value.code == "ufm-answer"


# the fabric ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Site:
    return site_of()


@pytest.fixture
def ufm(site: Site) -> Ufm:
    return simulated(site)


def cabling(site: Site, ufm: Ufm) -> list[str]:
    fabric = fabric_of(read_ports(ufm.fabric.ports()), read_links(ufm.fabric.links()))
    return [f"{found.code} {found.where}" for found in check_cabling(planned_cables(lay(site)), fabric)]


def test_the_planned_fabric_has_no_finding(site: Site, ufm: Ufm) -> None:
    assert cabling(site, ufm) == []


def test_the_judge_of_cables_gets_what_ufm_sees(site: Site, ufm: Ufm) -> None:
    hcas = ufm.fabric.state["hcas"]
    ufm.fabric.pulled.add(hcas[2]["guid"])
    ufm.fabric.speeds[hcas[9]["guid"]] = "EDR"
    found = cabling(site, ufm)
    assert [item.split()[:3] for item in found] == [
        ["cable-speed", "node02", "mlx5_3"],
        ["cable-missing", "node01", "mlx5_4"],
    ]
    hcas[16]["port"], hcas[17]["port"] = hcas[17]["port"], hcas[16]["port"]
    assert any(item.startswith("cable-swapped node03 mlx5_0") for item in cabling(site, ufm))


def test_names_in_upper_case_are_those_of_the_site(site: Site, ufm: Ufm) -> None:
    ports = ufm.fabric.ports()
    for port in ports:
        host, blank, device = port["node_description"].partition(" ")
        port |= {"system_name": port["system_name"].upper(), "node_description": f"{host.upper()}{blank}{device}"}
    fabric = fabric_of(read_ports(ports), read_links(ufm.fabric.links()))
    assert {node.description for node in fabric.nodes.values() if node.type == "switch"} == {"LEAF01"}
    assert check_cabling(planned_cables(lay(site)), fabric) == []


def test_the_aggregation_node_inside_a_switch_is_no_cable(site: Site, ufm: Ufm) -> None:
    """Whether UFM lists its port or not: port 41 of a QM8700 leads to it."""
    ports, links = ufm.fabric.ports(), ufm.fabric.links()
    inside = next(port for port in ports if port["name"].endswith("_40"))
    inside |= {"physical_state": "Link Up", "logical_state": "Active", "active_speed": "HDR", "active_width": "4x"}
    inside["peer"] = "b83fd20300ffffff_1"
    links.append({"name": f"{inside['name']}:{inside['peer']}"})
    fabric = fabric_of(read_ports(ports), read_links(links))
    assert check_cabling(planned_cables(lay(site)), fabric) == []


@pytest.mark.parametrize("damage", ["no link", "no ports", "other peer", "twice"])
def test_answers_that_contradict_each_other_are_refused(ufm: Ufm, damage: str) -> None:
    ports, links = ufm.fabric.ports(), ufm.fabric.links()
    if damage == "no link":
        links.pop()
    elif damage == "no ports":
        ports = ports[:5]
    elif damage == "other peer":
        ports[-1]["peer"] = ports[-2]["peer"]
    else:
        links.append({"name": f"{links[0]['source_port_name']}:{links[1]['destination_port_name']}"})
    with pytest.raises(UfmError):
        fabric_of(read_ports(ports), read_links(links))


def test_critical_alarms_of_a_cable_are_those_of_its_adapter(ufm: Ufm) -> None:
    ports, links = read_ports(ufm.fabric.ports()), read_links(ufm.fabric.links())
    near, far = links[0]
    alarms = [Alarm(name, "Critical", "Link HW Error", "x") for name in (near, far)]
    alarms += [Alarm(near, "Warning", "x", "x"), Alarm(far.partition("_")[0], "Critical", "fan", "x")]
    assert alarms_by_port(alarms, ports, links) == {ports[near].guid: alarms[:2]}


@pytest.mark.parametrize("resource", ["resources/ports", "resources/links", "resources/pkeys", "app/alarms"])
def test_a_reading_that_is_not_whole_tells_why(ufm: Ufm, tmp_path: Path, resource: str) -> None:
    ufm.cut = resource
    with up(ufm, tmp_path) as own:
        found = read_ufm(own)
    assert (found.fabric, found.trouble.startswith(f"UFM {resource} - Expected: a whole answer")) == (None, True)


@pytest.mark.parametrize("torn", [1, 2])
def test_a_link_that_changed_between_two_answers_is_read_once_more(
    ufm: Ufm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    left = iter([True] * torn)
    monkeypatch.setattr(reading, "read_links", lambda answer: read_links(answer)[: -1 if next(left, False) else None])
    with up(ufm, tmp_path) as own:
        found = read_ufm(own)
    assert (found.fabric is not None, found.trouble == "") == ((torn == 1), (torn == 1))
