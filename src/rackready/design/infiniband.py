"""Subnets of an InfiniBand fabric, their subnet managers, and the partitions of tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready.design.facts import NicFacts, NodeFacts, node_facts
from rackready.design.subnet_roots import root_guids
from rackready.design.tenants import tenants
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

    Cables that are written by hand join nodes to leafs only, and no node forwards: each leaf is a subnet. A topology
    joins all of its leafs: they are one subnet. It is computed once.
    """
    return site.remember("InfiniBand subnets", lambda: _subnets(site))


def _subnets(site: Site) -> tuple[ManagedSubnet, ...]:
    nodes = manager_nodes(site)
    used = list(dict.fromkeys(nic.switch for node in site.nodes() for nic in node_facts(site, node.name).nics))
    leafs = [name for name in used if name]
    groups = [(leaf,) for leaf in sorted(leafs)] if site.topology is None else [tuple(sorted(leafs))]
    return tuple(
        ManagedSubnet(group[0] if len(group) == 1 else "fabric", group, _managers(site, nodes, group))
        for group in groups
        if group
    )


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
