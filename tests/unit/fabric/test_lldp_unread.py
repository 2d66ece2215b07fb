"""A switch that cannot be read by LLDP: what its nodes hear is a measurement, and what they cannot tell is an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.design.switches import switch_config
from rackready.drivers.cabling_check.types import PlannedCable, PlannedEnd
from rackready.drivers.switch import lldp_read
from rackready.drivers.switch.base import Neighbour, SwitchDriver, SwitchError
from rackready.drivers.switch.cabling import Cabling, judged
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.lldp_read import NOT_READ, Readers, told_by_switch
from rackready.drivers.switch.lldp_seen import Told
from rackready.drivers.switch.planned import planned_cables
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.drivers.switch.sonic import Sonic
from rackready.model.outcome import Outcome
from rackready.paths import EnvPaths
from tests.unit.fabric.fake_nvue import FakeNvue
from tests.unit.fabric.sonic_switch import SonicSwitch

ROOT = Path(__file__).resolve().parents[3]
WHY = "connection lost"


@pytest.fixture(scope="module")
def cables() -> list[PlannedCable]:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim-sonic/site.yml", root=ROOT)
    return planned_cables(site, [switch_config(site, name) for name in ("leaf01", "leaf02")])


def alias(port: str) -> str:
    return f"etp{int(port.removeprefix('Ethernet')) // 8 + 1}"


def hall(cables: list[PlannedCable], lost: Told, swap: tuple[int, int] | None = None) -> list[Told]:
    """node01 and leaf02 were read; ``lost`` is leaf01. ``swap``: two cables of node01 that are crossed."""
    own = [cable for cable in cables if cable.a.device == "node01"]
    far = [cable.b.end for cable in own]
    if swap:
        far[swap[0]], far[swap[1]] = far[swap[1]], far[swap[0]]
    joins = [(cable.a.end, there) for cable, there in zip(own, far, strict=True)]
    node = {near.port: [Neighbour(there.device, "", alias(there.port), "local")] for near, there in joins}
    leaf = {there.port: [Neighbour("node01", "", near.port, "ifname")] for near, there in joins if there[0] == "leaf02"}
    names = {alias(port): port for port in leaf}
    return [Told("node01", node), Told("leaf02", leaf, aliases=names), lost]


def codes(found: Cabling) -> list[str]:
    return sorted({one.code for one in found.findings.get("node01", ())})


ALIASES = {f"etp{number + 1}": f"Ethernet{number * 8}" for number in range(64)}


def test_nodes_that_hear_its_ports_as_planned_are_a_measurement(cables: list[PlannedCable]) -> None:
    found = judged(cables, hall(cables, Told("leaf01", aliases=ALIASES, trouble=WHY)), ["node01"])
    assert (found.findings, found.silent) == ({}, False)
    assert found.notes == {"node01": [f"leaf01: its LLDP was not read: {WHY}"]}
    assert found.one_end == {"node01": ["4 cables to leaf01: read at node01 only"]}
    assert found.result("node01").outcome is Outcome.PASS


def test_crossed_cables_are_found_from_one_end(cables: list[PlannedCable]) -> None:
    found = judged(cables, hall(cables, Told("leaf01", aliases=ALIASES, trouble=WHY), (0, 1)), ["node01"])
    assert codes(found) == ["cable-swapped"]
    assert found.result("node01").outcome is Outcome.FAIL


def test_a_cable_that_nobody_hears_is_never_a_pass(cables: list[PlannedCable]) -> None:
    told = hall(cables, Told("leaf01", aliases=ALIASES, trouble=WHY))
    ports = dict(told[0].ports)
    ports.pop(next(cable.a.port for cable in cables if cable.a.device == "node01"))
    found = judged(cables, [replace(told[0], ports=ports), *told[1:]], ["node01"])
    assert codes(found) == ["lldp-silent"]
    assert found.result("node01").outcome is Outcome.ERROR
    assert found.one_end == {"node01": ["3 cables to leaf01: read at node01 only"]}


def test_a_node_and_its_switch_that_were_not_read_are_an_error(cables: list[PlannedCable]) -> None:
    told = hall(cables, Told("leaf01", aliases=ALIASES, trouble=WHY))
    found = judged(cables, [Told("node01", trouble="no lldpd"), *told[1:]], ["node01"])
    assert codes(found) == ["lldp-unread"]
    assert found.result("node01").outcome is Outcome.ERROR


def silenced(cables: list[PlannedCable], *switches: str) -> list[Told]:
    """node01 hears none of these switches, and they were not read."""
    node, leaf, _ = hall(cables, Told("leaf01"))
    heard = {port: items for port, items in node.ports.items() if items[0].system not in switches}
    read = [] if leaf.device in switches else [leaf]
    return [replace(node, ports=heard), *read, *(Told(name, aliases=ALIASES, trouble=WHY) for name in switches)]


def test_a_switch_that_nobody_reads_or_hears_is_an_error_and_no_missing_cable(cables: list[PlannedCable]) -> None:
    found = judged(cables, silenced(cables, "leaf01"), ["node01"])
    assert codes(found) == ["lldp-silent"]
    assert str(found.findings["node01"][0]) == (
        "leaf01: no neighbour on 4 of its cables - Expected: a neighbour at one end Actual: none at node01 enp24s0np0, "
        "node01 enp64s0np0, node01 enp79s0np0, node01 enp94s0np0; leaf01 was not read. "
        "Make the switch readable, then run `rackready fabric` again: its own view tells which it is."
    )
    assert (found.result("node01").outcome, found.silent, found.one_end) == (Outcome.ERROR, True, {})


def test_every_switch_that_nobody_reads_or_hears_is_one_error(cables: list[PlannedCable]) -> None:
    found = judged(cables, silenced(cables, "leaf01", "leaf02"), ["node01"])
    assert [one.code for one in found.findings["node01"]] == ["lldp-silent"] * 2


def test_an_old_neighbour_of_a_silent_switch_makes_no_other_cable_missing(cables: list[PlannedCable]) -> None:
    node, *rest = silenced(cables, "leaf01")
    stale = Neighbour("leaf01", "", alias("Ethernet96"), "local")
    first = next(cable.a.port for cable in cables if cable.a.device == "node01")
    found = judged(cables, [replace(node, ports={**node.ports, first: [stale]}), *rest], ["node01"])
    assert codes(found) == ["cable-wrong-port", "lldp-silent"]


def test_the_trunks_of_a_silent_switch_are_an_error_of_all_behind_it() -> None:
    trunks = [
        PlannedCable(PlannedEnd("node01", "p1", rail=1), PlannedEnd("leaf01", "swp1")),
        PlannedCable(PlannedEnd("leaf01", "swp33"), PlannedEnd("spine01", "swp1")),
    ]
    told = [
        Told("node01", {"p1": [Neighbour("leaf01", "", "swp1", "ifname")]}),
        Told("leaf01", {"swp1": [Neighbour("node01", "", "p1", "ifname")]}),
        Told("spine01", trouble=WHY),
    ]
    found = judged(trunks, told, ["node01"])
    assert codes(found) == ["lldp-silent"]
    assert "spine01: no neighbour on 1 of its cables" in str(found.findings["node01"][0])
    told[1] = Told("leaf01", trouble=WHY)
    found = judged(trunks, told, ["node01"])
    assert [one.node for one in found.findings["node01"]] == ["leaf01", "spine01"]


def test_a_switch_that_was_read_and_hears_nobody_is_no_error_of_its_agent(cables: list[PlannedCable]) -> None:
    node, leaf, _ = silenced(cables, "leaf01")
    assert codes(judged(cables, [node, leaf, Told("leaf01")], ["node01"])) == ["cable-device-absent"]


def test_aliases_that_were_not_read_are_an_error_and_no_wrong_port(cables: list[PlannedCable]) -> None:
    found = judged(cables, hall(cables, Told("leaf01", port_names=False, trouble=WHY)), ["node01"])
    assert codes(found) == ["lldp-port-unnamed"]
    assert len(found.findings["node01"]) == 4
    first = str(found.findings["node01"][0])
    assert "far end of its cable - Expected: a port of the site Actual: leaf01 etp1 of a switch that was not" in first
    assert "Make leaf01 readable" in first
    assert found.result("node01").outcome is Outcome.ERROR
    assert found.one_end == {}, "heard, and not compared"


def test_aliases_of_every_switch_that_were_not_read_are_one_error_each(cables: list[PlannedCable]) -> None:
    node, *_ = hall(cables, Told("leaf01"))
    lost = [Told(name, port_names=False, trouble=WHY) for name in ("leaf01", "leaf02")]
    found = judged(cables, [node, *lost], ["node01"])
    assert codes(found) == ["lldp-port-unnamed"]
    assert len(found.findings["node01"]) == 8


def test_a_name_of_the_site_needs_no_alias(cables: list[PlannedCable]) -> None:
    told = hall(cables, Told("leaf01", port_names=False, trouble=WHY))
    ports = {
        port: [replace(item, port=ALIASES[item.port]) for item in items if item.system == "leaf01"] or items
        for port, items in told[0].ports.items()
    }
    assert judged(cables, [replace(told[0], ports=ports), *told[1:]], ["node01"]).findings == {}


def test_a_switch_without_other_names_is_judged_as_before(cables: list[PlannedCable]) -> None:
    found = judged(cables, hall(cables, Told("leaf01", trouble=WHY)), ["node01"])
    assert "lldp-port-unnamed" not in codes(found)
    assert found.result("node01").outcome is Outcome.FAIL


def test_trunks_tell_which_switch_was_read() -> None:
    trunks = [
        PlannedCable(PlannedEnd("node01", "p1", rail=1), PlannedEnd("leaf01", "swp1")),
        PlannedCable(PlannedEnd("leaf01", "swp33"), PlannedEnd("spine01", "swp1")),
    ]
    leaf = {"swp1": [Neighbour("node01", "", "p1", "ifname")], "swp33": [Neighbour("spine01", "", "swp1", "ifname")]}
    told = [
        Told("node01", {"p1": [Neighbour("leaf01", "", "swp1", "ifname")]}),
        Told("leaf01", leaf),
        Told("spine01", trouble=WHY),
    ]
    found = judged(trunks, told, ["node01"])
    assert (found.findings, found.one_end) == ({}, {"node01": ["1 cable to spine01: read at leaf01 only"]})


def test_a_container_that_is_down_leaves_the_names_of_ports(tmp_path: Path) -> None:
    told = told_by_switch(Sonic("leaf01", SonicSwitch(tmp_path / "s", ports=2)))
    assert "container lldp is not running" in told.trouble
    assert (told.ports, told.port_names) == ({}, True)
    assert told.aliases == {"etp1": "Ethernet0", "etp2": "Ethernet8"}


def test_a_broken_connection_is_asked_once(tmp_path: Path) -> None:
    class Cut(SonicSwitch):
        def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
            super().as_root(argv, timeout_s=timeout_s)
            raise SwitchUnreachableError("leaf01", "lldpcli", actual=WHY)

    switch = Cut(tmp_path / "s", ports=2)
    told = told_by_switch(Sonic("leaf01", switch))
    assert (len(switch.sent), told.port_names) == (1, False)
    assert WHY in told.trouble


def test_a_driver_that_does_not_read_lldp_is_told_so() -> None:
    class Plain(CumulusNvue):
        neighbours = SwitchDriver.neighbours  # type: ignore[assignment]
        known_as = SwitchDriver.known_as

    told = told_by_switch(Plain("leaf01", FakeNvue()))
    assert (told.ports, told.trouble, told.port_names) == ({}, NOT_READ, True)


@pytest.mark.parametrize(("env", "names"), [("sim-sonic", False), ("sim", True)])
def test_a_switch_without_a_session_has_the_names_of_its_system(
    env: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, names: bool
) -> None:
    def refused(*_: Any) -> None:
        raise SwitchError("leaf01", "SSH", actual="no route to host")

    monkeypatch.setattr(lldp_read, "open_driver", refused)
    monkeypatch.setattr(lldp_read, "Remote", lambda _targets: SimpleNamespace(close=lambda: None))
    site = load_site("no-overlay", site_file=ROOT / f"inventories/{env}/site.yml", root=ROOT)
    with Readers(site, EnvPaths(tmp_path, env), ["leaf01"], []) as readers:
        (told,) = readers.read()
    assert "no route to host" in told.trouble
    assert told.port_names is names
