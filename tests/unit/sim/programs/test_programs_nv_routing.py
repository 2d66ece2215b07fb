"""The simulated switch of a routed fabric: split ports, gateways, BGP, and the words of two releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers.switch.nvue_text import parse_roce
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.switch import apply, frrconf, grammar, nv, ports, routing, schema

Settings = set[tuple[str, ...]]
_LEAF = "leaf-su001-01"
_UPLINKS = (
    "set router bgp state enabled",
    "set router bgp autonomous-system 4200100000",
    "set router bgp router-id 10.30.0.1",
    "set router bfd state enabled",
    "set router bfd profile underlay detect-multiplier 3",
    "set router bfd profile underlay min-rx-interval 300",
    "set router policy prefix-list own type ipv4",
    "set router policy prefix-list own rule 10 action permit",
    "set router policy prefix-list own rule 10 match 10.30.0.1/32",
    "set router policy prefix-list own rule 20 action permit",
    "set router policy prefix-list own rule 20 match 192.168.0.0/24 max-prefix-len 24",
    "set router policy route-map own rule 10 action permit",
    "set router policy route-map own rule 10 match ip-prefix-list own",
    "set vrf default router bgp address-family ipv4-unicast redistribute connected state enabled",
    "set vrf default router bgp address-family ipv4-unicast redistribute connected route-map own",
    "set vrf default router bgp path-selection multipath aspath-ignore enabled",
    "set vrf default router bgp peer-group underlay remote-as external",
    "set vrf default router bgp peer-group underlay bfd profile underlay",
    "set vrf default router bgp neighbor swp9s0 type unnumbered",
    "set vrf default router bgp neighbor swp9s0 peer-group underlay",
    "set vrf default router bgp neighbor 10.9.0.1 type numbered",
    "set vrf default router bgp neighbor 10.9.0.1 peer-group underlay",
)
_CONF = """frr defaults datacenter
log syslog informational
service integrated-vtysh-config
hostname leaf
!
bfd
 profile underlay
  detect-multiplier 3
  transmit-interval 300
  receive-interval 300
 exit
exit
!
ip prefix-list own seq 10 permit 10.30.0.1/32
ip prefix-list own seq 20 permit 192.168.0.0/24 le 24
!
route-map own permit 10
 match ip address prefix-list own
exit
!
router bgp 4200100000
 bgp router-id 10.30.0.1
 bgp bestpath as-path multipath-relax
 neighbor underlay peer-group
 neighbor underlay remote-as external
 neighbor underlay bfd profile underlay
 neighbor 10.9.0.1 peer-group underlay
 neighbor swp9s0 interface peer-group underlay
 !
 address-family ipv4 unicast
  redistribute connected route-map own
  maximum-paths 64
 exit-address-family
exit
!
line vty
!
"""


class Switch:
    """One simulated switch below a temporary root; ``real`` is what was last brought to its ports."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.real: Settings = set()

    def nv(self, *lines: str) -> str:
        self.capsys.readouterr()
        for line in lines:
            assert nv.run(line.split(), "cumulus") == 0
        return self.capsys.readouterr().out

    def refused(self, line: str) -> str:
        with pytest.raises((nv.NvError, schema.SchemaError)) as caught:
            nv.run(line.split(), "cumulus")
        return str(caught.value)


def _switch(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, state: dict[str, Any]
) -> Switch:
    monkeypatch.setattr(paths, "ROOT", root)
    (root / "opt/hw").mkdir(parents=True)
    (root / "opt/hw/state.json").write_text(json.dumps(state))
    made = Switch(capsys)
    monkeypatch.setattr(apply, "bring", lambda settings: setattr(made, "real", set(settings)))
    monkeypatch.setattr(apply, "links", dict)
    return made


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Switch:
    state = build_switch_state(load_site("sim-spine"), _LEAF)
    return _switch(tmp_path, monkeypatch, capsys, state=state)


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Switch:
    return _switch(tmp_path, monkeypatch, capsys, state=build_switch_state(load_site("sim"), "leaf01"))


def test_sub_ports_take_the_place_of_a_split_port(switch: Switch) -> None:
    assert "interface swp1s0 does not exist" in _apply_refused(switch, "set interface swp1s0 link state up")
    switch.nv("set interface swp1 link breakout 2x", "config apply -y")
    shown = json.loads(switch.nv("show interface -o json"))
    assert {"swp1s0", "swp1s1", "swp2"} <= set(shown)
    assert "swp1" not in shown
    assert ports.existing(switch.real)["swp1s1"] == 400
    refused = _apply_refused(switch, "set interface swp1 link mtu 9216")
    assert "interface swp1 is split: it has sub-ports instead of 'link mtu 9216'" in refused


def _apply_refused(switch: Switch, line: str) -> str:
    switch.nv(line)
    refused = switch.refused("config apply -y")
    switch.nv(line.replace("set", "unset", 1))
    return refused


