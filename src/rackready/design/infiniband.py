"""Subnets of an InfiniBand fabric, their subnet managers, and the partitions of tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready.design.facts import NicFacts, NodeFacts, node_facts
from rackready.design.subnet_roots import root_guids
from rackready.design.tenants import tenants
from rackready.design.wiring import topology_fabric
from rackready.model.base import expand_names
from rackready.model.site import Site

_HIGHEST_PRIORITY = 15
"""Of a subnet manager: 0 to 15 (opensm(8))."""


@dataclass(frozen=True, slots=True)
class ManagedSubnet:
    """One subnet: switches that are connected with each other, and the port at which each manager attaches.

    ``managers``: node and its NIC, the master first; empty where no declared manager has a port in the subnet.
    """

    name: str
    switches: tuple[str, ...]
    managers: tuple[tuple[str, NicFacts], ...]


def subnets(site: Site) -> tuple[ManagedSubnet, ...]:
    """Return the subnets of the site in the order of their switches.

    No node forwards, so leafs that no switches join are subnets of their own: each leaf where cables are written by
    hand, and with planes each plane. It is computed once.
    """
    return site.remember("InfiniBand subnets", lambda: _subnets(site))


def _subnets(site: Site) -> tuple[ManagedSubnet, ...]:
    nodes = manager_nodes(site)
    used = {nic.switch for node in site.nodes() for nic in node_facts(site, node.name).nics} - {""}
    planes = {switch.name: switch.plane for switch in topology_fabric(site).switches}
    groups = _joined(site, sorted(used))
    several = sum(len(group) > 1 for group in groups) > 1
    return tuple(
        ManagedSubnet(_name(group, f"plane{planes[group[0]]}" if several else "fabric"), group, found)
        for group in groups
        for found in [_managers(site, nodes, group)]
    )


def _name(group: tuple[str, ...], of_several: str) -> str:
    return group[0] if len(group) == 1 else of_several


def _joined(site: Site, leafs: list[str]) -> list[tuple[str, ...]]:
    """Return leafs in groups: those that switches above join, in the order of their first ones."""
    beside: dict[str, list[str]] = {}
    for trunk in topology_fabric(site).trunks:
        beside.setdefault(trunk.lower, []).append(trunk.upper)
        beside.setdefault(trunk.upper, []).append(trunk.lower)
    out: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for leaf in leafs:
        own, todo = {leaf}, [leaf]
        while leaf not in seen and todo:
            found = set(beside.get(todo.pop(), ())) - own
            own |= found
            todo += found
        if leaf not in seen:
            out.append(tuple(name for name in leafs if name in own))
        seen |= own
    return out


def _managers(site: Site, nodes: list[str], switches: tuple[str, ...]) -> tuple[tuple[str, NicFacts], ...]:
    found = ((name, [nic for nic in node_facts(site, name).nics if nic.switch in switches]) for name in nodes)
    return tuple((name, nics[0]) for name, nics in found if nics)


def manager_nodes(site: Site) -> list[str]:
    """Return the nodes that run opensm, the master first."""
    own = site.fabric.infiniband
    return [name for text in own.nodes for name in expand_names(text)] if own is not None else []


def opensm_instances(site: Site, node: str) -> list[dict[str, Any]]:
    """Return the subnets that a node manages, in the form of role opensm."""
    return [
        {
            "name": subnet.name,
            "rdma_device": nic.rdma_device,
            "pci": nic.pci,
            "priority": max(0, _HIGHEST_PRIORITY - place),
        }
        for subnet in subnets(site)
        for place, (name, nic) in enumerate(subnet.managers)
        if name == node
    ]


def infiniband_vars(site: Site) -> dict[str, Any]:
    """Return the role variables that are the same on every node; empty on another fabric."""
    own = site.fabric.infiniband
    if site.fabric.kind != "infiniband" or own is None:
        return {}
    names = [{"guid": switch.guid, "name": switch.name} for switch in site.switches if switch.guid is not None]
    found = {"opensm_routing_engine": own.routing_engine, "opensm_partitions": tenant_partitions(site)}
    roots = root_guids(site)
    return {
        **found,
        **({"opensm_switch_names": names} if names else {}),
        **({"opensm_root_guids": roots} if roots else {}),
    }


def infiniband_node_vars(site: Site, facts: NodeFacts) -> dict[str, Any]:
    """Return the role variables of one node; empty on another fabric."""
    if site.fabric.kind != "infiniband":
        return {}
    return {
        "host_infiniband_ports": [
            {"rdma_device": nic.rdma_device, "pci": nic.pci, "rail": nic.rail} for nic in facts.nics
        ],
        "opensm_instances": opensm_instances(site, facts.node.name),
    }


def tenant_partitions(site: Site) -> list[dict[str, Any]]:
    """Return name, key, membership and nodes of every tenant's partition, in the form of role opensm."""
    found: dict[str, dict[str, Any]] = {}
    for node, tenant in tenants(site).items():
        if tenant.pkey is not None:
            own = {"name": tenant.name, "key": tenant.pkey, "full": tenant.full_member, "nodes": []}
            found.setdefault(tenant.name, own)["nodes"].append(node)
    return list(found.values())
