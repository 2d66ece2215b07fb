"""Cables as LLDP shows them at both ends, compared with the plan: one finding for each cause, pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.switches import switch_config
from rackready.drivers.cabling_check.types import PlannedCable, PlannedEnd
from rackready.drivers.remote import Answer
from rackready.drivers.switch.base import Neighbour, SwitchDriver, SwitchError
from rackready.drivers.switch.cabling import Cabling, _definite, judged
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.lldp_read import told_by
from rackready.drivers.switch.lldp_seen import Told
from rackready.drivers.switch.planned import planned_cables
from rackready.model.outcome import Outcome
from rackready.model.phase import FINDINGS
from tests.unit.fabric.fake_nvue import FakeNvue

ROOT = Path(__file__).resolve().parents[3]
NODES = ("node01", "node02")
LEAFS = ("leaf01", "leaf02")


@pytest.fixture(scope="module")
def cables() -> list[PlannedCable]:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)
    return planned_cables(site, [switch_config(site, name) for name in LEAFS])


class Hall:
    """Who hears whom: a cable joins two ports, and both ends hear each other."""

    def __init__(self, cables: Iterable[PlannedCable], nodes: Iterable[str] = NODES) -> None:
        self.links = {
            (cable.a.device, cable.a.port): (cable.b.device, cable.b.port)
            for cable in cables
            if cable.a.device in nodes
        }
        self.heard: dict[str, dict[str, list[Neighbour]]] = {}
        self.nodes = tuple(nodes)
        self.rates: dict[tuple[str, str], int] = {}
        self.deaf: set[tuple[str, str]] = set()
        self.more: list[tuple[str, str, Neighbour]] = []
        self.trouble: dict[str, str] = {}

    def swap(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        self.links[one], self.links[other] = self.links[other], self.links[one]

    def told(self) -> list[Told]:
        ports: dict[str, dict[str, list[Neighbour]]] = {name: {} for name in (*LEAFS, *self.nodes)}
        for end, far in self.links.items():
            for here, there in ((end, far), (far, end)):
                if here not in self.deaf and here[0] in ports:
                    ports[here[0]].setdefault(here[1], []).append(hears(*there))
        for device, port, neighbour in self.more:
            ports[device].setdefault(port, []).append(neighbour)
        return [
            Told(name, trouble=self.trouble[name])
            if name in self.trouble
            else Told(
                name,
                heard,
                (f"chassis-{name}", f"{name}.dc.example"),
                {f"mac-{name}-{port}": port for port in heard if name in self.nodes},
                rates={port: self.rates.get((name, port), 400) for port in heard if name in self.nodes},
            )
            for name, heard in ports.items()
        ]


def hears(device: str, port: str) -> Neighbour:
    return Neighbour(f"{device}.dc.example", f"chassis-{device}", port, "ifname")


@pytest.fixture
def hall(cables: list[PlannedCable]) -> Hall:
    return Hall(cables)


def codes(found: Cabling) -> dict[str, list[str]]:
    return {node: [one.code for one in items] for node, items in found.findings.items()}


def words(found: Cabling, node: str = "node01") -> list[str]:
    return [str(one) for one in found.findings[node]]


def test_cables_as_planned_have_no_finding(cables: list[PlannedCable], hall: Hall) -> None:
    found = judged(cables, hall.told(), NODES)
    assert (found.findings, found.notes, found.one_end, found.silent) == ({}, {}, {}, False)
    assert (found.result("node01").outcome, found.result("node01").data) == (Outcome.PASS, {})


def test_two_crossed_cables_are_one_finding_with_the_move(cables: list[PlannedCable], hall: Hall) -> None:
    hall.swap(("node01", "enp24s0np0"), ("node01", "enp64s0np0"))
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node01": ["cable-swapped"]}
    (said,) = words(found)
    assert said.startswith("node01 enp24s0np0 (rack ")
    assert "2 cables are crossed, rails 1, 2" in said
    assert "Swap the cables at leaf01 swp1 (" in said
    assert said.endswith("and swp2 (rail 2).")
    result = found.result("node01")
    assert (result.outcome, [one["code"] for one in result.data[FINDINGS]]) == (Outcome.FAIL, ["cable-swapped"])


def test_a_swap_between_two_nodes_holds_both_back_and_no_third(cables: list[PlannedCable]) -> None:
    hall = Hall(cables, ("node01", "node02", "node03"))
    hall.swap(("node01", "enp24s0np0"), ("node02", "enp24s0np0"))
    found = judged(cables, hall.told(), ("node01", "node02", "node03"))
    assert codes(found) == {"node01": ["cable-swapped"], "node02": ["cable-swapped"]}
    assert "Swap the cables at leaf01 swp1" in words(found)[0]


def test_a_swap_with_a_node_that_is_not_checked_is_found(cables: list[PlannedCable], hall: Hall) -> None:
    hall.swap(("node01", "enp24s0np0"), ("node02", "enp24s0np0"))
    assert codes(judged(cables, hall.told(), ("node01",))) == {"node01": ["cable-swapped"]}


def test_nodes_that_have_not_booted_are_not_judged(cables: list[PlannedCable]) -> None:
    found = judged(cables, Hall(cables, ("node01",)).told(), ("node01",))
    assert (found.findings, found.silent) == ({}, False)


@pytest.mark.parametrize(
    ("far", "code"),
    [
        (("leaf01", "swp60"), "cable-wrong-port"),
        (("leaf02", "swp13"), "cable-wrong-rail"),
        (("leaf01", "swp14"), "cable-wrong-rail"),
        (("leaf01", "swp13"), "cable-wrong-port"),
    ],
)
def test_a_cable_that_ends_elsewhere_is_one_finding(
    cables: list[PlannedCable], hall: Hall, far: tuple[str, str], code: str
) -> None:
    hall.links["node01", "enp24s0np0"] = far
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node01": [code]}
    assert f"Move the cable from {far[0]} {far[1]}" in words(found)[0]
    assert "to leaf01 swp1" in words(found)[0]


def test_silence_at_both_ends_is_a_missing_cable_and_may_end(cables: list[PlannedCable], hall: Hall) -> None:
    del hall.links["node01", "enp24s0np0"]
    found = judged(cables, hall.told(), NODES)
    assert (codes(found), found.silent) == ({"node01": ["cable-missing"]}, True)
    assert _definite(found).findings == {}, "a dry run does not judge silence"


def test_silence_at_one_end_is_the_agent_and_holds_nobody_back(cables: list[PlannedCable], hall: Hall) -> None:
    hall.deaf = {("leaf01", "swp1")}
    found = judged(cables, hall.told(), NODES)
    assert (found.findings, found.silent, set(found.notes)) == ({}, True, {"node01"})
    assert "only one end reports the link" in found.notes["node01"][0]


def test_two_neighbours_on_a_port_are_an_error_of_that_cable(cables: list[PlannedCable], hall: Hall) -> None:
    hall.more = [("leaf01", "swp1", Neighbour("bench-laptop", "a6:a8:a3:a0:98:6c", "a6:a8:a3:a0:98:6c", "mac"))]
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node01": ["cable-ambiguous"]}
    assert found.result("node01").outcome is Outcome.ERROR


def test_a_neighbour_that_is_gone_does_not_hide_where_the_cable_is_now(cables: list[PlannedCable], hall: Hall) -> None:
    hall.swap(("node01", "enp24s0np0"), ("node01", "enp64s0np0"))
    hall.more = [
        ("node01", "enp24s0np0", hears("leaf01", "swp1")),
        ("node01", "enp64s0np0", hears("leaf01", "swp2")),
    ]
    found = judged(cables, hall.told(), NODES)
    assert (codes(found), found.silent) == ({"node01": ["cable-swapped"]}, False)
    hall.more += [("leaf01", "swp1", hears("node01", "enp24s0np0"))]
    assert judged(cables, hall.told(), NODES).silent, "both ends remember the old cable: wait"


def test_the_firmware_of_a_nic_beside_the_nodes_agent_is_no_second_neighbour(
    cables: list[PlannedCable], hall: Hall
) -> None:
    hall.more = [("leaf01", "swp1", Neighbour("", "mac-node01-enp24s0np0", "mac-node01-enp24s0np0", "mac"))]
    assert judged(cables, hall.told(), NODES).findings == {}


def test_a_device_that_the_site_does_not_have_is_named(cables: list[PlannedCable], hall: Hall) -> None:
    del hall.links["node01", "enp24s0np0"]
    hall.more = [("leaf01", "swp1", Neighbour("bench-laptop", "a6:a8:a3:a0:98:6c", "eth9", "ifname", "bench"))]
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node01": ["cable-foreign-device"]}
    assert words(found)[0].startswith("bench-laptop (chassis a6:a8:a3:a0:98:6c, port bench)")


def test_a_slow_link_is_one_finding(cables: list[PlannedCable], hall: Hall) -> None:
    hall.rates = {("node02", "enp64s0np0"): 200}
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node02": ["cable-speed"]}
    assert "Expected: 400 Gb/s Actual: 200 Gb/s" in words(found, "node02")[0]


def test_what_hears_on_ports_outside_the_plan_is_left_out(cables: list[PlannedCable], hall: Hall) -> None:
    hall.more = [("leaf01", "eth0", Neighbour("oob-switch", "chassis-oob", "swp7", "ifname"))]
    assert judged(cables, hall.told(), NODES).findings == {}


def renamed(one: Told, change: Callable[[Neighbour], Neighbour]) -> Told:
    """What a device tells, with its neighbours' names changed."""
    return replace(one, ports={port: [change(item) for item in items] for port, items in one.ports.items()})


