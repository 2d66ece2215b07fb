"""nv show: the present state of the switch."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

from .. import store
from . import apply, asic, document, grammar, ports, revisions, routing
from .schema import SchemaError, Setting

Tree = dict[str, Any]
_ROCE, _CNP = 3, 6


def main(argv: list[str], user: str) -> int:
    """Print one object of the operational state."""
    options = document.options(argv)
    tree = state(revisions.read().running().settings)
    if options.words[:1] == ["vrf"]:
        detail = any("detail" in word for word in argv if word.startswith("--view")) or options.words[5:6] != []
        tree["vrf"] = {"default": {"router": {"bgp": {"neighbor": routing.neighbors(detail=detail)}}}}
    if options.words[:1] == ["interface"] and options.words[1:2] and options.words[1] in tree["interface"]:
        one = tree["interface"][options.words[1]]
        one["counters"] = {"qos": asic.qos(options.words[1])}
        one["link"]["stats"] = asic.stats(options.words[1])
    node: Any = tree
    for word in options.words:
        if not isinstance(node, dict) or word not in node:
            raise SchemaError(f"Error: The requested item does not exist: '{word}'")
        node = node[word]
    _ = user
    if options.values.get("-o") == "json":
        sys.stdout.write(json.dumps(node, indent=2) + "\n")
    else:
        sys.stdout.write(_table(node))
    return 0


def header() -> Tree:
    """Return the header of a configuration document."""
    platform = _platform()
    return {
        "model": platform["product"],
        "nvue-api-version": "nvue_v1",
        "rev-id": "1.0",
        "version": f"Cumulus Linux {platform['version']}",
    }


def _platform() -> Tree:
    found: Tree = store.hardware()["platform"]
    return found


def state(settings: set[Setting]) -> Tree:
    """Return the whole operational state."""
    platform = _platform()
    return {
        "system": {
            "build": f"Cumulus Linux {platform['version']}",
            "hostname": _hostname(settings),
            "product-name": "Cumulus Linux",
            "product-release": platform["version"],
            "platform": f"Nvidia {platform['product']}",
            "timezone": "Etc/UTC",
            "uptime": int(float(Path("/proc/uptime").read_text().split()[0])),
            "date-time": time.strftime("%Y-%m-%d %H:%M:%S"),
        },
        "platform": {
            "asic-model": "Spectrum-4",
            "asic-vendor": "Nvidia",
            "manufacturer": "Mellanox",
            "product-name": platform["product"],
            "serial-number": platform["serial"],
            "system-mac": platform["mac"],
        },
        "interface": interfaces(settings),
        "bridge": {"domain": _domains(settings)},
        "qos": {"roce": roce(settings)},
    }


def _hostname(settings: set[Setting]) -> str:
    return next((words[2] for words in settings if words[:2] == ("system", "hostname")), socket.gethostname())


def interfaces(settings: set[Setting]) -> Tree:
    """Return every port that exists: administrative state from configuration, operational state from the kernel."""
    have, wanted = apply.links(), apply.wanted(settings)
    descriptions = {
        words[1]: words[3] for words in settings if words[0] == "interface" and words[2:3] == ("description",)
    }
    roce_up = "up" if _roce_on(roce(settings)) else "down"
    found: Tree = {}
    for index, (name, rate) in enumerate(ports.existing(settings).items()):
        kernel, port = have.get(name, {}), wanted.get(name)
        link = _link(kernel, port, rate)
        oper = link["oper-status"]
        found[name] = {"ifindex": kernel.get("ifindex", index + 2), "type": "swp", "link": link}
        if name in descriptions:
            found[name]["description"] = descriptions[name]
        if port and port["vlan"]:
            found[name]["bridge"] = {
                "domain": {
                    "br_default": {"access": port["vlan"], "state": "forwarding" if oper == "up" else "disabled"}
                }
            }
        found[name]["qos"] = {"roce": {"status": {"operational-state": roce_up}}}
    for name, kernel in have.items():
        if name in _KINDS or name.startswith("vlan"):
            found[name] = _other(kernel)
    for name, own in apply.addresses(settings).items():
        if name in found:
            found[name]["ipv4" if grammar.says_state() else "ip"] = {"address": {one: {} for one in sorted(own)}}
    return found


_KINDS = {"eth0": "eth", "lo": "loopback"}
_USUAL = 400
"""Gb/s of a whole port that nothing sets: the cards of the simulated nodes have 400G ports."""


def _link(kernel: Tree, port: Tree | None, rate: int) -> Tree:
    """Return the link of a port. A port that is down shows no speed.

    Fields of a port that is up: user guide, "Network Troubleshooting", `nv show interface swp1 link` of a Spectrum-4.
    """
    admin = "up" if port and port["up"] else "down"
    oper = "up" if kernel.get("operstate") == "UP" else "down"
    link: Tree = {
        "admin-status": admin,
        "oper-status": oper,
        "mtu": port["mtu"] if port else kernel.get("mtu", 1500),
        "state": {oper: {}},
        "mac-address": kernel.get("address", ""),
    }
    if oper == "up" and port:
        usual = f"{min(_USUAL, rate)}G"
        link |= {
            "auto-negotiate": "on",
            "duplex": "full",
            "speed": usual if port["speed"] == "auto" else port["speed"],
            "fec": "rs" if port["fec"] == "auto" else port["fec"],
        }
    return link


def _other(kernel: Tree) -> Tree:
    status = "up" if "UP" in kernel.get("flags", []) else "down"
    return {
        "ifindex": kernel["ifindex"],
        "type": _KINDS.get(kernel["ifname"], "svi"),
        "link": {"admin-status": status, "oper-status": status, "mtu": kernel["mtu"], "state": {status: {}}},
    }


def _domains(settings: set[Setting]) -> Tree:
    domains: Tree = {}
    for words in settings:
        if words[:2] == ("bridge", "domain") and len(words) > 2:  # noqa: PLR2004
            domain = domains.setdefault(words[2], {"type": "vlan-aware", "vlan": {}, "port": {}})
            if words[3:4] == ("vlan",):
                domain["vlan"][words[4]] = {}
    for name, port in apply.wanted(settings).items():
        if port["vlan"]:
            domains.setdefault("br_default", {"type": "vlan-aware", "vlan": {}, "port": {}})["port"][name] = {
                "vlan": {str(port["vlan"]): {"tag-state": "untagged"}}
            }
    return domains


def _roce_on(shown: Tree) -> bool:
    return shown.get("state", shown.get("enable")) in {"enabled", "on"}


def roce(settings: set[Setting]) -> Tree:
    """Return the output of `nv show qos roce`: NVUE's lossless or lossy defaults."""
    ours = [words[2:] for words in settings if words[:2] == ("qos", "roce")]
    key, yes, no = ("state", "enabled", "disabled") if grammar.says_state() else ("enable", "on", "off")
    if not ours or grammar.disabled(settings, "qos", "roce"):
        return {key: no}
    mode = next((words[1] for words in ours if words[:1] == ("mode",)), "lossless")
    lossless = mode.startswith("lossless")
    pools = {
        "0": {"name": "lossy-default-ingress", "type": "Dynamic", "mode": "Dynamic", "size": "50.0%"},
        "1": {"name": "roce-reserved-ingress", "mode": "Dynamic", "size": "50.0%"},
    }
    return {
        key: yes,
        "mode": mode,
        "cable-length": 100,
        "congestion-control": {
            "congestion-mode": "ECN",
            "enabled-tc": "0,3",
            "max-threshold": _threshold(settings, "max-threshold", 1_500_000),
            "min-threshold": _threshold(settings, "min-threshold", 150_000),
            "probability": 100,
        },
        "lldp-app-tlv": {"priority": 3, "protocol-id": 4791, "selector": "UDP"},
        "pfc": {
            "pfc-priority": "3" if lossless else "-",
            "rx-enabled": "enabled" if lossless else "disabled",
            "tx-enabled": "enabled" if lossless else "disabled",
            "cable-length": 100,
        },
        "trust": {"trust-mode": "pcp,dscp"},
        "prio-map": {
            str(prio): {
                "pcp": str(prio),
                "dscp": ",".join(str(prio * 8 + low) for low in range(8)),
                "switch-prio": prio,
            }
            for prio in range(8)
        },
        "tc-map": {
            str(prio): {
                "switch-prio": prio,
                "traffic-class": prio if prio in {_ROCE, _CNP} else 0,
                "scheduler-weight": "Strict" if prio == _CNP else "DWRR-50%",
            }
            for prio in range(8)
        },
        "pool-map": pools,
    }


def _threshold(settings: set[Setting], name: str, preset: int) -> str:
    """Return an ECN threshold of the default profile in NVUE's units: 150,000 bytes are 146.48 KB (RoCE guide)."""
    head = ("qos", "congestion-control", "default-global", "traffic-class", str(_ROCE), name)
    size = next((int(words[-1]) for words in settings if words[:-1] == head), preset)
    return f"{size / 1024**2:.2f} MB" if size >= 1024**2 else f"{size / 1024:.2f} KB"


def _table(node: object) -> str:
    rows = _flat(node) if isinstance(node, dict) else [("", str(node))]
    width = max((len(key) for key, _ in rows), default=10)
    lines = [f"{'':<{width}}  operational  applied", f"{'-' * width}  -----------  -------"]
    return "\n".join([*lines, *[f"{key:<{width}}  {value}" for key, value in rows]]) + "\n"


def _flat(node: Tree, depth: int = 0) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in node.items():
        if isinstance(value, dict):
            rows += [(f"{'  ' * depth}{key}", ""), *_flat(value, depth + 1)]
        else:
            rows.append((f"{'  ' * depth}{key}", str(value)))
    return rows
