"""Apply the switch's configuration to its real ports: one Linux bridge for each VLAN, addresses, and routing.

A bridge of one VLAN stands for the VLAN-aware bridge, which not every kernel has. With a gateway address it is the
VLAN's interface (``vlan901``), else it is ``br901``.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from .. import paths, store
from . import ports, revisions, routing
from .grammar import HIDDEN
from .schema import Setting
from .sonic import bgp, db

_FABRIC_MTU = 9216
_PERIOD_S = 1.0
_BRIDGE = re.compile(r"^(br|vlan)\d+$")
_ROUTED_IP = {"ip_forward": "1", "fib_multipath_hash_policy": "1", "conf/all/rp_filter": "0"}
"""A router forwards, and balances flows by their ports, as Cumulus Linux does (user guide, ECMP)."""


def main(_argv: list[str]) -> int:
    """Apply the configuration to ports that came or went."""
    if is_sonic():
        if db.boot():
            bgp.start()
    else:
        revisions.boot()
    follow()
    return 0


def is_sonic() -> bool:
    """Return whether the switch's system is SONiC, not Cumulus Linux."""
    return bool(store.hardware().get("os") == "sonic")


def is_port(name: str) -> bool:
    """Return whether an interface is a port of the switch."""
    return name.startswith(("swp", "Ethernet"))


def follow() -> None:
    """Apply the running configuration to all ports."""
    if is_sonic():
        bring_ports(db.ports(db.read()))
    else:
        bring(revisions.read().running().settings)


def serve() -> int:
    """Watch the confirmation deadline until stopped; first apply the configuration to the ports."""
    from . import asic  # noqa: PLC0415 - it reads the settings that this module applies

    main([])
    asic.start()
    while True:
        if not is_sonic():
            expire(time.time())
        time.sleep(_PERIOD_S)


def expire(now: float) -> bool:
    """Revert a revision whose time for confirmation ran out; return whether one was reverted."""
    waiting = revisions.read().confirm
    if waiting is None or now < waiting["deadline"]:
        return False
    with revisions.change() as book:
        revisions.revert(book)
    bring(revisions.read().running().settings)
    return True


def wanted(settings: set[Setting]) -> dict[str, dict[str, Any]]:
    """Return the wanted state of each port: up, MTU in bytes, access VLAN or None, speed and FEC as configured."""
    found: dict[str, dict[str, Any]] = {}
    split = ports.breakouts(settings)
    for words in settings:
        if words[0] != "interface" or not words[1].startswith("swp") or words[1] in split:
            continue
        port = found.setdefault(
            words[1], {"up": True, "mtu": _FABRIC_MTU, "vlan": None, "speed": "auto", "fec": "auto"}
        )
        if words[2:4] == ("link", "state"):
            port["up"] = words[4] == "up"
        elif words[2:4] == ("link", "mtu"):
            port["mtu"] = int(words[4])
        elif words[2:4] in {("link", "speed"), ("link", "fec")}:
            port[words[3]] = words[4]
        elif words[2:4] == ("bridge", "domain") and len(words) > 6 and words[5] in {"access", "untagged"}:  # noqa: PLR2004
            port["vlan"] = int(words[6])
    return found


def addresses(settings: set[Setting]) -> dict[str, set[str]]:
    """Return interface -> its addresses with prefix length."""
    found: dict[str, set[str]] = {}
    for words in settings:
        if words[0] == "interface" and words[2:4] in {("ip", "address"), ("ipv4", "address")}:
            found.setdefault(words[1], set()).add(words[4])
    return found


def bridge(vlan: int, settings: set[Setting]) -> str:
    """Return the name of the bridge of a VLAN."""
    return f"vlan{vlan}" if f"vlan{vlan}" in addresses(settings) else f"br{vlan}"


