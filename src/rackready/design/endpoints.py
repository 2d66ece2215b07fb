"""Places of nodes in the scalable units of the compute fabric: the input of ``design/topology``."""

from __future__ import annotations

from collections.abc import Iterable

from rackready.design.expand_values import last_number
from rackready.design.topology.types import EndpointNode
from rackready.model.profile import PlatformProfile
from rackready.model.site import Rack, Site
from rackready.model.topology import Topology
from rackready.profiles import loader


def rack_number(rack: Rack) -> int | None:
    """Return the number of a rack: its index, else the last number of its name; None if it has neither."""
    return rack.index if rack.index is not None else last_number(rack.name)


def unit_size(site: Site, platforms: Iterable[str] | None = None) -> int | None:
    """Return the number of nodes in a scalable unit; None if nothing defines it.

    It is the topology's own figure, else the smallest among the platforms (all platforms of the site by default).

    None when nobody says.
    """
    topology = site.topology
    if topology is not None and topology.su_nodes is not None:
        return topology.su_nodes
    wanted = {node.platform for node in site.nodes()} if platforms is None else set(platforms)
    figures = [loader.platform(platform).su_nodes for platform in sorted(wanted)]
    return min((int(figure.value) for figure in figures if figure is not None), default=None)


def unit_of(site: Site, rack: Rack) -> int:
    """Return the scalable unit of a rack; 1 if nothing defines it.

    It is the given unit, else follows from the number of the rack and the racks per unit.

    With ``networks`` a rack counts as ``rack_slots`` nodes, whatever it holds, so that an added node moves
    nothing. The unit depends on the rack alone, never on the racks around it.
    """
    if rack.su is not None:
        return rack.su
    number, racks = rack_number(rack), _racks_of_unit(site, rack)
    return 1 if number is None or racks is None else (number - 1) // racks + 1


def _racks_of_unit(site: Site, rack: Rack) -> int | None:
    """Return how many racks such as this one share a unit, at least 1; None if the size of a unit is unknown or 0."""
    size = unit_size(site, (node.platform for node in rack.nodes))
    if size is None or not rack.nodes:
        return None
    held = site.networks.rack_slots if site.networks is not None else len(rack.nodes)
    return max(1, size // held)


def _first_slot(site: Site, rack: Rack) -> int | None:
    """Return the place of a rack's first node in its unit, from 1; None if nothing defines it.

    It is the given place, else with ``networks`` follows from the rack's number.

    With ``networks``: ((number - 1) modulo the racks of a unit) x ``rack_slots`` + 1, so that an added node
    recables no other.
    """
    if rack.su_slot is not None:
        return rack.su_slot
    number, racks = rack_number(rack), _racks_of_unit(site, rack)
    if site.networks is None or number is None or racks is None:
        return None
    return (number - 1) % racks * site.networks.rack_slots + 1


def link_rate(platform: PlatformProfile, topology: Topology) -> int:
    """Return the rate of one link of a node, Gb/s.

    This is the rate of its NICs, divided by the planes if every NIC has a port in each.
    """
    rate = max((nic.rate for nic in platform.nics), default=0)
    return rate // topology.planes if topology.planes_by == "port" else rate


def endpoints(site: Site) -> list[EndpointNode]:
    """Return every node that has compute NICs, by unit and by its number in the site. Empty without a topology.

    Virtual nodes use their host's NICs and are left out. In a unit, a node's place is that of its rack's first node
    (``su_slot``, else with ``networks`` from the rack's number) plus its own slot; without either, it is the next free
    place, in the order of numbers.
    """
    topology = site.topology
    if topology is None:
        return []
    out = []
    for rack in site.racks:
        unit, first = unit_of(site, rack), _first_slot(site, rack)
        for place, node in enumerate(rack.nodes):
            platform = loader.platform(node.platform)
            if not platform.nics or node.kind == "virtual":
                continue
            slot = 0 if first is None else first + (node.slot or place + 1) - 1
            rails = tuple(nic.rail for nic in platform.nics)
            out.append(
                (
                    unit,
                    site.position_of(node.name),
                    EndpointNode(node.name, unit, rails, link_rate(platform, topology), slot),
                )
            )
    out.sort(key=lambda item: item[:2])
    return [node for _, _, node in out]
