"""Ports beside the compute fabric: in-band, storage and out-of-band.

Ports of nodes: a port is served by a switch of its network that stands in the node's own rack: the rule looks at nothing else, so a rack that is added
moves no cable. Node slot ``s`` (its number in the rack) with ``k`` ports on a switch takes the switch's ports from ``(s - 1) x k + 1``. What has no such
switch, or a port of another rate, is counted in a note.

Management ports of switches and devices: the out-of-band switch of their rack serves them, from its last port down by rack unit (unit 1 has the last),
since no two share a unit. Their plug and rate are in the switch's profile or in the site file; ports below those of ``rack_slots`` nodes stay the nodes'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rackready.design.addresses import nic_plan
from rackready.design.cabling.sockets import Socket, SwitchPorts, flat, switch_ports
from rackready.design.cabling.types import Racked, Run
from rackready.design.names import listed
from rackready.model.profile import ManagementPort, OtherNic
from rackready.model.site import Node, Rack, Site, Switch
from rackready.profiles import loader

_ROLES = {"inband": "in_band", "storage": "storage", "oob": "oob"}
"""Role of a port in platform profiles to role of a switch in the site."""
_SHOWN = 4
_CALLED = {"in_band": "in-band", "storage": "storage", "oob": "out-of-band"}


_Places = Mapping[str, tuple[str, int]]


def beside(site: Site, racked: Racked, places: _Places, models: Mapping[str, str]) -> tuple[list[Run], list[str]]:
    """Return runs and notes of all ports beside the compute fabric. ``places``: switch to (rack, unit); ``models``: switch to its model."""
    left: dict[tuple[str, str], int] = defaultdict(int)
    serving: dict[tuple[str, str], list[Switch]] = defaultdict(list)
    for switch in site.switches:
        if switch.rack is not None and switch.unit is not None and switch.role != "compute":
            serving[switch.rack, switch.role].append(switch)
    runs = [run for rack in site.racks for run in _rack(site, rack, serving, (racked, left))]
    notes = [f"{_CALLED[role]}: {count} ports of nodes are not cabled: {why}." for (role, why), count in sorted(left.items())]
    managed, missing = _managed(_Serving(site, serving), racked, [*_management(site, places, models)])
    return runs + managed, notes + missing


class _Managed(NamedTuple):
    """What is managed out of band: its place, its port, and why it has none."""

    name: str
    rack: str
    unit: int
    port: ManagementPort | None
    why: str


def _management(site: Site, places: _Places, models: Mapping[str, str]) -> Iterator[_Managed]:
    """Yield switches, those of the fabric included, and devices. Out-of-band switches themselves are left out: their uplinks are no matter of a rack."""
    roles = {switch.name: switch.role for switch in site.switches}
    for name, model in models.items():
        if roles.get(name) != "oob":
            rack, unit = places.get(name, ("", 0))
            yield _Managed(name, rack, unit, loader.switch(model).management, f"the management port of {model} is not published in its profile")
    for device in site.devices:
        if device.kind != "patch_panel":
            why = f"the site does not say the management port of devices of kind {device.kind} (management)"
            yield _Managed(device.name, device.rack or "", device.unit or 0, device.management, why)


class _Serving:
    """The out-of-band switch of each rack, and its first port that no node takes."""

    def __init__(self, site: Site, serving: Mapping[tuple[str, str], list[Switch]]) -> None:
        self._first = {rack: switches[0] for (rack, role), switches in serving.items() if role == "oob"}
        self._below = {rack.name: _node_ports(site, rack, len(serving.get((rack.name, "oob"), []))) for rack in site.racks if rack.name in self._first}

    def socket(self, item: _Managed) -> tuple[Switch, SwitchPorts, Socket] | str:
        """Return the switch that serves an item and the socket there, or why there is none."""
        switch = self._first.get(item.rack)
        if switch is None:
            return "no out-of-band switch stands in their rack" if item.rack else "the site does not say where they stand"
        if item.port is None or not item.unit:
            return item.why if item.port is None else "they have no unit in their rack"
        ports = switch_ports(switch.model, item.port.rate)
        number = len(ports.sockets) - item.unit if ports is not None else -1
        if ports is None or ports.sockets[0].form != item.port.cage:
            return f"{switch.model} has no {item.port.cage} ports of {item.port.rate} Gb/s"
        if number < self._below[item.rack]:
            return f"{switch.name} has {len(ports.sockets)} ports, too few for its rack"
        return switch, ports, ports.sockets[number]


def _node_ports(site: Site, rack: Rack, switches: int) -> int:
    """Return how many ports of one out-of-band switch are kept for a rack's nodes."""
    metal = [(node.slot or place, node) for place, node in enumerate(rack.nodes, 1) if node.kind == "metal"]
    most = max((sum(role == "oob" for _, role in _used(site, node)) for _, node in metal), default=0)
    slots = site.networks.rack_slots if site.networks is not None and metal else max((slot for slot, _ in metal), default=0)
    return slots * -(-most // max(1, switches))


def _managed(serving: _Serving, racked: Racked, items: list[_Managed]) -> tuple[list[Run], list[str]]:
    """Return the runs of management ports, and notes of those that are missing, by why."""
    runs: list[Run] = []
    missing: dict[str, list[str]] = {}
    for item in items:
        found = serving.socket(item)
        if isinstance(found, str) or item.port is None:
            missing.setdefault(str(found), []).append(item.name)
            continue
        switch, ports, socket = found
        near = racked.cage(racked.device(item.name, item.rack, item.unit), item.port.name, item.port.cage)
        far = racked.cage(racked.device(switch.name, item.rack, switch.unit or 0), socket.cage, socket.form, socket.connectors)
        runs.append(Run(near, item.port.name, 0, far, socket.port, socket.sub, racked.link(item.port.rate, ports.lanes, "oob", ports.layer)))
    return runs, [f"out-of-band: management ports of {_some(names)} are not cabled: {why}." for why, names in missing.items()]


def _some(names: list[str]) -> str:
    """Return few names as they are, many as their number with the first."""
    return listed(names) if len(names) <= _SHOWN else f"{len(names)} switches and devices ({names[0]}, ...)"


def _used(site: Site, node: Node) -> Iterator[tuple[OtherNic, str]]:
    """Give a node's ports beside the compute fabric, each with the network that it belongs to: as the node's NIC plan says, else its platform's profile."""
    plan = nic_plan(site, node)
    said = {use.name: use.role for use in plan.nics} if plan is not None else {}
    yield from ((nic, said.get(nic.name, _ROLES[nic.role])) for nic in loader.platform(node.platform).other_nics)


def _rack(site: Site, rack: Rack, serving: dict[tuple[str, str], list[Switch]], work: tuple[Racked, dict[tuple[str, str], int]]) -> Iterator[Run]:
    for place, node in enumerate(rack.nodes, 1):
        if node.kind == "virtual":
            continue
        by_role: dict[str, list[OtherNic]] = defaultdict(list)
        for nic, role in _used(site, node):
            by_role[role].append(nic)
        for role, nics in by_role.items():
            switches = serving.get((rack.name, role), [])
            if not switches:
                work[1][role, f"no {_CALLED[role]} switch stands in their rack"] += len(nics)
                continue
            yield from _node(node, node.slot or place, _Served(role, nics, switches, rack.name), work)


class _Served:
    """Ports of one role of one node, and the switches that serve them in turn."""

    def __init__(self, role: str, nics: list[OtherNic], switches: list[Switch], rack: str) -> None:
        self.role, self.nics, self.switches, self.rack = role, nics, switches, rack
        self.each = -(-len(nics) // len(switches))
        """Ports of one node on one switch."""


def _node(node: Node, slot: int, served: _Served, work: tuple[Racked, dict[tuple[str, str], int]]) -> Iterator[Run]:
    racked, left = work
    for count, nic in enumerate(served.nics):
        switch = served.switches[count % len(served.switches)]
        number = (slot - 1) * served.each + count // len(served.switches)
        ports = switch_ports(switch.model, nic.rate)
        why = _unfit(node, nic, switch, number)
        if why or ports is None or node.unit is None or switch.unit is None:
            left[served.role, why] += 1
            continue
        socket = ports.sockets[number]
        near = racked.cage(racked.device(node.name, served.rack, node.unit), nic.name, flat(nic.cage), max(1, ports.lanes // 4))
        far = racked.cage(racked.device(switch.name, served.rack, switch.unit), socket.cage, socket.form, socket.connectors)
        yield Run(near, nic.name, 0, far, socket.port, socket.sub, racked.link(nic.rate, ports.lanes, served.role, ports.layer))


def _unfit(node: Node, nic: OtherNic, switch: Switch, number: int) -> str:
    """Return why a port cannot be served, empty when it can."""
    ports = switch_ports(switch.model, nic.rate)
    if ports is None:
        return f"{switch.model} has no ports of {nic.rate} Gb/s"
    if number >= len(ports.sockets):
        return f"{switch.name} has {len(ports.sockets)} ports, too few for its rack"
    if node.unit is None:
        return "their node has no unit"
    if not nic.cage or not ports.sockets[number].form:
        return f"the cage of {node.platform} or of {switch.model} is not published"
    return ""