def test_a_split_port_and_its_sub_ports_are_set_in_one_apply(switch: Switch) -> None:
    switch.nv("set interface swp1-2 link breakout 2x", "set interface swp1s0-1 link speed 400G", "config apply -y")
    assert ("interface", "swp1s1", "link", "speed", "400G") in switch.real
    assert "nv set interface swp1s0-1 link speed 400G\n" in switch.nv("config show -o commands")


def test_a_breakout_is_taken_back_in_two_applies(switch: Switch) -> None:
    switch.nv("set interface swp1 link breakout 2x", "set interface swp1s0 link state up", "config apply -y")
    switch.nv("unset interface swp1", "unset interface swp1s0")
    assert "swp1 link breakout: swp1s0 is still configured" in switch.refused("config apply -y")
    switch.nv("config detach", "unset interface swp1s0", "config apply -y")
    switch.nv("unset interface swp1", "config apply -y")
    assert "swp1" in ports.existing(switch.real)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("set interface swp1 link breakout 3x", "one of 1x, 2x, 4x, 8x"),
        ("set interface swp1 link speed 401G", "'401G' is not a valid value"),
        ("set interface swp1 link fec fc", "one of auto, baser, off, rs"),
        ("set interface lo ipv4 address 10.30.0.300/32", "an IPv4 address with prefix length"),
        ("set interface lo ip address 10.30.0.1/32", "'ip' is not one of"),
        ("set qos roce enable on", "'enable' is not one of"),
        ("set router bgp autonomous-system 0", "an integer between 1 and 4294967295"),
        ("set router bfd profile x min-rx-interval 5", "an integer between 10 and 4294967"),
        ("set router policy prefix-list x rule 10 match 10.30.0.1/24", "an IPv4 prefix"),
        ("set vrf default router bgp neighbor swp1 remote-as any", "external, internal or an AS number"),
        ("set vrf 9other router bgp state enabled", "a name of up to 15 characters"),
        ("set vrf other evpn vni 16777216", "an integer between 1 and 16777215"),
        ("set nve vxlan encapsulation dscp action keep", "one of copy, derive, set"),
    ],
)
def test_words_that_5_15_does_not_take(switch: Switch, line: str, said: str) -> None:
    assert said in switch.refused(line)


@pytest.mark.parametrize(
    "line",
    [
        "set interface lo ipv4 address 10.30.0.1/32",
        "set qos roce state enabled",
        "set router bfd state enabled",
        "set vrf default router bgp peer-group underlay bfd profile underlay",
    ],
)
def test_words_that_5_13_does_not_take(older: Switch, line: str) -> None:
    assert "Invalid Command" in older.refused(line)


def test_words_that_5_13_takes(older: Switch) -> None:
    older.nv(
        "set interface lo ip address 10.30.0.1/32",
        "set router bgp autonomous-system 65101",
        "set vrf default router bgp neighbor swp1 remote-as external",
        "set vrf default router bgp neighbor swp1 type unnumbered",
        "set vrf default router bgp neighbor swp1 bfd enable on",
        "set vrf default router bgp neighbor swp1 bfd min-rx-interval 400",
        "set vrf default router bgp path-selection multipath aspath-ignore on",
        "config apply -y",
    )
    lines = frrconf.text(older.real, "leaf").splitlines()
    assert " neighbor swp1 bfd 3 400 300" in lines
    assert lines.index(" neighbor swp1 interface") < lines.index(" neighbor swp1 remote-as external")
    assert "bfdd=yes" in frrconf.daemons(older.real)


def test_what_frr_is_told(switch: Switch) -> None:
    switch.nv(*_UPLINKS, "config apply -y")
    assert frrconf.text(switch.real, "leaf") == _CONF
    assert "bfdd=yes" in frrconf.daemons(switch.real)
    assert "bfdd=no" in frrconf.daemons(switch.real - {("router", "bfd", "state", "enabled")})


@pytest.mark.parametrize(
    ("less", "said"),
    [
        ("vrf default router bgp peer-group underlay", "peer-group: 'underlay' does not exist"),
        ("vrf default router bgp peer-group underlay remote-as", "neighbor 10.9.0.1: remote-as is required"),
        ("router bfd profile", "router bfd profile underlay does not exist"),
        ("router policy route-map", "router policy route-map own does not exist"),
    ],
)
def test_a_name_that_nothing_defines_is_refused(switch: Switch, less: str, said: str) -> None:
    switch.nv(*_UPLINKS, f"unset {less}")
    assert said in switch.refused("config apply -y")


def test_a_switch_without_bgp_runs_no_frr(switch: Switch) -> None:
    switch.nv(*_UPLINKS, "config apply -y")
    assert frrconf.routed(switch.real)
    assert not frrconf.routed(switch.real - {("router", "bgp", "autonomous-system", "4200100000")})
    off = schema.put(switch.real, ("router", "bgp", "state", "disabled"))
    assert not frrconf.routed(off)
    assert routing.flaw(set()) == ""


