"""Cables between switches: a link, and a BGP session on each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.switches import SwitchConfig, switch_config
from rackready.drivers.switch import agreement
from rackready.drivers.switch.agreement import _below, _End, _read_end, judge
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.findings import TRUNK_DOWN
from rackready.drivers.switch.trunks import trunk_ports, verify_trunks
from rackready.model.phase import FINDINGS
from rackready.model.place import Place
from tests.unit.fabric.fake_nvue import FakeNvue

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def spine() -> SwitchConfig:
    site = load_site("no-overlay", site_file=ROOT / "tests/golden/sites/two_tier.yml", root=ROOT)
    return switch_config(site, "spine-001")


@pytest.fixture
def state(spine: SwitchConfig) -> SwitchState:
    ports = {port.name: PortState(admin_up=True, link_up=True, mtu=9216, vlan=None) for port in spine.ports}
    return SwitchState(ports, RoceState("lossless", frozenset({3}), trusts_dscp=True))


def established(spine: SwitchConfig) -> dict[str, str]:
    return {port.name: "established" for port in trunk_ports(spine)}


def test_links_and_sessions_that_are_up_have_no_finding(spine: SwitchConfig, state: SwitchState) -> None:
    assert len(trunk_ports(spine)) == 16
    assert verify_trunks(spine, state, established(spine)) == []


def test_a_link_that_is_down_is_named_with_both_ends_and_once(spine: SwitchConfig, state: SwitchState) -> None:
    ports = state.ports | {"swp1s1": replace(state.ports["swp1s1"], link_up=False)}
    found = verify_trunks(spine, replace(state, ports=ports), established(spine) | {"swp1s1": "idle"})
    assert [(item.code, str(item.where), item.expected, item.actual) for item in found] == [
        ("switch-trunk-down", "spine-001 swp1s1", "up", "down")
    ]
    assert "leaf-su001-01 swp9s1" in str(found[0])


def test_a_port_that_the_switch_does_not_list_is_no_link(spine: SwitchConfig, state: SwitchState) -> None:
    ports = {name: port for name, port in state.ports.items() if name != "swp2s0"}
    found = verify_trunks(spine, replace(state, ports=ports), established(spine))
    assert [(item.code, item.actual) for item in found] == [("switch-trunk-down", "not listed")]


def test_a_trunk_without_the_adaptive_routing_that_the_site_wants_is_named(
    spine: SwitchConfig, state: SwitchState
) -> None:
    wanted, every = replace(spine, adaptive_routing=True), frozenset(port.name for port in trunk_ports(spine))
    assert verify_trunks(wanted, replace(state, adaptive=every), established(spine)) == []
    found = verify_trunks(wanted, replace(state, adaptive=every - {"swp2s0"}), established(spine))
    assert [(item.code, str(item.where), item.expected, item.actual) for item in found] == [
        ("switch-adaptive-routing-off", "spine-001 swp2s0", "on", "off")
    ]
    assert verify_trunks(spine, replace(state, adaptive=frozenset()), established(spine)) == []
    assert verify_trunks(wanted, replace(state, adaptive=None), established(spine)) == []


@pytest.mark.parametrize("actual", ["idle", "active"])
def test_a_session_that_is_not_established_is_a_finding(spine: SwitchConfig, state: SwitchState, actual: str) -> None:
    sessions = established(spine) | {"swp4s0": actual}
    found = verify_trunks(spine, state, sessions)
    assert [(item.code, str(item.where), item.actual) for item in found] == [
        ("switch-session-down", "spine-001 swp4s0", actual)
    ]


def test_a_driver_that_reads_no_sessions_passes_nothing(spine: SwitchConfig, state: SwitchState) -> None:
    found = verify_trunks(spine, state, {})
    assert {(item.code, item.actual) for item in found} == {("switch-session-down", "none")}
    assert len(found) == 16


class _Bgp(FakeNvue):
    said = "{}"

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        if command == "nv show vrf default router bgp neighbor -o json":
            return 0, self.said
        return super().run(command, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("said", "sessions"),
    [
        ('{"swp51": {"remote-as": 65199, "session-state": "established"}}', {"swp51": "established"}),
        ('{"swp51": {"session-state": "Idle"}, "swp52": {"peer-group": "underlay"}}', {"swp51": "idle"}),
        ('{"swp51": {"state": "enabled", "session-state": "active"}}', {"swp51": "active"}),
        ('{"swp51": {"state": "enabled"}}', {}),
        ("{}", {}),
        ("[]", {}),
    ],
)
def test_sessions_are_read_from_nvue(said: str, sessions: dict[str, str]) -> None:
    switch = _Bgp()
    switch.said = said
    assert CumulusNvue("leaf01", switch).sessions() == sessions


@pytest.mark.parametrize(("below", "told"), [("leaf-su001-01", True), ("leaf-su002-01", False)])
@pytest.mark.parametrize("seen_at", ["spine-001", "leaf-su001-01"])
def test_a_cable_between_switches_is_a_finding_of_the_nodes_below_it_alone(
    state: SwitchState, seen_at: str, below: str, *, told: bool
) -> None:
    site = load_site("no-overlay", site_file=ROOT / "tests/golden/sites/two_tier.yml", root=ROOT)
    configs = {name: switch_config(site, name) for name in ("spine-001", "leaf-su001-01", "leaf-su002-01")}
    port = next(port for port in configs[seen_at].ports if {seen_at, port.peer} == {"spine-001", "leaf-su001-01"})
    finding = TRUNK_DOWN.found(Place(seen_at, port.name), "up", "down", end=port.far_end)
    ends = [_End(config, state) for config in configs.values() if config.name != seen_at]
    ends.append(_End(configs[seen_at], state, "", ((finding, _below(site, configs[seen_at], finding)),)))
    node = next(port.node for port in configs[below].ports if port.node)
    found = judge(node, ends, {}, {}).data.get(FINDINGS, [])
    assert (finding.code in {item["code"] for item in found}) is told


class _Silent(CumulusNvue):
    """A leaf whose sessions are up, and that announces what a test says."""

    known: frozenset[str] | None = frozenset()
    config: SwitchConfig

    def read_back(self) -> SwitchState:
        ports = {port.name: PortState(True, True, port.mtu, port.vlan) for port in self.config.ports}  # noqa: FBT003
        return SwitchState(ports, RoceState("lossless", frozenset({3}), trusts_dscp=True))

    def sessions(self) -> dict[str, str]:
        return {port.peer_address or port.name: "established" for port in trunk_ports(self.config)}

    def announced(self) -> frozenset[str] | None:
        return self.known


@pytest.mark.parametrize("known", ["all", "loopback", "unread"])
def test_a_prefix_that_a_leaf_does_not_announce_is_a_finding_of_its_nodes(
    monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    monkeypatch.setattr(agreement, "_SESSIONS_S", 0.0)
    monkeypatch.setattr(agreement.time, "sleep", lambda _s: None)
    site = load_site("no-overlay", site_file=ROOT / "tests/golden/sites/two_tier.yml", root=ROOT)
    config = switch_config(site, "leaf-su001-01")
    leaf = _Silent("leaf-su001-01", FakeNvue())
    leaf.config = config
    leaf.known = {"all": frozenset(config.announced), "loopback": frozenset(config.announced[:1]), "unread": None}[
        known
    ]
    end = _read_end(site, leaf, config)
    prefixes = [finding.what for finding, leafs in end.trunks if leafs == {"leaf-su001-01"}]
    missing = config.announced[1:] if known == "loopback" else ()
    assert prefixes == [f"prefix {prefix}" for prefix in missing]
