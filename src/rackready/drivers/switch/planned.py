"""Planned cables of the Ethernet fabric, with the place of both ends, in the form of the cabling check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackready.design.facts import node_facts, switch_facts
from rackready.design.placement import place_switches
from rackready.design.switches import PortConfig, SwitchConfig
from rackready.design.wiring import topology_fabric
from rackready.drivers.cabling_check.types import PlannedCable, PlannedEnd
from rackready.model.site import Site

Places = Mapping[str, tuple[str, int]]
"""Device -> rack and unit; 0 where the site gives no unit."""


def planned_cables(site: Site, configs: Iterable[SwitchConfig]) -> list[PlannedCable]:
    """Return the cables of these switches: to nodes, and between two of them. Each is there once.

    A port of a switch has the rail of its NIC: its VLAN is the rail's.
    """
    own = list(configs)
    places, names = _places(site), {config.name for config in own}
    out = []
    for config in own:
        most = switch_facts(site, config.name).profile.rate
        for port in config.ports:
            near = _end(places, config.name, port.name, port.rail)
            if port.node:
                far = _end(places, port.node, port.netdev, port.rail)
                out.append(PlannedCable(far, near, port.speed or min(most, _nic_rate(site, port))))
            elif port.peer in names and config.name < port.peer:
                out.append(PlannedCable(near, _end(places, port.peer, port.peer_port, 0), port.speed or 0))
    return out


def _nic_rate(site: Site, port: PortConfig) -> int:
    """Return the rate of the NIC at a port's cable, Gb/s: the link has it if the site sets no other."""
    return next((nic.rate for nic in node_facts(site, port.node).nics if nic.rail == port.rail), 0)


def _end(places: Places, device: str, port: str, rail: int) -> PlannedEnd:
    rack, unit = places.get(device, ("", 0))
    return PlannedEnd(device, port, rack, unit, rail)


def _places(site: Site) -> Places:
    switches = place_switches(site, topology_fabric(site)).places
    return switches | {node.name: (rack.name, node.unit or 0) for rack in site.racks for node in rack.nodes}
