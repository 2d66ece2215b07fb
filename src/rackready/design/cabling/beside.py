"""Ports beside the compute fabric: in-band, storage and out-of-band.

A port is served by a switch of its network that stands in the node's own rack: the rule looks at nothing else, so a rack that is added moves no cable.
Node slot ``s`` (its number in the rack) with ``k`` ports on a switch takes the switch's ports from ``(s - 1) x k + 1``. What has no such switch, or a
port of another rate, is counted in a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rackready.design.cabling.sockets import flat, switch_ports
from rackready.design.cabling.types import Racked, Run
from rackready.model.profile import OtherNic
from rackready.model.site import Node, Rack, Site, Switch
from rackready.profiles import loader

_ROLES = {"inband": "in_band", "storage": "storage", "oob": "oob"}
"""Role of a port in platform profiles to role of a switch in the site."""
_CALLED = {"inband": "in-band", "storage": "storage", "oob": "out-of-band"}


def beside(site: Site, racked: Racked) -> tuple[list[Run], list[str]]:
    """Return runs and notes of all ports beside the compute fabric."""
    left: dict[tuple[str, str], int] = defaultdict(int)
    serving: dict[tuple[str, str], list[Switch]] = defaultdict(list)
    for switch in site.switches:
        if switch.rack is not None and switch.unit is not None and switch.role != "compute":
            serving[switch.rack, switch.role].append(switch)
    runs = [run for rack in site.racks for run in _rack(rack, serving, racked, left)]
    notes = [f"{_CALLED[role]}: {count} ports of nodes are not cabled: {why}." for (role, why), count in sorted(left.items())]
    managed = sum(1 for switch in site.switches if switch.role != "oob") + len(site.devices)
    if managed:
        notes.append(f"out-of-band: management ports of {managed} switches and devices are not cabled: which port they take is not in the site.")
    return runs, notes


def _rack(rack: Rack, serving: dict[tuple[str, str], list[Switch]], racked: Racked, left: dict[tuple[str, str], int]) -> Iterator[Run]:
    for place, node in enumerate(rack.nodes, 1):
        if node.kind == "virtual":
            continue
        by_role: dict[str, list[OtherNic]] = defaultdict(list)
        for nic in loader.platform(node.platform).other_nics:
            by_role[nic.role].append(nic)
        for role, nics in by_role.items():
            switches = serving.get((rack.name, _ROLES[role]), [])
            if not switches:
                left[role, f"no {_CALLED[role]} switch stands in their rack"] += len(nics)
                continue
            yield from _node(node, node.slot or place, _Served(role, nics, switches, rack.name), (racked, left))


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
        yield Run(near, nic.name, 0, far, socket.port, socket.sub, nic.rate, ports.lanes, served.role, ports.layer)


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
