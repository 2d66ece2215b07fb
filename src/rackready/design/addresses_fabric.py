"""Loopbacks, AS numbers and link addresses of fabric switches.

AS numbers follow RFC 7938 5.2.1: one for every leaf, one for the spines of a pod, one for all cores (each plane by
itself); from the private 4-byte range (RFC 6996) unless the site says another. Everything follows from tier, plane, pod
and index, which stay when units are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from rackready.design.assign import LARGER_BLOCKS, device_host, dotted, has_room, no_room, rack_block
from rackready.design.endpoints import rack_number
from rackready.design.names import listed
from rackready.design.other_fabrics import other_layout
from rackready.design.placement import place_switches
from rackready.design.topology.types import FabricPlan, TopoSwitch, TrunkLink
from rackready.model.problems import Problem
from rackready.model.site import Site, Switch

MOST_PLANES = 8
_SHOWN = 3
"""Most switches that a message names."""
_SPINES_FROM = MOST_PLANES
_LEAFS_FROM = 100_000
"""AS numbers above the first: 8 for the cores of each plane, up to 100,000 for pods of spines, then leafs."""
_PRIVATE = (range(64_512, 65_535), range(4_200_000_000, 4_294_967_295))
"""Private AS numbers (RFC 6996). All others are assigned or reserved."""


@dataclass(frozen=True, slots=True)
class SwitchAddresses:
    """One switch. Text is empty if the site has no such network; ``asn`` is 0 for InfiniBand switches."""

    name: str
    loopback: str
    asn: int
    oob: str


def switch_addresses(site: Site, fabric: FabricPlan | None) -> tuple[tuple[SwitchAddresses, ...], list[Problem]]:
    """Return the addresses of all switches, and problems found.

    The fabric's switches come first, then switches that only the site file lists.
    """
    written = {switch.name: switch for switch in site.switches}
    problems: list[Problem] = []
    out = []
    switches = fabric.switches if fabric is not None else ()
    others = other_layout(site).switches
    management = _management(site, fabric or FabricPlan(), problems) if fabric is not None or others else {}
    routes = site.topology is not None and site.topology.link == "roce"
    planes = max((switch.plane for switch in switches), default=1)
    for switch in switches:
        own = written.pop(switch.name, None)
        oob = _own(own) if own is not None else management.get(switch.name, "")
        out.append(
            SwitchAddresses(
                switch.name,
                _loopback(site, switch, planes, problems),
                _asn(site, switch, problems) if routes else 0,
                oob,
            )
        )
    for other in others:
        own = written.pop(other.name, None)
        out.append(SwitchAddresses(other.name, "", 0, _own(own) if own is not None else management.get(other.name, "")))
    out += [SwitchAddresses(switch.name, "", 0, _own(switch)) for switch in written.values()]
    return tuple(out), list(dict.fromkeys(problems))


def _own(switch: Switch) -> str:
    """Return a written switch's management address, empty without a login."""
    return str(switch.address) if switch.address is not None else ""


def _management(site: Site, fabric: FabricPlan, problems: list[Problem]) -> dict[str, str]:
    """Return switch -> management address; note a problem for those that a block of their rack has no room for."""
    networks = site.networks
    network = networks.oob if networks is not None else None
    if networks is None or network is None:
        return {}
    numbers = {rack.name: rack_number(rack) for rack in site.racks}
    written = {switch.name for switch in site.switches}
    out, outside = {}, list[str]()
    for name, (rack, unit) in place_switches(site, fabric).places.items():
        number = numbers.get(rack)
        first = rack_block(network, number) if number is not None else None
        host = device_host(network, unit)
        if first is None or name in written:
            continue
        if has_room(networks, host):
            out[name] = dotted(first + host)
        else:
            outside.append(name)
    if outside:
        text = no_room(network, networks.rack_slots, listed(outside, _SHOWN))
        problems.append(Problem("networks.oob.per_rack", f"{text} {LARGER_BLOCKS}"))
    return out


def _share(pool: IPv4Network, tier: str) -> tuple[int, int]:
    """Return (first address, size) of a tier's part of a pool.

    Leafs have the first half, spines the third quarter, cores the last.
    """
    quarter = pool.num_addresses // 4
    return int(pool.network_address) + (0 if tier == "leaf" else 2 if tier == "spine" else 3) * quarter, quarter * (
        2 if tier == "leaf" else 1
    )


