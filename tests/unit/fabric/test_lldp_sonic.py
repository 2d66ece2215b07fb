"""Neighbours of a SONiC switch: lldpcli in its container, and ports by their aliases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackready.drivers.cabling_check.types import PlannedCable, PlannedEnd
from rackready.drivers.switch.base import Neighbour, SwitchError
from rackready.drivers.switch.cabling import Cabling, judged
from rackready.drivers.switch.lldp_seen import Told
from rackready.drivers.switch.lldpd import neighbour
from rackready.drivers.switch.sonic import Sonic
from rackready.ondevice import lldp
from tests.unit.fabric.sonic_switch import SonicSwitch

CAPTURED = Path(__file__).resolve().parents[2] / "fixtures/captured/lldpd"
CABLES = [
    PlannedCable(PlannedEnd("node01", "peer0", rail=1), PlannedEnd("leaf01", "Ethernet0")),
    PlannedCable(PlannedEnd("node02", "peer0", rail=1), PlannedEnd("leaf01", "Ethernet8")),
]


def text(name: str) -> str:
    return (CAPTURED / f"sonic_{name}.json").read_text(encoding="utf-8")


@pytest.fixture
def switch(tmp_path: Path) -> SonicSwitch:
    made = SonicSwitch(tmp_path / "switch", ports=2)
    made.told = {"neighbors": (0, text("switch")), "chassis": (0, text("chassis"))}
    return made


@pytest.fixture
def driver(switch: SonicSwitch) -> Sonic:
    return Sonic("leaf01", switch)


def test_it_tells_its_neighbours_its_ids_and_its_aliases(driver: Sonic, switch: SonicSwitch) -> None:
    assert driver.neighbours() == {"Ethernet0": [Neighbour("node01", "6e:da:87:b7:c4:43", "peer0", "ifname", "peer0")]}
    assert driver.known_as() == {"4a:19:0b:f8:64:ba", "leaf01"}
    assert switch.sent == [
        "docker exec lldp lldpcli -f json0 show neighbors details",
        "docker exec lldp lldpcli -f json0 show chassis summary",
    ]
    assert driver.known_ports() == {"etp1": "Ethernet0", "etp2": "Ethernet8"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((1, "Error response from daemon: container lldp is not running\n"), "container lldp is not running"),
        ((1, "sudo: a password is required\n"), "a password is required"),
        ((0, ""), "no output"),
        ((0, text("switch")[:200]), '{ "lldp": ['),
        ((0, text("chassis")), "a document without `lldp`"),
    ],
)
def test_what_is_not_its_whole_answer_is_an_error(
    driver: Sonic, switch: SonicSwitch, answer: tuple[int, str], said: str
) -> None:
    switch.told["neighbors"] = answer
    with pytest.raises(SwitchError) as refused:
        driver.neighbours()
    assert said in str(refused.value)
    assert "`sudo docker exec lldp lldpcli -f json0 show neighbors details`" in str(refused.value)


def test_an_alias_of_two_ports_is_refused(driver: Sonic, switch: SonicSwitch) -> None:
    switch.put({"PORT": {"Ethernet8": {"alias": "etp1", "lanes": "8", "speed": "800000"}}})
    with pytest.raises(SwitchError, match="alias etp1 of Ethernet8 is that of Ethernet0, too"):
        driver.known_ports()


def test_a_port_without_an_alias_has_its_own_name(driver: Sonic, switch: SonicSwitch) -> None:
    switch.put({"PORT": {"Ethernet0": {"lanes": "0", "speed": "800000"}}})
    assert driver.known_ports() == {"etp2": "Ethernet8"}


def told(driver: Sonic, heard: str = "etp1") -> list[Told]:
    ports = {
        port: [replace(neighbour(item), port=heard) for item in items]
        for port, items in lldp.parse_neighbours(text("node")).items()
    }
    return [
        Told("leaf01", driver.neighbours(), driver.known_as(), aliases=driver.known_ports()),
        Told("node01", ports, ("node01", "6e:da:87:b7:c4:43")),
    ]


def codes(found: Cabling) -> dict[str, list[str]]:
    return {node: [one.code for one in items] for node, items in found.findings.items()}


def test_both_ends_of_a_right_cable_agree_by_the_alias(driver: Sonic) -> None:
    found = judged(CABLES, told(driver), ["node01"])
    assert (found.findings, found.notes) == ({}, {})


def test_a_port_that_just_came_up_is_heard_by_its_name(driver: Sonic) -> None:
    assert judged(CABLES, told(driver, "Ethernet0"), ["node01"]).findings == {}


def test_a_cable_at_the_port_of_another_node_is_named(driver: Sonic, switch: SonicSwitch) -> None:
    switch.told["neighbors"] = (0, text("switch").replace("Ethernet0", "Ethernet8"))
    found = judged(CABLES, told(driver, "etp2"), ["node01"])
    assert codes(found) == {"node01": ["cable-wrong-port"]}
    assert "Move the cable from leaf01 Ethernet8 to leaf01 Ethernet0." in str(found.findings["node01"][0])