def test_names_that_two_switches_share_are_told_apart_by_chassis(cables: list[PlannedCable], hall: Hall) -> None:
    def default_name(item: Neighbour) -> Neighbour:
        return replace(item, system="cumulus") if "leaf" in item.system else item

    told = [replace(one, known_as=("cumulus", f"chassis-{one.device}")) for one in hall.told()]
    assert judged(cables, [renamed(one, default_name) for one in told], NODES).findings == {}


def test_aliases_of_ports_are_those_of_the_switch(cables: list[PlannedCable], hall: Hall) -> None:
    def alias(item: Neighbour) -> Neighbour:
        return replace(item, port=f"etp{item.port}") if "leaf" in item.system else item

    told = [
        replace(renamed(one, alias), aliases={f"etp{port}": port for port in one.ports} if one.device in LEAFS else {})
        for one in hall.told()
    ]
    assert judged(cables, told, NODES).findings == {}
    assert judged(cables, [replace(one, aliases={}) for one in told], NODES).findings != {}


def test_a_node_that_was_not_read_is_an_error_and_no_other_is(cables: list[PlannedCable], hall: Hall) -> None:
    hall.trouble = {"node01": "lldpcli: not installed"}
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node01": ["lldp-unread"]}
    assert found.result("node01").outcome is Outcome.ERROR