def _loopback(site: Site, switch: TopoSwitch, planes: int, problems: list[Problem]) -> str:
    pool = site.networks.loopbacks if site.networks is not None else None
    if pool is None:
        return ""
    first, size = _share(pool, switch.tier)
    room = size // planes - 1
    if switch.index > room:
        problems.append(
            Problem.of(
                "networks.loopbacks",
                f"{switch.name} is {switch.tier} {switch.index} of plane {switch.plane}",
                expected=f"at most {room} per tier in {pool}",
                next_step="Enlarge the pool.",
            )
        )
        return ""
    return dotted(first + (switch.plane - 1) * (size // planes) + switch.index)


def _asn(site: Site, switch: TopoSwitch, problems: list[Problem]) -> int:
    first = site.networks.underlay.asn_first if site.networks is not None else 4_200_000_000
    if switch.tier == "core":
        number = first + switch.plane - 1
    elif switch.tier == "spine":
        number = first + _SPINES_FROM + (switch.pod - 1) * MOST_PLANES + switch.plane - 1
    else:
        number = first + _LEAFS_FROM + (switch.index - 1) * MOST_PLANES + switch.plane - 1
    if not any(number in private for private in _PRIVATE):
        problems.append(
            Problem.of(
                "networks.underlay.asn_first",
                f"{switch.name} would get AS {number}",
                expected="64512 to 65534 or 4200000000 to 4294967294 (private, RFC 6996)",
                next_step=f"Start at 4200000000: leafs are numbered from {_LEAFS_FROM} above it.",
            )
        )
        return 0
    return number


def trunk_addresses(site: Site, fabric: FabricPlan) -> Iterator[tuple[TrunkLink, str, str]]:
    """Yield every link between switches with its two /31 addresses, lower end first.

    The addresses follow from the numbers of the lower switch and its port.

    Yields nothing for unnumbered links. Raises ValueError if the pool is exhausted; call ``trunk_problem`` first.
    """
    pool = _link_pool(site)
    if pool is None:
        return
    bases = _link_bases(fabric, pool)
    for trunk in fabric.trunks:
        first = bases[trunk.lower] + 2 * (trunk.lower_port - 1)
        if first + 1 > int(pool.broadcast_address):
            raise ValueError(str(trunk_problem(site, fabric)))
        yield trunk, dotted(first), dotted(first + 1)


def trunk_problem(site: Site, fabric: FabricPlan) -> Problem | None:
    """Return the problem with the pool of numbered links; None if it has room for all."""
    pool = _link_pool(site)
    if pool is None:
        return None
    needed = 0
    for tier in ("leaf", "spine"):
        count = max((_lower_number(switch, fabric) + 1 for switch in fabric.switches if switch.tier == tier), default=0)
        radix = max((switch.radix for switch in fabric.switches if switch.tier == tier), default=0)
        needed = max(needed, 2 * count * 2 * radix)
    if needed <= pool.num_addresses:
        return None
    bits = max(needed - 1, 1).bit_length()
    return Problem.of(
        "networks.underlay.pool",
        f"{pool} has {pool.num_addresses} addresses",
        expected=f"{needed} or more",
        next_step=f"Give it a /{32 - bits}, or use unnumbered links.",
    )


def _link_pool(site: Site) -> IPv4Network | None:
    underlay = site.networks.underlay if site.networks is not None else None
    routes = site.topology is not None and site.topology.link == "roce"
    return underlay.pool if underlay is not None and underlay.links == "numbered" and routes else None


def _lower_number(switch: TopoSwitch, fabric: FabricPlan) -> int:
    planes = fabric.counts.get("planes", 1)
    return (switch.index - 1) * planes + switch.plane - 1


def _link_bases(fabric: FabricPlan, pool: IPv4Network) -> dict[str, int]:
    """Return the first address of every lower switch, one /31 per port.

    Leafs take the first half of the pool, spines the second.
    """
    half = {"leaf": int(pool.network_address), "spine": int(pool.network_address) + pool.num_addresses // 2}
    radix = {tier: max((switch.radix for switch in fabric.switches if switch.tier == tier), default=0) for tier in half}
    return {
        switch.name: half[switch.tier] + _lower_number(switch, fabric) * 2 * radix[switch.tier]
        for switch in fabric.switches
        if switch.tier in half
    }
