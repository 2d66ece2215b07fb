"""Addresses of compute NICs: from the pool ``networks.compute``, else from the subnet of each rail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rackready.design.assign import FIRST_HOST, dotted
from rackready.design.endpoints import rack_number, unit_of
from rackready.model.network import ComputeNetwork
from rackready.model.site import Node, Rack, Site
from rackready.profiles import loader


class NicAddress(NamedTuple):
    """One compute NIC. ``gateway`` is host 1 of its subnet, on the leaf; empty in an InfiniBand fabric."""

    rail: int
    plane: int
    address: str
    prefix: int
    vlan: int
    gateway: str


def compute_addresses(site: Site, rack: Rack, node: Node) -> tuple[NicAddress, ...]:
    """Return the addresses of a node's compute NICs. Empty for a virtual node, and where the site plans none."""
    if site.networks is not None and site.networks.compute is not None:
        return _planned(site, rack, node)
    return _by_rail(site, node)


def _rails(site: Site) -> dict[int, tuple[int, int, int]]:
    return {
        rail.rail: (int(rail.subnet.network_address), rail.subnet.prefixlen, rail.vlan) for rail in site.fabric.rails
    }


def racks_in_subnet(network: ComputeNetwork, rack_slots: int) -> int:
    """Return how many consecutive rack numbers one subnet of the compute network has room for."""
    return ((1 << (32 - network.per_unit)) - 1 - FIRST_HOST - 1) // rack_slots


def subnet_number(network: ComputeNetwork, unit: int, plane: int, rail: int) -> int:
    """Return the number (from 0) of the subnet of a unit, plane and rail in the pool.

    Subnets are numbered unit by unit, so a further unit changes nothing.
    """
    return ((unit - 1) * network.planes + plane - 1) * network.rails + rail - 1


def _planned(site: Site, rack: Rack, node: Node) -> tuple[NicAddress, ...]:
    networks, number = site.networks, rack_number(rack)
    if networks is None or networks.compute is None or number is None or node.slot is None or node.kind == "virtual":
        return ()
    network = networks.compute
    room = racks_in_subnet(network, networks.rack_slots)
    if room < 1:
        return ()
    unit = unit_of(site, rack)
    host = FIRST_HOST + (number - 1) % room * networks.rack_slots + node.slot
    topology = site.topology
    planes = range(1, topology.planes + 1) if topology is not None and topology.planes_by == "port" else (1,)
    subnets = site.remember(
        f"subnets {unit} {node.platform}", lambda: tuple(_unit_subnets(network, node.platform, unit, planes))
    )
    return tuple(
        NicAddress(rail, plane, dotted(first + host), network.per_unit, vlan, gateway)
        for rail, plane, first, vlan, gateway in subnets
    )


def _unit_subnets(
    network: ComputeNetwork, platform: str, unit: int, planes: Iterable[int]
) -> Iterator[tuple[int, int, int, int, str]]:
    """Yield (rail, plane, first address, VLAN, gateway) of every subnet with NICs of a platform's nodes.

    They are the same for all nodes of a unit.
    """
    size, pool = 1 << (32 - network.per_unit), int(network.pool.network_address)
    for nic in loader.platform(platform).nics:
        for plane in planes:
            first = pool + subnet_number(network, unit, plane, nic.rail) * size
            yield (
                nic.rail,
                plane,
                first,
                network.vlan_first + (plane - 1) * network.rails + nic.rail - 1,
                dotted(first + 1),
            )


def _by_rail(site: Site, node: Node) -> tuple[NicAddress, ...]:
    """Return the addresses in a site with one subnet per rail: node k gets host 10 + k."""
    if node.kind == "virtual":
        return ()
    rails = site.remember("rails", lambda: _rails(site))
    host = FIRST_HOST + site.position_of(node.name)
    known = ((nic.rail, rails[nic.rail]) for nic in loader.platform(node.platform).nics if nic.rail in rails)
    return tuple(
        NicAddress(rail, 1, dotted(first + host), prefix, vlan, dotted(first + 1))
        for rail, (first, prefix, vlan) in known
    )
