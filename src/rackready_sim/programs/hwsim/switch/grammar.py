"""NVUE's tree of settings, as far as leaf and spine switches need it.

Sources: NVIDIA's NVUE reference ("Set Commands") and the user guide of Cumulus Linux 5.15: Switch Port Attributes, BGP,
BFD, Route Filtering and Redistribution. Release 5.15 says ``state enabled`` where earlier ones say ``enable on``, and
``ipv4 address`` where they say ``ip address``; profiles of BFD are new in it ("New and Changed NVUE Commands").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

from .. import paths, store

Tree = dict[str, Any]
_STATE_SINCE = (5, 15)
_OLDEST = (5, 0)


HIDDEN = "*"
"""What NVUE shows of a hash, and what it has for a user whose password it does not manage."""


class Value(NamedTuple):
    """A leaf with one value."""

    check: Callable[[str], bool]
    expects: str


def _integer(low: int, high: int) -> Value:
    return Value(lambda text: text.isdigit() and low <= int(text) <= high, f"an integer between {low} and {high}")


def _choice(*names: str) -> Value:
    return Value(lambda text: text in names, f"one of {', '.join(names)}")


def _is(kind: type[IPv4Address | IPv4Network]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            kind(text)
        except (AddressValueError, ValueError):
            return False
        return True

    return check


_ANY = Value(bool, "a text")
VLAN = _integer(1, 4094)
VNI = _integer(1, 16_777_215)
_VRF = re.compile(r"^[a-zA-Z][a-zA-Z0-9_-]{0,14}$")
_ASN = _integer(1, 4_294_967_295)
_SPEED = _choice("auto", "10M", "100M", "1G", "10G", "25G", "40G", "50G", "100G", "200G", "400G", "800G")
_WAYS = re.compile(r"^[1248]x$")
ADDRESS = Value(_is(IPv4Interface), "an IPv4 address with prefix length")
PREFIX = Value(_is(IPv4Network), "an IPv4 prefix")
_ROUTER_ID = Value(_is(IPv4Address), "an IPv4 address")
_REMOTE_AS = Value(
    lambda text: text in {"external", "internal"} or _ASN.check(text), "external, internal or an AS number"
)


def release(version: str) -> tuple[int, int]:
    """Return the release of a version such as 5.13.1."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def says_state() -> bool:
    """Return whether this switch's release says ``state enabled`` rather than ``enable on``."""
    return _release(paths.ROOT) >= _STATE_SINCE


@cache
def _release(root: Path) -> tuple[int, int]:
    """Return the release of the switch below a root."""
    has_state = (root / "opt/hw/state.json").exists()
    return release(store.hardware()["platform"]["version"]) if has_state else _OLDEST


_HASH = Value(
    lambda text: text == HIDDEN or re.fullmatch(r"\$(1|5|6|y)\$[./0-9A-Za-z$]+", text) is not None,
    "a hashed password in Linux crypt format",
)
"""NVUE reference, User Account."""


def tree() -> Tree:
    """Return the tree of this switch's release."""
    return _tree(says_state())


def enabled(settings: set[tuple[str, ...]], *path: str) -> bool:
    """Return whether a feature is on, in either release's words."""
    return bool({(*path, "state", "enabled"), (*path, "enable", "on")} & settings)


def disabled(settings: set[tuple[str, ...]], *path: str) -> bool:
    """Return whether a feature was set to off, in either release's words."""
    return bool({(*path, "state", "disabled"), (*path, "enable", "off")} & settings)


@cache
def _tree(states: bool) -> Tree:  # noqa: FBT001 - the cache needs plain values
    yes = _choice("enabled", "disabled") if states else _choice("on", "off")
    toggle = {"state": yes} if states else {"enable": yes}
    return {
        "interface": {"*": _interface(toggle, yes, states=states)},
        "bridge": {"domain": {"*": _domain()}},
        "qos": _qos(toggle),
        "router": _router(toggle, yes, states=states),
        "vrf": {"*": {"router": {"bgp": _bgp(toggle, yes, states=states)}, "evpn": {**toggle, "vni": {"*": {}}}}},
        "evpn": toggle,
        "nve": {"vxlan": _vxlan(toggle, yes)},
        "service": {
            "lldp": {"tx-interval": _integer(10, 300), "dot1-tlv": yes}, "ntp": {"*": {"server": {"*": {}}}},
            "syslog": {"*": {"server": {"*": {}}}},
        },
        "system": {
            "hostname": _ANY, "timezone": _ANY, "config": {"auto-save": toggle},
            "message": {"pre-login": _ANY, "post-login": _ANY},
            "aaa": {"user": {"*": {"hashed-password": _HASH, "full-name": _ANY, "role": _ANY}}},
        },
    }  # fmt: skip


def _interface(toggle: Tree, yes: Value, *, states: bool) -> Tree:
    own: Tree = {"address": {"*": {}}, "gateway": {"*": {}}}
    newer: Tree = {**own, "dhcp-client": {"state": yes, "set-hostname": yes}}
    addresses = {"ipv4": newer, "vrf": _ANY} if states else {"ip": {**own, "vrf": _ANY}}
    member = {
        "access": VLAN, "untagged": VLAN, "vlan": {"*": {}}, "learning": yes,
        "stp": {"admin-edge": yes, "bpdu-guard": yes},
    }  # fmt: skip
    return {
        "type": _choice("swp", "eth", "loopback", "svi", "bond", "sub"),
        "description": _ANY,
        "vlan": VLAN,
        "link": {
            "mtu": _integer(552, 9216), "state": _choice("up", "down"), "speed": _SPEED,
            "auto-negotiate": _choice("on", "off"), "fec": _choice("auto", "baser", "off", "rs"),
            "breakout": {"*": {"lanes-per-port": _choice("default", "1", "2", "4", "8")}},
            "duplex": _choice("full", "half"), "lanes": _integer(1, 8),
        },
        "bridge": {"domain": {"*": member}},
        **addresses,
        "qos": {
            "pfc-watchdog": {"state": _choice("enable", "enabled", "disable", "disabled")},
            "mapping": {"profile": _ANY}, "congestion-control": {"profile": _ANY},
        },
        "router": {"adaptive-routing": toggle},
    }  # fmt: skip


