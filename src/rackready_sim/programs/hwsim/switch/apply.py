"""Apply the switch's configuration to its real ports: one Linux bridge for each VLAN."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from .. import paths, store
from . import revisions
from .schema import Setting

_FABRIC_MTU = 9216
_PERIOD_S = 1.0


def main(_argv: list[str]) -> int:
    """Apply the configuration to ports that came or went."""
    revisions.boot()
    bring(revisions.read().running().settings)
    return 0


def serve() -> int:
    """Watch the confirmation deadline until stopped; first apply the configuration to the ports."""
    from . import asic  # noqa: PLC0415 - it reads the settings that this module applies

    main([])
    asic.start()
    while True:
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
    """Return the wanted state of each port: up, MTU in bytes, access VLAN or None."""
    ports: dict[str, dict[str, Any]] = {}
    for words in settings:
        if words[0] != "interface" or not words[1].startswith("swp"):
            continue
        port = ports.setdefault(words[1], {"up": True, "mtu": _FABRIC_MTU, "vlan": None})
        if words[2:4] == ("link", "state"):
            port["up"] = words[4] == "up"
        elif words[2:4] == ("link", "mtu"):
            port["mtu"] = int(words[4])
        elif words[2:4] == ("bridge", "domain") and len(words) > 6 and words[5] in {"access", "untagged"}:  # noqa: PLR2004
            port["vlan"] = int(words[6])
    return ports


def links() -> dict[str, dict[str, Any]]:
    """Return the kernel's ports and bridges by name."""
    done = subprocess.run(["ip", "-json", "-details", "link", "show"], check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return {item["ifname"]: item for item in found if item.get("ifname")}


def bring(settings: set[Setting]) -> None:
    """Apply the settings to all ports. Ports without configuration are down, as on a new switch."""
    have, ports = links(), wanted(settings)
    present = [name for name in have if name.startswith("swp")]
    vlans = {port["vlan"] for name, port in ports.items() if name in present and port["vlan"]}
    commands = [f"link add br{vlan} type bridge mcast_snooping 0" for vlan in sorted(vlans) if f"br{vlan}" not in have]
    commands += [f"link set br{vlan} up" for vlan in sorted(vlans)]
    for name in present:
        commands += _port(have[name], ports.get(name, {"up": False, "mtu": 1500, "vlan": None}))
    for name in have:
        if name.startswith("br") and name[2:].isdigit() and int(name[2:]) not in vlans:
            commands.append(f"link del {name}")
    if commands:
        subprocess.run(
            ["ip", "-batch", "-", "-force"], check=False, input="\n".join(commands), text=True, capture_output=True
        )


def _port(have: dict[str, Any], port: dict[str, Any]) -> list[str]:
    name, commands = have["ifname"], []
    if have.get("mtu") != port["mtu"]:
        commands.append(f"link set {name} mtu {port['mtu']}")
    master = f"br{port['vlan']}" if port["vlan"] else None
    if have.get("master") != master:
        commands.append(f"link set {name} master {master}" if master else f"link set {name} nomaster")
    if ("UP" in have.get("flags", [])) != port["up"]:
        commands.append(f"link set {name} {'up' if port['up'] else 'down'}")
    return commands


def platform_ports() -> list[str]:
    """Return the names of all ports of the switch."""
    state = store.hardware() if paths.at("/opt/hw/state.json").exists() else {"ports": {}}
    return list(state["ports"])
