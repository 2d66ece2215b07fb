"""Every address of a site: nodes, DPUs, compute NICs, switches, devices and links.

Deterministic, and stable when racks are added: each address follows from numbers that belong to the item itself (rack
number, slot, scalable unit, plane, rail, switch index), never from its position in a list. ``assign`` does the same for
addresses that phases need before a plan exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from rackready.design.addresses_fabric import SwitchAddresses, switch_addresses, trunk_addresses, trunk_problem
from rackready.design.assign import FIRST_HOST, dotted, rack_block
from rackready.design.check_addresses import GATEWAY_HOST, MANAGED
from rackready.design.compute_addresses import NicAddress, compute_addresses
from rackready.design.endpoints import rack_number
from rackready.design.names import listed
from rackready.design.nic_use import nic_plan
from rackready.design.site_flaws import ADDRESS, RAIL_ADDRESS
from rackready.design.topology.types import FabricPlan
from rackready.model.network import Network, Networks
from rackready.model.problems import Problem
from rackready.model.site import Node, Rack, Site
from rackready.profiles import loader

__all__ = [
    "AddressPlan",
    "DpuAddresses",
    "NodeAddresses",
    "SwitchAddresses",
    "addresses",
    "number_notes",
    "trunk_addresses",
]
_SHOWN = 3
"""Most collisions of one kind that are named."""
_REMEDY = "Give one of them another address, or change the pools in networks."
_COMPUTE = "compute"
"""What compute NICs are for; two of them share an address only where subnets of rails overlap."""


@dataclass(frozen=True, slots=True)
class DpuAddresses:
    """A DPU in DPU mode: addresses of its BMC and its operating system; empty if the site has no such network."""

    name: str
    bmc: str
    os: str


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """One node. Text is empty if the site has no such network."""

    name: str
    in_band: str
    oob: str
    storage: str
    nics: tuple[NicAddress, ...]
    dpus: tuple[DpuAddresses, ...]


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """All addresses of a site. ``devices``: (name, management address). With ``problems``, do not build from it."""

    nodes: tuple[NodeAddresses, ...]
    switches: tuple[SwitchAddresses, ...]
    devices: tuple[tuple[str, str], ...]
    problems: tuple[Problem, ...]


def addresses(site: Site, fabric: FabricPlan | None = None) -> AddressPlan:
    """Return every address of a checked site; with ``fabric``, those of its switches too."""
    problems: list[Problem] = []
    nodes = tuple(_all_nodes(site))
    switches, trouble = switch_addresses(site, fabric)
    problems += trouble
    devices = tuple((device.name, str(device.address) if device.address else "") for device in site.devices)
    return AddressPlan(
        nodes, switches, devices, tuple(problems + _twice(nodes, switches, devices, tuple(_taken(site, fabric, nodes))))
    )


def number_notes(site: Site) -> list[str]:
    """Return a note on nodes whose compute addresses depend on their position in the file.

    A node that is added before them would renumber them.
    """
    if site.networks is not None or not site.fabric.rails:
        return []
    loose = [
        node.name
        for node in site.nodes()
        if node.index is None and node.kind == "metal" and loader.platform(node.platform).nics
    ]
    if not loose:
        return []
    text = (
        f"{listed(loose)}: their compute addresses depend on their positions in the site file, so a node "
        "added before them renumbers them."
    )
    return [f"addresses: {text} Give each node an index, or add nodes only after the last one."]


def _taken(site: Site, fabric: FabricPlan | None, nodes: tuple[NodeAddresses, ...]) -> _Uses:
    """Yield addresses of gateways, DHCP servers and ends of numbered links; none if the site has no ``networks``."""
    networks = site.networks
    if networks is None:
        return
    for gateway, prefix in {nic.gateway: nic.prefix for node in nodes for nic in node.nics if nic.gateway}.items():
        yield gateway, f"the gateway of {IPv4Network((gateway, prefix), strict=False)}", ""
    for role in MANAGED:
        network: Network | None = getattr(networks, role)
        for block in _subnets(site, network) if network is not None else ():
            yield dotted(int(block.network_address) + GATEWAY_HOST), f"the gateway of {block}", ""
    # The management server of a cluster may also be its DHCP server.
    heads = {device.address for device in site.devices if device.kind == "head"}
    named = (network for network in (networks.oob, networks.in_band, networks.storage) if network is not None)
    for server in dict.fromkeys(server for network in named for server in network.dhcp_servers):
        if server not in heads:
            yield str(server), "a DHCP server", ""
    if fabric is not None and not trunk_problem(site, fabric):
        for trunk, lower, upper in trunk_addresses(site, fabric):
            yield lower, trunk.lower, f"port {trunk.lower_port}"
            yield upper, trunk.upper, f"port {trunk.upper_port}"


def _subnets(site: Site, network: Network) -> Iterator[IPv4Network]:
    """Yield the subnets of a management or storage network that have a gateway.

    These are the blocks of racks if the network is routed, else its pool.
    """
    if not network.routed:
        yield network.pool
        return
    numbers = dict.fromkeys(number for number in map(rack_number, site.racks) if number is not None)
    for first in (rack_block(network, number) for number in numbers):
        if first is not None:
            yield IPv4Network((first, network.per_rack))


def _all_nodes(site: Site) -> Iterator[NodeAddresses]:
    for rack in site.racks:
        for node in rack.nodes:
            oob = str(node.bmc.address) if node.bmc.address else ""
            yield NodeAddresses(
                node.name,
                str(node.address),
                oob,
                _host(site.networks, "storage", rack, node, 0),
                compute_addresses(site, rack, node),
                _dpus(site, rack, node),
            )


def _dpus(site: Site, rack: Rack, node: Node) -> tuple[DpuAddresses, ...]:
    plan = nic_plan(site, node)
    if plan is None:
        return ()
    return tuple(
        DpuAddresses(
            f"{node.name}-{dpu.name}",
            _host(site.networks, "oob", rack, node, lane),
            _host(site.networks, "in_band", rack, node, lane),
        )
        for lane, dpu in enumerate(plan.dpus, 1)
        if dpu.mode == "dpu"
    )


def _host(networks: Networks | None, role: str, rack: Rack, node: Node, lane: int) -> str:
    """Return host ``10 + lane x rack_slots + slot`` of the rack's block: lane 0 is the node, the others its DPUs."""
    network: Network | None = getattr(networks, role) if networks is not None else None
    number = rack_number(rack)
    if networks is None or network is None or number is None or node.slot is None:
        return ""
    first = rack_block(network, number)
    return "" if first is None else dotted(first + FIRST_HOST + lane * networks.rack_slots + node.slot)


