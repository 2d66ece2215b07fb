"""The rack's wiring on this machine: one management bridge, and a pair of virtual interfaces for every cable.

It uses no network of a container engine: that would need firewall programs for nothing, and switch on forwarding for
the whole machine. The bridge has no uplink, so a rack never depends on the internet.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

from rackready_sim.errors import SimError
from rackready_sim.host import run, succeeds
from rackready_sim.plan import Cable, Machine, RackPlan


class Socket(NamedTuple):
    """A switch port that a cable's end is plugged into."""

    switch: str
    port: str


_SETTLE_TRIES = 30
_SETTLE_S = 0.1


def taken_networks() -> list[IPv4Network]:
    """Return every IPv4 network that this machine has a route to or an address in, without default routes."""
    routes = json.loads(run(["ip", "-4", "-j", "route", "show", "table", "all"]) or "[]")
    named = [route["dst"] for route in routes if route.get("dst", "default") != "default"]
    return [IPv4Network(dst, strict=False) for dst in named]


def ensure_bridge(plan: RackPlan) -> bool:
    """Create the management bridge if it does not exist; return whether it was created."""
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
    """Remove the bridge and all loose cable ends of this checkout; return what was removed."""
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
    """Allow frames between the rack's machines.

    With Docker, the kernel passes bridged frames to its firewall, which drops them.
    """
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
    """Return the network interfaces of a namespace by name (of this machine if ``pid`` is None)."""
    found: list[dict[str, Any]] = json.loads(run([*_inside(pid), "ip", "-j", "link", "show"]) or "[]")
    return {item["ifname"]: item for item in found}


def attach(plan: RackPlan, machine: Machine, pid: int, *, connected: bool = True) -> None:
    """Create a machine's eth0 with its address and connect it to the management network, or not.

    Does nothing if it is already so.
    """
    outer = f"{plan.bridge}-{machine.octet}"
    if "eth0" not in links(pid):
        _add_pair(outer, "eth0", pid)
    run(["ip", "link", "set", outer, "master", plan.bridge, "up" if connected else "down"])
    run([*_inside(pid), "ip", "address", "replace", f"{machine.address}/{plan.subnet.prefixlen}", "dev", "eth0"])
    run([*_inside(pid), "ip", "link", "set", "eth0", "up"])


def loose_end(plan: RackPlan, cable: Cable) -> str:
    """Return the name of a cable end that is plugged into no switch: it is on this machine, down."""
    return f"{plan.bridge}-{plan.machines[cable.node].octet}r{cable.rail}"


def add_nic(plan: RackPlan, cable: Cable, node_pid: int, pids: Mapping[str, int]) -> None:
    """Create a node's NIC with its cable, the cable's end loose, unless it is there already.

    ``pids``: process of every switch that runs. A NIC starts down and without address, as hardware does.
    """
    if cable.netdev in links(node_pid):
        return
    loose = loose_end(plan, cable)
    run(["ip", "link", "delete", loose], check=False)
    if socket := plugged(cable, {switch: links(pid) for switch, pid in pids.items()}):
        # the rest of a cable whose node went down; it may disappear at any moment
        run([*_inside(pids[socket.switch]), "ip", "link", "delete", socket.port], check=False)
    _add_pair(loose, cable.netdev, node_pid, mac=cable.mac, outer_mac=end_mac(cable))


def end_mac(cable: Cable) -> str:
    """Return the MAC address of a cable's end, by which it is found in whatever port it is: the NIC's, made local."""
    return f"02{cable.mac[2:]}"


def plugged(cable: Cable, found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Socket | None:
    """Return the switch port that a cable's end is plugged into; None if it is loose.

    ``found``: switch -> its network interfaces.
    """
    mac = end_mac(cable)
    for switch, ports in found.items():
        for port, link in ports.items():
            if link.get("address") == mac and "link_index" in link:  # a bridge takes the address of its first port
                return Socket(switch, port)
    return None


def unplug(plan: RackPlan, cable: Cable, socket: Socket, pids: Mapping[str, int]) -> None:
    """Pull a cable's end out of a switch port."""
    _move(socket.port, loose_end(plan, cable), pids[socket.switch], os.getpid())


def plug(plan: RackPlan, cable: Cable, socket: Socket, pids: Mapping[str, int]) -> bool:
    """Plug a cable's loose end into a switch port; return False if another cable is there."""
    if socket.port in links(pids[socket.switch]):
        return False
    _move(loose_end(plan, cable), socket.port, None, pids[socket.switch])
    return True


def _add_pair(outer: str, inner: str, pid: int, mac: str = "", outer_mac: str = "") -> None:
    """Add a pair of interfaces, one end inside the machine.

    The kernel removes the pair of a machine that went down with a delay: wait for that.
    """
    argv = [
        "ip",
        "link",
        "add",
        "name",
        outer,
        *(("address", outer_mac) if outer_mac else ()),
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


def _move(name: str, new: str, source: int | None, target: int) -> None:
    run([*_inside(source), "ip", "link", "set", name, "down"])
    run([*_inside(source), "ip", "link", "set", name, "netns", str(target), "name", new])


def _inside(pid: int | None) -> tuple[str, ...]:
    return () if pid is None else ("nsenter", "--target", str(pid), "--net", "--")
