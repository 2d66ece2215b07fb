"""Neighbours of switches with command lines: their JSON, their own names, and what is no answer of theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackready.design.switches import switch_config
from rackready.drivers.cabling_check.types import PlannedCable
from rackready.drivers.switch.arista_eos import AristaEos
from rackready.drivers.switch.base import Neighbour, SwitchError
from rackready.drivers.switch.cabling import judged
from rackready.drivers.switch.cisco_nxos import CiscoNxos
from rackready.drivers.switch.lldp_json import colons, long_name, of_eos, of_nxos, short_name
from rackready.drivers.switch.lldp_seen import Told
from rackready.drivers.switch.planned import planned_cables
from rackready.format_error import FormatError
from tests.lines import lldp
from tests.lines.eos import EosLine
from tests.lines.lldp import Heard
from tests.lines.nxos import NxosLine
from tests.lines.session import LineSession
from tests.lines.sites import rack

LEAFS = ("leaf01", "leaf02")
NODE = Heard("node01", "b8:3f:d2:00:01:01", "enp24s0np0", description="enp24s0np0")
FIRMWARE = Heard("", "b8:3f:d2:00:01:02", "b8:3f:d2:00:01:02", "mac")
HEARD = {"Ethernet1/1": [NODE, FIRMWARE], "Ethernet2/1": [NODE]}
COMMAND = "`show lldp neighbors detail | json`"


def eos(**options: Any) -> tuple[AristaEos, EosLine]:
    line = EosLine(**options)
    return AristaEos("leaf01", LineSession(line)), line


def nxos(**options: Any) -> tuple[CiscoNxos, NxosLine]:
    line = NxosLine(**options)
    line.running.tree["feature lldp"] = {}
    return CiscoNxos("leaf01", LineSession(line)), line


EXPECTED = [
    Neighbour("node01", "b8:3f:d2:00:01:01", "enp24s0np0", "ifname", "enp24s0np0"),
    Neighbour("", "b8:3f:d2:00:01:02", "b8:3f:d2:00:01:02", "mac", "b8:3f:d2:00:01:02"),
]


def test_eos_tells_its_neighbours_and_its_own_names() -> None:
    driver, _ = eos(heard=HEARD)
    assert driver.neighbours() == {"Ethernet1/1": EXPECTED, "Ethernet2/1": EXPECTED[:1]}
    assert driver.known_as() == {"leaf01", "leaf01.dc.example", "00:1c:73:00:01:01"}
    assert driver.known_ports() == {}


def test_nxos_tells_its_neighbours_and_its_own_names() -> None:
    driver, _ = nxos(heard={"Ethernet1/1": [NODE, FIRMWARE], "Ethernet1/2": [NODE]})
    firmware = Neighbour("", "b8:3f:d2:00:01:02", "b8:3f:d2:00:01:02", "mac")
    assert driver.neighbours() == {"Ethernet1/1": [EXPECTED[0], firmware], "Ethernet1/2": EXPECTED[:1]}
    assert {"leaf01", "leaf01.dc.example", "50:87:89:a1:00:01", "50:87:89:a1:00:40"} <= driver.known_as()
    assert driver.known_ports()["Eth1/64"] == "Ethernet1/64"


def test_one_neighbour_of_nxos_comes_without_a_list() -> None:
    driver, _ = nxos(heard={"Ethernet1/1": [NODE]})
    assert driver.neighbours() == {"Ethernet1/1": EXPECTED[:1]}


def test_a_switch_that_hears_nobody_has_no_neighbours() -> None:
    assert eos()[0].neighbours() == {}
    assert nxos()[0].neighbours() == {}


def test_lldp_that_is_off_is_an_error_and_never_silence() -> None:
    driver, line = eos(heard=HEARD)
    line.running.tree["no lldp run"] = {}
    with pytest.raises(SwitchError) as off:
        driver.neighbours()
    assert str(off.value) == (
        "leaf01: LLDP - Expected: `lldp run` Actual: `no lldp run`. "
        "Type `lldp run` on the switch and save it; it is not rackready's to set."
    )
    other, nexus = nxos(heard={"Ethernet1/1": [NODE]})
    del nexus.running.tree["feature lldp"]
    with pytest.raises(SwitchError) as missing:
        other.neighbours()
    assert "LLDP - Expected: `feature lldp` Actual: not configured." in str(missing.value)


WHOLE = lldp.nxos({"Ethernet1/1": [NODE], "Ethernet1/2": [NODE]})
NOT_EOS = [
    ("", "no output"),
    (json.dumps(lldp.eos((), HEARD))[:300], "lldpNeighbors"),
    (WHOLE, "no object `lldpNeighbors`; keys: TABLE_nbor_detail, neigh_count, neigh_hdr"),
    ('{"lldpNeighbors": [{"port": "Ethernet1/1", "neighborDevice": "node01"}]}', "no object `lldpNeighbors`"),
    ('{"lldpNeighbors": {"Ethernet1/1": {"neighbors": []}}}', "Ethernet1/1: no list `lldpNeighborInfo`"),
    ('{"lldpNeighbors": {"Ethernet1/1": {"lldpNeighborInfo": [{"chassisId": "a"}]}}}', "no object `neighborInterfa"),
    ("{}", "no object `lldpNeighbors`; keys: none"),
    ("% Invalid input\n", "% Invalid input"),
]
NOT_NXOS = [
    ("", "no output"),
    (WHOLE[:300], "TABLE_nbor_detail"),
    (json.dumps(lldp.eos((), HEARD)), "no object `TABLE_nbor_detail`; keys: lldpNeighbors"),
    (WHOLE.replace('"neigh_count": "2"', '"neigh_count": "3"'), "2 neighbours of 3"),
    ('{"TABLE_nbor_detail": {"ROW_nbor_detail": []}}', "no rows `ROW_nbor_detail`"),
    ('{"TABLE_nbor_detail": {"ROW_nbor_detail": [{"l_port_id": "Eth1/1"}]}}', "a neighbour without `port_type`"),
    ("{}", "no object `TABLE_nbor_detail`; keys: none"),
    ("ERROR: Timed out\n", "ERROR: Timed out"),
]


class Says(LineSession):
    """A login on which one command prints something else."""

    def __init__(self, line: EosLine | NxosLine, text: str) -> None:
        super().__init__(line)
        self._own, self._text = line.type, text
        line.type = self._type  # type: ignore[method-assign]

    def _type(self, command: str) -> str:
        return self._text if command == "show lldp neighbors detail | json" else self._own(command)


@pytest.mark.parametrize(("text", "said"), NOT_EOS)
def test_what_is_no_whole_answer_of_eos_is_refused(text: str, said: str) -> None:
    with pytest.raises(SwitchError) as refused:
        AristaEos("leaf01", Says(EosLine(), text)).neighbours()
    assert COMMAND in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize(("text", "said"), NOT_NXOS)
def test_what_is_no_whole_answer_of_nxos_is_refused(text: str, said: str) -> None:
    line = NxosLine()
    line.running.tree["feature lldp"] = {}
    with pytest.raises(SwitchError) as refused:
        CiscoNxos("leaf01", Says(line, text)).neighbours()
    assert COMMAND in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("driver", [eos()[0], nxos()[0]])
def test_a_switch_without_a_name_is_refused(driver: AristaEos | CiscoNxos, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = driver.ask_json
    monkeypatch.setattr(driver, "ask_json", lambda one: {"name": "x"} if one == "show hostname" else ask(one))
    with pytest.raises(SwitchError, match="no `hostname`; keys: name"):
        driver.known_as()


def test_names_and_addresses_have_one_form() -> None:
    assert colons("00c.297b.d2a8") == "00:0c:29:7b:d2:a8"
    assert colons("DEAD.beef.7fef") == "de:ad:be:ef:7f:ef"
    assert (colons("etp1"), colons("10.0.0.1")) == ("etp1", "10.0.0.1")
    assert (long_name("Eth1/1/2"), long_name("mgmt0"), short_name("Ethernet1/1")) == (
        "Ethernet1/1/2",
        "mgmt0",
        "Eth1/1",
    )


def test_a_neighbour_that_is_no_object_is_refused() -> None:
    with pytest.raises(FormatError, match="no object `Ethernet1/1`"):
        of_eos({"lldpNeighbors": {"Ethernet1/1": {"lldpNeighborInfo": ["node01"]}}})
    with pytest.raises(FormatError, match="no object `ROW_nbor_detail`"):
        of_nxos({"TABLE_nbor_detail": {"ROW_nbor_detail": ["node01"]}})


def halls(os: str, swap: tuple[str, str] | None = None) -> tuple[list[PlannedCable], list[Told]]:
    """The simulated rack on leafs of a system: both ends of node01's cables, read through the drivers."""
    site = rack(os)
    cables = planned_cables(site, [switch_config(site, name) for name in LEAFS])
    joins = {cable.a.end: cable.b.end for cable in cables if cable.a.device == "node01"}
    if swap:
        one, other = [end for end in joins if end.port in swap]
        joins[one], joins[other] = joins[other], joins[one]
    told = []
    for number, name in enumerate(LEAFS):
        heard = {far.port: [Heard("node01", NODE.chassis, near.port)] for near, far in joins.items() if far[0] == name}
        driver: AristaEos | CiscoNxos
        if os == "arista_eos":
            driver, _ = eos(name=name, mac=f"00:1c:73:00:01:{number:02}", heard=heard)
        else:
            driver, _ = nxos(name=name, heard=heard)
        told.append(Told(name, driver.neighbours(), driver.known_as(), aliases=driver.known_ports()))
    sent = short_name if os == "cisco_nxos" else str
    ports = {near.port: [Neighbour(far.device, f"chassis {far}", sent(far.port), "")] for near, far in joins.items()}
    told.append(Told("node01", ports, ("node01", NODE.chassis)))
    return cables, told


@pytest.mark.parametrize("os", ["arista_eos", "cisco_nxos"])
def test_a_rack_as_planned_has_no_finding_and_crossed_cables_have_one(os: str) -> None:
    cables, told = halls(os)
    found = judged(cables, told, ["node01"])
    assert (found.findings, found.notes) == ({}, {})
    first = [cable.a.port for cable in cables if cable.a.device == "node01"][:2]
    crossed = judged(*halls(os, (first[0], first[1])), ["node01"])
    assert [one.code for one in crossed.findings["node01"]] == ["cable-swapped"]
