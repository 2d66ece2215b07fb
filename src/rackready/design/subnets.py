"""Subnets of a site for routers and DHCP relays, and the settings that go with an address."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from rackready.design.addresses import NodeAddresses
from rackready.design.assign import rack_block
from rackready.design.check_addresses import GATEWAY_HOST, MANAGED
from rackready.design.compute_addresses import NicAddress
from rackready.design.endpoints import rack_number, unit_of
from rackready.model.network import Network
from rackready.model.site import Site


class Subnet(NamedTuple):
    """One subnet.

    ``rack``: of a routed management or storage network; ``unit``, ``rail``, ``plane``: of the compute fabric; ``mtu``
    in bytes.
    """

    network: str
    rack: str
    unit: int | None
    rail: int | None
    plane: int | None
    subnet: IPv4Network
    gateway: str
    vlan: int | None
    mtu: int
    dhcp_relays: str


def subnets(site: Site, nodes: tuple[NodeAddresses, ...]) -> Iterator[Subnet]:
    """Yield the subnets of management and storage networks (by rack if routed), then those of compute NICs."""
    for role in MANAGED:
        network = _network(site, role)
        if network is None:
            continue
        blocks = (
            {rack.name: _block(network, rack_number(rack)) for rack in site.racks}
            if network.routed
            else {"": network.pool}
        )
        for rack, block in blocks.items():
            if block is not None:
                yield Subnet(
                    role,
                    rack,
                    None,
                    None,
                    None,
                    block,
                    _first(block),
                    network.vlan,
                    network.mtu,
                    " ".join(map(str, network.dhcp_servers)),
                )
    yield from _compute(site, nodes)


def managed_by(site: Site, role: str, address: str) -> tuple[int | str, int | str, str]:
    """Return (prefix, VLAN, gateway) of a management or storage address; empty texts outside the pool."""
    network = _network(site, role)
    if network is None or IPv4Address(address) not in network.pool:
        return "", "", ""
    prefix = network.per_rack if network.routed else network.pool.prefixlen
    return prefix, network.vlan or "", _first(IPv4Network((address, prefix), strict=False))


def settings(site: Site, role: str, address: str) -> str:
    """Return the further settings for an address of a network in words; empty for an address outside its pool."""
    network, (prefix, vlan, gateway) = (
        _network(site, role),
        managed_by(site, role, address) if address else ("", "", ""),
    )
    if network is None or prefix == "":
        return ""
    parts = [f"/{prefix}, gateway {gateway}, MTU {network.mtu}", f"VLAN {vlan}" if vlan else ""]
    parts.append(f"DHCP relayed to {' and '.join(map(str, network.dhcp_servers))}" if network.dhcp_servers else "")
    return ", ".join(part for part in parts if part)


def _network(site: Site, role: str) -> Network | None:
    return getattr(site.networks, role) if site.networks is not None else None


def _block(network: Network, number: int | None) -> IPv4Network | None:
    first = rack_block(network, number) if number is not None else None
    return None if first is None else IPv4Network((first, network.per_rack))


def _first(block: IPv4Network) -> str:
    return str(block.network_address + GATEWAY_HOST)


def _compute(site: Site, nodes: tuple[NodeAddresses, ...]) -> Iterator[Subnet]:
    planned = site.networks is not None and site.networks.compute is not None
    units = {node.name: unit_of(site, rack) for rack in site.racks for node in rack.nodes} if planned else {}
    seen: dict[tuple[str, int], tuple[int | None, NicAddress]] = {}
    for node in nodes:
        for nic in node.nics:
            seen.setdefault((nic.gateway, nic.prefix), (units.get(node.name), nic))
    for unit, nic in seen.values():
        block = IPv4Network((nic.address, nic.prefix), strict=False)
        yield Subnet("compute", "", unit, nic.rail, nic.plane, block, nic.gateway, nic.vlan, site.fabric.mtu, "")