def _domain() -> Tree:
    return {
        "type": _choice("vlan-aware"), "vlan": {"*": {"vni": {"*": {}}}}, "untagged": VLAN,
        "stp": {"state": {"up": {}, "down": {}}, "mode": _ANY, "priority": _ANY},
    }  # fmt: skip


_TOGGLE = _choice("enable", "enabled", "disable", "disabled")
_CONGESTION: Tree = {
    "ecn": _TOGGLE, "red": _TOGGLE, "min-threshold": _integer(0, 4_294_967_295),
    "max-threshold": _integer(0, 4_294_967_295), "probability": _integer(0, 100),
}  # fmt: skip
"""NVUE reference, "QoS": thresholds in bytes, probability in percent; traffic classes 0 to 7, a list or a range."""


def _qos(toggle: Tree) -> Tree:
    return {
        "roce": {**toggle, "mode": _choice("lossless", "lossy", "lossless-single-ipool", "lossy-multi-tc"),
            "cable-length": _integer(1, 100000)},
        "congestion-control": {"*": {"traffic-class": {"*": _CONGESTION}}},
        "pfc-watchdog": {"polling-interval": _ANY, "robustness": _ANY},
        "traffic-pool": {"*": {"memory-percent": _integer(1, 100), "switch-priority": {"*": {}}}},
    }  # fmt: skip


def _vxlan(toggle: Tree, yes: Value) -> Tree:
    """Return VXLAN's settings: NVUE reference, "Network Virtualization"."""
    copies, keeps = _choice("copy", "derive", "set"), _choice("derive", "preserve")
    return {
        **toggle, "arp-nd-suppress": yes, "source": {"address": _ROUTER_ID},
        "encapsulation": {"dscp": {"action": copies}}, "decapsulation": {"dscp": {"action": keeps}},
    }  # fmt: skip


_INTERVALS: Tree = {
    "detect-multiplier": _integer(2, 255),
    "min-rx-interval": _integer(10, 4_294_967),
    "min-tx-interval": _integer(10, 4_294_967),
}
"""User guide of 5.15, BFD: milliseconds from 10 to 4,294,967; reference: multiplier from 2 to 255."""


def _router(toggle: Tree, yes: Value, *, states: bool) -> Tree:
    profile = {**_INTERVALS, "shutdown": yes, "passive-mode": yes, "minimum-ttl": _integer(1, 254)}
    bfd = {"bfd": {**toggle, "profile": {"*": profile}}} if states else {}
    lengths = {"max-prefix-len": _integer(0, 32), "min-prefix-len": _integer(0, 32)}
    family, verdict = _choice("ipv4", "ipv6"), _choice("permit", "deny")
    match = {"type": family, "interface": _ANY, "ip-prefix-list": _ANY}
    return {
        "adaptive-routing": toggle,
        "bgp": {**toggle, "autonomous-system": _ASN, "router-id": _ROUTER_ID},
        **bfd,
        "policy": {
            "prefix-list": {"*": {"type": family, "rule": {"*": {"action": verdict, "match": {"*": lengths}}}}},
            "route-map": {"*": {"rule": {"*": {"action": verdict, "description": _ANY, "match": match}}}},
        },
    }


def _bgp(toggle: Tree, yes: Value, *, states: bool) -> Tree:
    peer: Tree = {
        "remote-as": _REMOTE_AS,
        "description": _ANY,
        "bfd": {"profile": _ANY} if states else {**toggle, **_INTERVALS},
        "update-source": _ANY,
        "multihop-ttl": _integer(1, 255),
        "address-family": {"ipv4-unicast": toggle, "l2vpn-evpn": toggle},
    }
    connected = {**toggle, "route-map": _ANY, "metric": _ANY}
    ipv4 = {
        **toggle, "redistribute": {"connected": connected}, "multipaths": {"ebgp": _integer(1, 256)},
        "route-export": {"to-evpn": toggle},
    }  # fmt: skip
    return {
        **toggle,
        "autonomous-system": _ASN,
        "router-id": _ROUTER_ID,
        "address-family": {"ipv4-unicast": ipv4, "l2vpn-evpn": toggle},
        "path-selection": {"multipath": {"aspath-ignore": yes}},
        "neighbor": {"*": {**peer, "type": _choice("numbered", "unnumbered"), "peer-group": _ANY}},
        "peer-group": {"*": peer},
    }


def name_flaw(words: tuple[str, ...], at: int) -> str:
    """Return what is wrong with a name that the user chose, empty if nothing is."""
    before, name = words[at - 1], words[at]
    if before == "address" and words[0] != "interface":
        return ""
    found = _VRF_NAME if at == 1 and words[0] == "vrf" else _NAMES.get(before)
    return "" if found is None or found.check(name) else found.expects


_VRF_NAME = Value(lambda text: bool(_VRF.match(text)), "a name of up to 15 characters")
_NAMES = {
    "breakout": Value(
        lambda text: bool(_WAYS.match(text)) or text in {"disabled", "loopback"},
        "one of 1x, 2x, 4x, 8x, disabled, loopback",
    ),
    "address": ADDRESS,
    "gateway": _ROUTER_ID,
    "traffic-class": _integer(0, 7),
    "vni": VNI,
    "match": PREFIX,
}
"""Word before a name that the user chose -> what the name must be."""
