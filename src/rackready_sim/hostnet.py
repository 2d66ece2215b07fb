"""The rack's wiring on this machine: one bridge for the management network, and a pair of virtual interfaces for every cable.

No container engine network is used: its firewall programs would be needed for nothing, and forwarding would be switched
on for the whole machine. The bridge has no way out, so that a rack never depends on the internet.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from rackready_sim.errors import SimError
from rackready_sim.host import run, succeeds
from rackready_sim.plan import Cable, Machine, Plan

_SETTLE_TRIES = 30
_SETTLE_S = 0.1


def taken_networks() -> list[IPv4Network]:
    """Return every IPv4 network that this machine has a route to or an address in, default routes aside."""
    routes = json.loads(run(["ip", "-4", "-j", "route", "show", "table", "all"]) or "[]")
    named = [route["dst"] for route in routes if route.get("dst", "default") != "default"]
    return [IPv4Network(dst, strict=False) for dst in named]


def ensure_bridge(plan: Plan) -> bool:
    """Make the management bridge if it is not there; return whether it was made."""
    made = plan.bridge not in links()
    if made:
        run(["ip", "link", "add", "name", plan.bridge, "type", "bridge"])
    address = f"{plan.gateway}/{plan.subnet.prefixlen}"
    run(["ip", "link", "set", plan.bridge, "alias", f"rackready.clone={plan.clone}"])
    run(["ip", "address", "replace", address, "dev", plan.bridge])
    run(["ip", "link", "set", plan.bridge, "up"])
    _pass_firewall(plan.bridge)
    return made


def remove_all(clone: str) -> list[str]:
    """Remove the bridge and every loose end of this clone's cables; return what was removed."""
    prefix = f"rr-{clone}"
    removed = []
    if shutil.which("iptables") is not None:
        while succeeds(["iptables", "--wait", "--delete", *_between(prefix)]):
            removed.append(f"firewall rule of {prefix}")
    for name in links():
        if name == prefix or name.startswith(f"{prefix}-"):
            run(["ip", "link", "delete", name], check=False)
            removed.append(name)
    return removed


def _pass_firewall(bridge: str) -> None:
    """Let frames between the rack's own machines through: where Docker runs too, the kernel shows bridged frames to its firewall, which drops them."""
    if _firewall_sees_bridges() and not succeeds(["iptables", "--wait", "--check", *_between(bridge)]):
        run(["iptables", "--wait", "--insert", *_between(bridge)])


def _firewall_sees_bridges() -> bool:
    setting = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    return (
        shutil.which("iptables") is not None and setting.exists() and setting.read_text(encoding="utf-8").strip() == "1"
    )


def _between(bridge: str) -> tuple[str, ...]:
    return ("FORWARD", "--in-interface", bridge, "--out-interface", bridge, "--jump", "ACCEPT")


def links(pid: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the network interfaces of a namespace (this machine's own when ``pid`` is None) by name."""
    found: list[dict[str, Any]] = json.loads(run([*_inside(pid), "ip", "-j", "link", "show"]) or "[]")
    return {item["ifname"]: item for item in found}


def attach(plan: Plan, machine: Machine, pid: int, *, connected: bool = True) -> None:
    """Make a machine's eth0 with its address, and connect it to the management network, or not. Does nothing when that is so."""
    outer = f"{plan.bridge}-{machine.octet}"
    if "eth0" not in links(pid):
        _add_pair(outer, "eth0", pid)
    run(["ip", "link", "set", outer, "master", plan.bridge, "up" if connected else "down"])
    run([*_inside(pid), "ip", "address", "replace", f"{machine.address}/{plan.subnet.prefixlen}", "dev", "eth0"])
    run([*_inside(pid), "ip", "link", "set", "eth0", "up"])


def loose_end(plan: Plan, cable: Cable) -> str:
    """Return the name of the end of a cable that is plugged into no switch: it lies on this machine, down."""
    return f"{plan.bridge}-{plan.machines[cable.node].octet}r{cable.rail}"


def plug(plan: Plan, cable: Cable, node_pid: int, switch_pid: int, *, connected: bool) -> bool:
    """Make a node's NIC exist, and its cable end where it should: in the switch, or loose. Returns whether a switch port changed.

    ``switch_pid`` is 0 when the switch does not run. A NIC starts down, without address, as hardware does.
    """
    loose = loose_end(plan, cable)
    wanted = connected and bool(cable.switch) and switch_pid > 0
    if cable.netdev not in links(node_pid):
        _forget(loose, cable.port if switch_pid else "", switch_pid)
        _add_pair(loose, cable.netdev, node_pid, mac=cable.mac)
    if not cable.switch or not switch_pid:
        return False
    plugged = cable.port in links(switch_pid)
    if wanted and not plugged:
        _move(loose, cable.port, None, switch_pid)
    elif plugged and not wanted:
        _move(cable.port, loose, switch_pid, os.getpid())
    return wanted != plugged


def _add_pair(outer: str, inner: str, pid: int, mac: str = "") -> None:
    """Add a pair of interfaces, one end inside. The kernel removes the pair of a machine that went down a moment later: wait for it."""
    argv = [
        "ip",
        "link",
        "add",
        "name",
        outer,
        "type",
        "veth",
        "peer",
        "name",
        inner,
        *(("address", mac) if mac else ()),
        "netns",
        str(pid),
    ]
    for attempt in range(_SETTLE_TRIES):
        try:
            run(argv)
        except SimError:
            if attempt == _SETTLE_TRIES - 1:
                raise
            run(["ip", "link", "delete", outer], check=False)
            time.sleep(_SETTLE_S)
        else:
            return


def _forget(loose: str, port: str, switch_pid: int) -> None:
    """Remove what is left of a cable whose node went down; it may be gone at any moment."""
    run(["ip", "link", "delete", loose], check=False)
    if port:
        run([*_inside(switch_pid), "ip", "link", "delete", port], check=False)


def _move(name: str, new: str, source: int | None, target: int) -> None:
    run([*_inside(source), "ip", "link", "set", name, "down"])
    run([*_inside(source), "ip", "link", "set", name, "netns", str(target), "name", new])


def _inside(pid: int | None) -> tuple[str, ...]:
    return () if pid is None else ("nsenter", "--target", str(pid), "--net", "--")