def test_a_switch_that_was_not_read_leaves_the_nodes_end(cables: list[PlannedCable], hall: Hall) -> None:
    hall.trouble = {"leaf01": "its driver does not read LLDP"}
    found = judged(cables, hall.told(), NODES)
    assert found.findings == {}
    assert found.notes["node01"] == ["leaf01: its LLDP was not read: its driver does not read LLDP"]
    assert found.one_end["node01"] == ["4 cables to leaf01: read at node01 only"]
    assert found.result("node01").data == {"read_at_one_end": ["4 cables to leaf01: read at node01 only"]}
    hall.swap(("node01", "enp24s0np0"), ("node01", "enp64s0np0"))
    assert codes(judged(cables, hall.told(), NODES)) == {"node01": ["cable-swapped"]}


def test_nothing_at_all_is_an_error_of_every_node(cables: list[PlannedCable], hall: Hall) -> None:
    hall.links = {}
    found = judged(cables, hall.told(), NODES)
    assert codes(found) == {"node01": ["cable-nothing-seen"], "node02": ["cable-nothing-seen"]}
    assert found.result("node02").outcome is Outcome.ERROR


def test_a_nodes_document_becomes_what_it_told() -> None:
    item = {"protocol": "LLDP", "system": "leaf01", "chassis": "c", "port": "swp1", "port_type": "ifname"}
    document = {
        "format": "rackready/lldp/v1",
        "complete": True,
        "problem": "",
        "known_as": ["node01"],
        "neighbours": {"p1": [{**item, "description": "swp1"}]},
        "interfaces": [
            {"netdev": "p1", "there": True, "carrier": True, "rate_gbps": 400, "address": "b8:3f:d2:00:01:01"}
        ],
    }
    told = told_by("node01", Answer(0, json.dumps(document), "", 1.0))
    assert told.ports == {"p1": [Neighbour("leaf01", "c", "swp1", "ifname", "swp1")]}
    assert (told.addresses, told.rates, told.trouble) == ({"b8:3f:d2:00:01:01": "p1"}, {"p1": 400}, "")


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (Answer(None, "", "", 1.0, failure="node01: SSH refused"), "node01: SSH refused"),
        (Answer(None, "", "", 1.0, timed_out=True), "no answer within 120 s"),
        (Answer(2, '{"format": "rackready/lldp/v1"', "cut", 1.0), "cut"),
        (Answer(1, '{"format": "rackready/lldp/v1", "complete": true, "problem": "no lldpd"}', "", 1.0), "no lldpd"),
    ],
)
def test_a_node_that_does_not_answer_whole_is_not_read(answer: Answer, trouble: str) -> None:
    assert told_by("node01", answer).trouble == trouble