_Uses = Iterator[tuple[str, str, str]]
"""(address, name, role of the address)."""


def _twice(
    nodes: tuple[NodeAddresses, ...],
    switches: tuple[SwitchAddresses, ...],
    devices: tuple[tuple[str, str], ...],
    taken: tuple[tuple[str, str, str], ...],
) -> list[Problem]:
    """Return a problem for every address that two items have."""

    def uses() -> _Uses:
        for node in {node.name: node for node in nodes}.values():  # names that are given twice are another problem
            yield node.in_band, node.name, ""
            yield node.oob, node.name, "BMC"
            yield node.storage, node.name, "storage"
            for nic in node.nics:
                yield nic.address, node.name, _COMPUTE
            for dpu in node.dpus:
                yield dpu.bmc, dpu.name, "BMC"
                yield dpu.os, dpu.name, ""
        for switch in switches:
            yield switch.loopback, switch.name, "loopback"
            yield switch.oob, switch.name, ""
        for name, address in devices:
            yield address, name, ""
        yield from taken

    given = [address for address, _, _ in uses() if address]
    if len(set(given)) == len(given):
        return []
    seen: dict[str, tuple[str, str]] = {}
    pairs: dict[tuple[str, str], list[str]] = {}
    for address, name, what in uses():
        who = f"{name} ({what})" if what else name
        if address and address in seen:
            before, was = seen[address]
            pairs.setdefault((was, what), []).append(f"{address} is used by {before} and by {who}.")
        seen.setdefault(address, (who, what))
    return [
        Problem("addresses", f"{text} {_REMEDY}", about=RAIL_ADDRESS if pair == (_COMPUTE, _COMPUTE) else ADDRESS)
        for pair, texts in pairs.items()
        for text in _shortened(texts)
    ]


def _shortened(texts: list[str]) -> list[str]:
    """Return the first texts, the last of them with the number of others: a wrong pool makes hundreds."""
    more = [f"{texts[_SHOWN - 1]} (and {len(texts) - _SHOWN} more like this)"] if len(texts) > _SHOWN else []
    return [*texts[: _SHOWN - 1], *more] if more else texts
