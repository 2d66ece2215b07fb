"""Checks addresses that were given: none belongs to a subnet itself (its network address, its broadcast address) or to its gateway."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from rackready.design.found import Found, Subject
from rackready.design.found_names import Loc
from rackready.model.network import Networks
from rackready.model.site import Site

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
    """Return what is given an address that no host of its subnet may have.

    Addresses outside of all pools are not judged, nor is a site without ``networks``: their subnets are not known.
    """
    networks = subject.site.networks
    if networks is None:
        return []
    pools = [*_pools(networks)]
    out = []
    for address, loc, who in (*given_addresses(subject.site), *_servers(networks)):
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