def test_gateways_are_addresses_of_the_bridges(switch: Switch) -> None:
    switch.nv(
        "set interface swp1 link breakout 2x",
        "set interface swp1s0 bridge domain br_default access 901",
        "set interface vlan901 type svi",
        "set interface vlan901 vlan 901",
        "set interface vlan901 ipv4 address 192.168.0.1/24",
        "set interface lo ipv4 address 10.30.0.1/32",
        "config apply -y",
    )
    lo = {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]}
    have: dict[str, dict[str, Any]] = {"lo": lo, "swp1s0": {"ifname": "swp1s0", "mtu": 1500, "flags": []}}
    mac = json.loads(paths.at("/opt/hw/state.json").read_text())["platform"]["mac"]
    assert apply.plan(switch.real, have) == [
        f"link add vlan901 address {mac} type bridge mcast_snooping 0",
        "link set swp1s0 mtu 9216",
        "link set swp1s0 master vlan901",
        "link set swp1s0 up",
        "link set vlan901 up",
        "address add 10.30.0.1/32 dev lo",
        "address add 192.168.0.1/24 dev vlan901",
    ]
    old = {"family": "inet", "local": "10.30.0.9", "prefixlen": 32, "scope": "global"}
    have["lo"] = {**lo, "addr_info": [*lo["addr_info"], old]}
    assert "address del 10.30.0.9/32 dev lo" in apply.plan(switch.real, have)


def test_a_cable_in_a_port_that_is_not_split_has_no_link(switch: Switch) -> None:
    up = {"ifname": "swp1s0", "mtu": 9216, "flags": ["UP"]}
    assert apply.plan(set(), {"swp1s0": up}) == ["link set swp1s0 mtu 1500", "link set swp1s0 down"]
    assert switch.real == set()


def test_sessions_are_shown_in_nvues_words(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input is the shape of FRR 8.4's `show bgp vrf default neighbors json` (Debian 12)."""
    peer = {
        "remoteAs": 4200000008,
        "bgpState": "Established",
        "remoteRouterId": "10.30.0.129",
        "messageStats": {"totalSent": 9, "totalRecv": 8},
        "addressFamilyInfo": {"ipv4Unicast": {"acceptedPrefixCounter": 10, "sentPrefixCounter": 11}},
        "peerBfdInfo": {"status": "Up"},
    }
    monkeypatch.setattr(routing, "_vtysh", lambda _command: {"vrfId": 0, "vrfName": "default", "swp9s0": peer})
    shown = json.loads(switch.nv("show vrf default router bgp neighbor -o json"))
    assert shown == {
        "swp9s0": {
            "remote-as": 4200000008,
            "session-state": "established",
            "address-family": {"ipv4-unicast": {"rx-prefix": 10, "tx-prefix": 11}},
            "message-stats": {"rx-total": 8, "tx-total": 9},
            "bfd": {"status": "up"},
        }
    }
    one = json.loads(switch.nv("show vrf default router bgp neighbor swp9s0 -o json"))
    assert one["remote-router-id"] == "10.30.0.129"


def test_thresholds_watchdog_and_adaptive_routing(switch: Switch) -> None:
    switch.nv(
        "set interface swp9 qos pfc-watchdog state enable",
        "set interface swp9 router adaptive-routing state enabled",
        "set router adaptive-routing state enabled",
        "set qos congestion-control own traffic-class 0,3 ecn enable",
        "set qos congestion-control own traffic-class 0,3 min-threshold 40000",
        "set interface swp9 qos congestion-control profile own",
        "set qos roce state enabled",
        "config apply -y",
    )
    assert ("qos", "congestion-control", "own", "traffic-class", "3", "min-threshold", "40000") in switch.real
    control = json.loads(switch.nv("show qos roce -o json"))["congestion-control"]
    assert (control["min-threshold"], control["max-threshold"]) == ("146.48 KB", "1.43 MB")
    switch.nv("set qos congestion-control default-global traffic-class 3 min-threshold 40960", "config apply -y")
    control = json.loads(switch.nv("show qos roce -o json"))["congestion-control"]
    assert parse_roce({"congestion-control": control}).thresholds == (40_960, 1_499_464)


@pytest.mark.parametrize(
    "line",
    [
        "set qos congestion-control own traffic-class 8 ecn enable",
        "set qos congestion-control own traffic-class 3 probability 101",
        "set interface swp9 qos pfc-watchdog state on",
        "set interface swp9 router adaptive-routing enable on",
    ],
)
def test_words_of_queues_that_5_15_does_not_take(switch: Switch, line: str) -> None:
    assert switch.refused(line).startswith("Error: ")


def test_releases() -> None:
    assert grammar.release("5.15.0") > grammar.release("5.9.1")