def links() -> dict[str, dict[str, Any]]:
    """Return the kernel's ports and bridges by name, with their addresses."""
    done = subprocess.run(["ip", "-json", "-details", "address", "show"], check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return {item["ifname"]: item for item in found if item.get("ifname")}


def bring(settings: set[Setting]) -> None:
    """Apply the settings to all ports, and to users. Ports without configuration are down, as on a new switch."""
    _passwords(settings)
    _do(plan(settings, links()))
    if addresses(settings):
        _forward()
    routing.bring(settings)


def _passwords(settings: set[Setting]) -> None:
    """Give users the hashes of their passwords. A star changes nothing: NVUE does not manage that password."""
    lines = [
        f"{words[3]}:{words[5]}"
        for words in sorted(settings)
        if words[:3] == ("system", "aaa", "user") and words[4:5] == ("hashed-password",) and words[5] != HIDDEN
    ]
    if lines:
        subprocess.run(
            ["/usr/sbin/chpasswd", "-e"], check=False, input="\n".join(lines) + "\n", text=True, capture_output=True
        )


def bring_ports(wants: dict[str, dict[str, Any]]) -> None:
    """Apply the wanted state of every port: up, MTU in bytes, access VLAN or None."""
    have = links()
    vlans = {port["vlan"] for name, port in wants.items() if name in have and port["vlan"]}
    _do(_bridged(wants, {vlan: f"br{vlan}" for vlan in sorted(vlans)}, have))


def _do(commands: list[str]) -> None:
    if commands:
        subprocess.run(
            ["ip", "-batch", "-", "-force"], check=False, input="\n".join(commands), text=True, capture_output=True
        )


def plan(settings: set[Setting], have: dict[str, dict[str, Any]]) -> list[str]:
    """Return the commands of ``ip`` that lead from the kernel's present interfaces to the settings."""
    wants = wanted(settings)
    known = ports.existing(settings)
    wants = {name: port for name, port in wants.items() if name in known}
    present = [name for name in have if is_port(name)]
    svis = {int(name[4:]) for name in addresses(settings) if name.startswith("vlan")}
    vlans = {port["vlan"] for name, port in wants.items() if name in present and port["vlan"]} | svis
    bridges = {vlan: bridge(vlan, settings) for vlan in sorted(vlans)}
    return _bridged(wants, bridges, have) + _addresses(settings, have)


def _bridged(wants: dict[str, dict[str, Any]], bridges: dict[int, str], have: dict[str, dict[str, Any]]) -> list[str]:
    """Return the commands that make the bridges of VLANs, set the ports and remove other bridges."""
    present = [name for name in have if is_port(name)]
    new = [name for name in bridges.values() if name not in have]
    commands = [f"link add {name} {_mac(name)}type bridge mcast_snooping 0" for name in new]
    for name in present:
        port = wants.get(name, {"up": False, "mtu": 1500, "vlan": None})
        commands += _port(have[name], {**port, "bridge": bridges.get(port["vlan"])})
    commands += [f"link set {name} up" for name in bridges.values()]
    for name in have:
        if _BRIDGE.match(name) and name not in bridges.values():
            commands.append(f"link del {name}")
    return commands


def _mac(name: str) -> str:
    """Return the option that gives all gateways of a switch its own address, whatever ports come and go."""
    return f"address {store.hardware()['platform']['mac']} " if name.startswith("vlan") else ""


def _port(have: dict[str, Any], port: dict[str, Any]) -> list[str]:
    name, commands = have["ifname"], []
    if have.get("mtu") != port["mtu"]:
        commands.append(f"link set {name} mtu {port['mtu']}")
    master = port.get("bridge")
    if have.get("master") != master:
        commands.append(f"link set {name} master {master}" if master else f"link set {name} nomaster")
    if ("UP" in have.get("flags", [])) != port["up"]:
        commands.append(f"link set {name} {'up' if port['up'] else 'down'}")
    return commands


def _addresses(settings: set[Setting], have: dict[str, dict[str, Any]]) -> list[str]:
    wants = addresses(settings)
    commands = []
    for name in sorted({*wants, *(name for name in have if name == "lo" or name.startswith(("swp", "vlan")))}):
        if name.startswith("swp") and name not in have:
            continue
        present = {
            f"{item['local']}/{item['prefixlen']}"
            for item in have.get(name, {}).get("addr_info", [])
            if item["family"] == "inet" and item["scope"] == "global"
        }
        commands += [
            f"address del {one} dev {name}" for one in sorted(present - wants.get(name, set())) if name in have
        ]
        commands += [f"address add {one} dev {name}" for one in sorted(wants.get(name, set()) - present)]
    return commands


def _forward() -> None:
    """Make the kernel a router; these settings belong to the machine's own network namespace."""
    for name, value in _ROUTED_IP.items():
        Path(paths.at(f"/proc/sys/net/ipv4/{name}")).write_text(value)
