"""Checks addresses that were given: none belongs to a subnet itself (its network address, its broadcast address), to its gateway or to a rail's NIC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network

from rackready.design.assign import FIRST_HOST
from rackready.design.found import Found, Subject
from rackready.design.found_names import Loc
from rackready.model.network import Networks
from rackready.model.site import Site
from rackready.profiles import loader

GATEWAY_HOST = 1
"""Host of a block or subnet that is its gateway."""

MANAGED = ("oob", "in_band", "storage")

Given = Iterator[tuple[IPv4Address, Loc, str]]
"""(address, where it is written, whose it is)."""


def given_addresses(site: Site) -> Given:
    """Give the addresses of nodes, BMCs, switches, devices and of the Slurm controller."""
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            here: Loc = ("racks", r, "nodes", n)
            yield node.address, (*here, "address"), f"node {node.name}"
            if node.bmc.address is not None:
                yield node.bmc.address, (*here, "bmc", "address"), f"the BMC of {node.name}"
    for s, switch in enumerate(site.switches):
        yield switch.address, ("switches", s, "address"), f"switch {switch.name}"
    for d, device in enumerate(site.devices):
        if device.address is not None:
            yield device.address, ("devices", d, "address"), f"device {device.name}"
    if site.handover.kind == "slurm":
        yield site.handover.controller, ("handover", "controller"), "the Slurm controller"


def check_given(subject: Subject) -> list[Found]:
    """Return what is given an address that no host of its subnet may have, or that a NIC of a rail has.

    Addresses outside of all pools and rails are not judged: their subnets are not known.
    """
    site, networks = subject.site, subject.site.networks
    nobodys = _nobodys(site, networks)
    if nobodys:
        return nobodys
    pools = [*(_pools(networks) if networks is not None else ()), *_rails(site)]
    if not pools:
        return []
    given = [*given_addresses(site), *(_servers(networks) if networks is not None else ())]
    return _own(given, pools) + _nics(site, given)


_NOBODYS = (
    (0, 0, "this network (RFC 1122, 3.2.1.3)"),
    (224, 239, "multicast (RFC 5771)"),
    (240, 255, "reserved (RFC 1112, 4)"),
)
"""First octets of addresses that no host can have. Loopback is not among them: BMCs of a simulated rack, and what a tunnel leads to, answer there."""


def _nobodys(site: Site, networks: Networks | None) -> list[Found]:
    """Return addresses and networks that no host can have an address of."""
    given = [*given_addresses(site), *(_servers(networks) if networks is not None else ())]
    out = [Found(loc, f"address {address} of {who} is {why}", "Correct it.") for address, loc, who in given if (why := _why(address, address))]
    pools = ((pool, loc, who) for who, loc, pool in site_pools(site))
    return out + [Found(loc, f"{pool} of {who} is {why}", "Correct it.") for pool, loc, who in pools if (why := _why(pool[0], pool[-1]))]


def _why(first: IPv4Address, last: IPv4Address) -> str:
    """Return why no host has an address of that span, empty when one may."""
    low, high = int(first) >> 24, int(last) >> 24
    return next((f"{why}: no host has such an address." for begin, end, why in _NOBODYS if low <= end and high >= begin), "")


def site_pools(site: Site) -> Iterator[tuple[str, Loc, IPv4Network]]:
    """Give (name, where it is written, addresses) of every pool of the site's networks and of every rail's subnet."""
    networks = site.networks
    for role in (*MANAGED, "compute"):
        network = getattr(networks, role, None)
        if network is not None:
            yield f"networks.{role}", ("networks", role, "pool"), network.pool
    if networks is not None and networks.loopbacks is not None:
        yield "networks.loopbacks", ("networks", "loopbacks"), networks.loopbacks
    if networks is not None and networks.underlay.pool is not None:
        yield "networks.underlay", ("networks", "underlay", "pool"), networks.underlay.pool
    for k, rail in enumerate(site.fabric.rails):
        yield f"rail {rail.rail}", ("fabric", "rails", k, "subnet"), rail.subnet


def _own(given: list[tuple[IPv4Address, Loc, str]], pools: list[tuple[int, int, int, str]]) -> list[Found]:
    """Return addresses that belong to a subnet itself, or to its gateway."""
    out = []
    for address, loc, who in given:
        number = int(address)
        for first, last, size, noun in pools:
            if not first <= number <= last:
                continue
            host = (number - first) % size
            what = {0: "network address", size - 1: "broadcast address", GATEWAY_HOST: "gateway"}.get(host)
            if what:
                block = IPv4Network((number - host, 33 - size.bit_length()))
                out.append(Found(loc, f"address {address} of {who} is the {what} of {block} ({noun}).", f"Give {who} another address."))
    return out


def _nics(site: Site, given: list[tuple[IPv4Address, Loc, str]]) -> list[Found]:
    """Return addresses that a compute NIC has: host 10 + k of its rail's subnet is that of node k (``facts.node_facts``)."""
    rails = [(rail.rail, rail.subnet) for rail in site.fabric.rails]
    inside = [(address, loc, who, rail, subnet) for address, loc, who in given for rail, subnet in rails if address in subnet]
    owners = _owners(site) if inside else {}
    out = []
    for address, loc, who, rail, subnet in inside:
        owner = owners.get((int(address) - int(subnet.network_address) - FIRST_HOST, rail))
        if owner is not None:
            out.append(Found(loc, f"address {address} of {who} is that of {owner} on rail {rail} ({subnet}).", f"Give {who} another address."))
    return out


def _owners(site: Site) -> Mapping[tuple[int, int], str]:
    """Return (number of the node, rail) -> node, for nodes of known platforms that have NICs of their own."""
    known = set(loader.known("platform"))
    nodes = [node for node in site.nodes() if node.kind == "metal" and node.platform in known]
    return {(site.position_of(node.name), nic.rail): node.name for node in nodes for nic in loader.platform(node.platform).nics}


def _rails(site: Site) -> Iterator[tuple[int, int, int, str]]:
    """Give the subnets of rails as ``_pools`` gives those of networks."""
    for rail in site.fabric.rails:
        subnet = rail.subnet
        yield int(subnet.network_address), int(subnet.broadcast_address), subnet.num_addresses, f"rail {rail.rail}"


def _pools(networks: Networks) -> Iterator[tuple[int, int, int, str]]:
    """Give (first address, last address, size of a subnet, name) of every network whose subnets have gateways."""
    for role in MANAGED:
        network = getattr(networks, role)
        if network is not None:
            prefix = max(network.per_rack, network.pool.prefixlen) if network.routed else network.pool.prefixlen
            yield int(network.pool.network_address), int(network.pool.broadcast_address), 1 << (32 - prefix), f"networks.{role}"
    compute = networks.compute
    if compute is not None:
        size = 1 << (32 - max(compute.per_unit, compute.pool.prefixlen))
        yield int(compute.pool.network_address), int(compute.pool.broadcast_address), size, "networks.compute"


def _servers(networks: Networks) -> Given:
    for role in MANAGED:
        network = getattr(networks, role)
        for k, server in enumerate(network.dhcp_servers if network is not None else ()):
            yield server, ("networks", role, "dhcp_servers", k), f"DHCP server {server}"