TRUNKS = [
    PlannedCable(PlannedEnd("leaf01", "swp33"), PlannedEnd("spine01", "swp1")),
    PlannedCable(PlannedEnd("leaf02", "swp33"), PlannedEnd("spine01", "swp2")),
    PlannedCable(PlannedEnd("core01", "swp1"), PlannedEnd("spine01", "swp9")),
]


@pytest.mark.parametrize(
    ("moved", "nodes"),
    [
        ({}, set()),
        ({("leaf01", "swp33"): ("spine01", "swp2"), ("leaf02", "swp33"): ("spine01", "swp1")}, {"node01", "node02"}),
        ({("core01", "swp1"): ("spine01", "swp10")}, {"node01", "node02"}),
    ],
)
def test_cables_between_switches_concern_the_nodes_behind_them(
    cables: list[PlannedCable], hall: Hall, moved: dict[tuple[str, str], tuple[str, str]], nodes: set[str]
) -> None:
    links = {tuple(cable.a.end): tuple(cable.b.end) for cable in TRUNKS} | moved
    ports: dict[str, dict[str, list[Neighbour]]] = {}
    for end, far in links.items():
        for (device, port), there in ((end, far), (far, end)):
            ports.setdefault(device, {})[port] = [hears(*there)]
    told = [replace(one, ports={**one.ports, **ports.pop(one.device, {})}) for one in hall.told()]
    told += [Told(device, heard) for device, heard in ports.items()]
    assert set(judged([*cables, *TRUNKS], told, NODES).findings) == nodes


CAPTURED = ROOT / "tests/fixtures/captured/lldpd"


def text(name: str) -> str:
    return (CAPTURED / name).read_text(encoding="utf-8")


def test_a_switch_with_lldpd_tells_its_neighbours_and_its_own_ids() -> None:
    fake = FakeNvue(root={"neighbors": (0, text("switch_mac_as_port.json")), "chassis": (0, text("chassis.json"))})
    driver = CumulusNvue("leaf01", fake)
    assert [(port, item.port_type) for port, items in driver.neighbours().items() for item in items] == [
        ("swp1", "mac")
    ]
    assert driver.known_as() == {"c2:d4:ce:76:03:65", "node01"}
    assert fake.sent == ["lldpcli -f json0 show neighbors details", "lldpcli -f json0 show chassis summary"]


@pytest.mark.parametrize(
    ("answer", "actual"),
    [
        ((1, "sudo: a password is required\n"), "exit 1, sudo: a password is required"),
        ((0, "LLDP neighbors:\n"), "LLDP neighbors:"),
    ],
)
def test_a_switch_that_does_not_tell_is_an_error_and_never_an_empty_list(answer: tuple[int, str], actual: str) -> None:
    with pytest.raises(SwitchError) as refused:
        CumulusNvue("leaf01", FakeNvue(root={"neighbors": answer})).neighbours()
    assert f"Actual: {actual}" in str(refused.value)


class Deaf(CumulusNvue):
    """A driver of a plug-in that does not read LLDP."""

    neighbours = SwitchDriver.neighbours  # type: ignore[assignment]
    known_as = SwitchDriver.known_as


def test_a_driver_that_does_not_read_lldp_says_so() -> None:
    driver = Deaf("leaf01", FakeNvue())
    assert (driver.neighbours(), driver.known_as(), driver.known_ports()) == (None, frozenset(), {})
