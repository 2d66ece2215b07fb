"""Cables of the compute fabric by name: switch and port at each end, after breakout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rackready.design.addresses_fabric import trunk_addresses, trunk_problem
from rackready.design.collector import without_gc
from rackready.design.endpoints import endpoints, link_rate, unit_size
from rackready.design.topology.build import build
from rackready.design.topology.ports import breakout_of, port_names
from rackready.design.topology.types import FabricPlan
from rackready.design.written_ports import link_ports
from rackready.model.base import expand_range
from rackready.model.site import Site
from rackready.profiles import loader
from rackready.profiles.scope import Scoped


@dataclass(frozen=True, slots=True)
class TrunkEnd:
    """One end of a cable between two switches.

    ``address``: of a numbered link, with prefix length; empty when unnumbered. ``peer_address`` has no prefix.
    """

    port: str
    peer: str
    peer_port: str
    address: str = ""
    peer_address: str = ""


def topology_fabric(site: Site) -> FabricPlan:
    """Return the fabric of a site's topology; without one, an empty fabric. It is built once."""
    return site.remember("topology fabric", lambda: _built(site))


def _built(site: Site) -> FabricPlan:
    if site.topology is None:
        return FabricPlan()
    with without_gc():
        return build(site.topology, endpoints(site), platform_su_nodes=unit_size(site))


def cables(site: Site) -> dict[tuple[str, int], tuple[str, str]]:
    """Return (node, rail) -> (switch, port) of every cable to a NIC of a checked site; with planes by port, in plane 1.

    With planes by rail, each rail is in one plane, whichever. It is computed once. Callers must not change it.
    """
    return site.remember("cables", lambda: _cables(site))


def _cables(site: Site) -> dict[tuple[str, int], tuple[str, str]]:
    if site.topology is not None:
        every = site.topology.planes_by == "rail"
        links = fabric_links(site)
        return {(node, rail): (switch, port) for node, rail, plane, switch, port in links if every or plane == 1}
    return {
        (link.node, int(rail)): (link.switch, port)
        for link in site.links
        for rail, port in zip(expand_range(link.rails), link_ports(site, link), strict=True)
    }


def fabric_links(site: Site, fabric: FabricPlan | None = None) -> Iterator[tuple[str, int, int, str, str]]:
    """Yield (node or device, rail, plane, switch, port) of every link between a NIC and a leaf."""
    if site.topology is None:
        yield from ((node, rail, 1, switch, port) for (node, rail), (switch, port) in cables(site).items())
        return
    made = fabric or topology_fabric(site)
    named = switch_port_names(site, made)
    for link in made.endpoints:
        yield link.node, link.nic, link.plane, link.switch, named[link.switch][link.port - 1]


def switch_port_names(site: Site, fabric: FabricPlan) -> dict[str, tuple[str, ...]]:
    """Return switch -> the names of its ports at the rate of the links, in order."""
    rate = compute_rate(site)
    systems = {switch.name: switch.os for switch in site.switches}
    return {switch.name: _ports(switch.model, rate, systems.get(switch.name, "")) for switch in fabric.switches}


def compute_rate(site: Site) -> int:
    """Return the rate of one link of the topology, Gb/s; 0 without a topology or metal nodes."""
    topology = site.topology
    if topology is None:
        return 0
    platforms = {node.platform for node in site.nodes() if node.kind == "metal"}
    return max((link_rate(loader.platform(name), topology) for name in platforms), default=0)


@Scoped
def _ports(model: str, rate: int, os: str) -> tuple[str, ...]:
    profile = loader.switch(model)
    return port_names(profile, breakout_of(profile, rate) or 1, os)


def trunk_ends(site: Site) -> dict[str, list[TrunkEnd]]:
    """Return switch -> its ends of cables to other switches, in the order of the plan. It is computed once."""
    return site.remember("trunk ends", lambda: _trunk_ends(site))


def _trunk_ends(site: Site) -> dict[str, list[TrunkEnd]]:
    fabric = topology_fabric(site)
    named = switch_port_names(site, fabric)
    numbered = (
        {}
        if trunk_problem(site, fabric)
        else {trunk: (lower, upper) for trunk, lower, upper in trunk_addresses(site, fabric)}
    )
    out: dict[str, list[TrunkEnd]] = {}
    for trunk in fabric.trunks:
        low, high = named[trunk.lower][trunk.lower_port - 1], named[trunk.upper][trunk.upper_port - 1]
        ours, theirs = numbered.get(trunk, ("", ""))
        out.setdefault(trunk.lower, []).append(TrunkEnd(low, trunk.upper, high, _link(ours), theirs))
        out.setdefault(trunk.upper, []).append(TrunkEnd(high, trunk.lower, low, _link(theirs), ours))
    return out


def _link(address: str) -> str:
    """Return an address of a numbered link with its prefix length (RFC 3021)."""
    return f"{address}/31" if address else ""
