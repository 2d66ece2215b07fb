"""Places of nodes in the scalable units of the compute fabric: the input of ``design/topology``."""

from __future__ import annotations

from collections.abc import Iterable

from rackready.design.expand_values import last_number
from rackready.design.topology.ports import radix_of
from rackready.design.topology.sizing import ports_down
from rackready.design.topology.types import EndpointNode
from rackready.model.profile import PlatformProfile
from rackready.model.site import Node, Rack, Site
from rackready.model.topology import Topology
from rackready.profiles import loader


def rack_number(rack: Rack) -> int | None:
    """Return the number of a rack: its index, else the last number of its name; None if it has neither."""
    return rack.index if rack.index is not None else last_number(rack.name)


def unit_size(site: Site) -> int | None:
    """Return the number of nodes in a scalable unit of the topology; None without a topology, or if nothing defines it.

    It is the topology's own figure, else the smallest among the platforms, else as many as a leaf has ports down.
    """
    return site.remember("unit size", lambda: _unit_size(site))


def _unit_size(site: Site) -> int | None:
    topology = site.topology
    if topology is None:
        return None
    return topology.su_nodes or _published(node.platform for node in site.nodes()) or _leaf_down(site, topology)


def _published(platforms: Iterable[str]) -> int | None:
    """Return the smallest size of a unit among the profiles of these platforms; None if no profile has one."""
    known = set(loader.known("platform"))
    figures = [loader.platform(platform).su_nodes for platform in sorted(set(platforms) & known)]
    return min((int(figure.value) for figure in figures if figure is not None), default=None)


def _leaf_down(site: Site, topology: Topology) -> int | None:
    """Return the ports down of a leaf; None if there is none yet: the fabric's own checks say why."""
    wired = {node.platform for node in site.nodes() if _wired(site, node)}
    rates = {link_rate(loader.platform(platform), topology) for platform in wired}
    if len(rates) != 1:
        return None
    radix, problem = radix_of("topology.leaf", topology.leaf, rates.pop(), topology.link)
    return ports_down(radix, topology.oversubscription) if problem is None else None


def unit_of(site: Site, rack: Rack) -> int:
    """Return the scalable unit of a rack; 1 if nothing defines it.

    It is the given unit, else follows from the number of the rack and the racks per unit.

    With ``networks`` a rack counts as ``rack_slots`` nodes, whatever it holds, so that an added node moves
    nothing. Without, every rack counts as many as the largest one, so that a rack with fewer stays in its order.
    """
    if rack.su is not None:
        return rack.su
    number, racks = rack_number(rack), _racks_of_unit(site, rack)
    return 1 if number is None or racks is None else (number - 1) // racks + 1


def _racks_of_unit(site: Site, rack: Rack) -> int | None:
    """Return how many racks share a unit, at least 1; None if the size of a unit is unknown, or the rack is empty.

    With a topology all racks have one size of a unit, as the fabric has; without, each that of its own platforms.
    """
    if not rack.nodes:
        return None
    size = unit_size(site) if _in_fabric(site, rack) else _published(node.platform for node in rack.nodes)
    if size is None:
        return None
    held = site.networks.rack_slots if site.networks is not None else _largest(site)
    return max(1, size // held)


def _in_fabric(site: Site, rack: Rack) -> bool:
    """Return whether the size of the topology's units counts for a rack: all if it is given, else those with NICs."""
    if site.topology is None:
        return False
    return site.topology.su_nodes is not None or any(_wired(site, node) for node in rack.nodes)


def _wired(site: Site, node: Node) -> bool:
    """Return whether a node has NICs of its own on the compute fabric."""
    return node.kind != "virtual" and node.platform in site.remember("platforms with NICs", lambda: _with_nics(site))


def _with_nics(site: Site) -> set[str]:
    """Return the platforms of a site whose profiles have compute NICs."""
    found = {node.platform for node in site.nodes()} & set(loader.known("platform"))
    return {platform for platform in found if loader.platform(platform).nics}


def _largest(site: Site) -> int:
    """Return the most nodes on the compute fabric in any rack; of all nodes if none is on it."""
    return site.remember(
        "largest rack",
        lambda: (
            max((sum(_wired(site, node) for node in rack.nodes) for rack in site.racks), default=0)
            or max((len(rack.nodes) for rack in site.racks), default=0)
        ),
    )


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
