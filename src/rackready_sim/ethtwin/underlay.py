"""The planned underlay as the twin needs it: switches with their routing, and the cables between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface

from rackready.design.switches import Gateway, Routing, as_numbers, gateways_of, routing_of
from rackready.design.topology.types import Tier
from rackready.design.wiring import TrunkEnd, cables, topology_fabric, trunk_ends
from rackready.model.site import Site
from rackready_sim.errors import describe


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a cable. ``peer``: the other switch; ``peer_interface``: the interface of its end in the twin."""

    interface: str
    name: str
    peer: str
    peer_name: str
    peer_interface: str
    peer_asn: int
    address: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class Router:
    """One switch. ``prefixes``: what it has to announce."""

    name: str
    tier: Tier
    routing: Routing
    gateways: tuple[Gateway, ...]
    ports: tuple[Port, ...]
    prefixes: tuple[str, ...]


def underlay_of(site: Site) -> dict[str, Router]:
    """Return switch -> router of a site's planned underlay, in the order of the plan; tenants are not part of it.

    Raises SimError if nothing is routed, or a switch has no loopback.
    """
    ends = trunk_ends(site)
    if not ends:
        raise describe(
            "fabric twin",
            "a topology with leafs and spines",
            "no cable between switches",
            "A fabric of leafs alone has no routes to rehearse.",
        )
    open_to_all = site.model_copy(update={"tenants": []})
    tiers = {switch.name: switch.tier for switch in topology_fabric(site).switches}
    nodes: dict[str, dict[str, None]] = {}
    for (node, _), (switch, _) in cables(site).items():
        nodes.setdefault(switch, {})[node] = None
    ports = _ports(site, ends)
    return {name: _router(open_to_all, name, tiers[name], nodes.get(name, {}), ports[name]) for name in ends}


def _router(site: Site, name: str, tier: Tier, nodes: Iterable[str], ports: tuple[Port, ...]) -> Router:
    routing = routing_of(site, name)
    if routing is None or not routing.loopback:
        raise describe(
            f"fabric twin: {name}",
            "a loopback from networks.loopbacks",
            "none",
            "Give the site a pool: networks: {loopbacks: 10.30.0.0/20}.",
        )
    gateways = gateways_of(site, name, nodes)
    own = (f"{routing.loopback}/32", *(str(IPv4Interface(gateway.address).network) for gateway in gateways))
    return Router(name, tier, routing, gateways, ports, own)


def _ports(site: Site, ends: Mapping[str, list[TrunkEnd]]) -> dict[str, tuple[Port, ...]]:
    """Return switch -> its ends of cables. Interfaces are counted: Linux refuses the port names of some systems."""
    names = {(switch, end.port): f"p{place}" for switch, own in ends.items() for place, end in enumerate(own, 1)}
    asns = as_numbers(site)

    def port(switch: str, end: TrunkEnd) -> Port:
        near, far = names[switch, end.port], names[end.peer, end.peer_port]
        return Port(near, end.port, end.peer, end.peer_port, far, asns[end.peer], end.address, end.peer_address)

    return {switch: tuple(port(switch, end) for end in own) for switch, own in ends.items()}
