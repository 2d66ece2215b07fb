"""Variables of role host_roce."""

from __future__ import annotations

from typing import Any

from rackready.design.facts import NicFacts, NodeFacts
from rackready.design.overlay import isolated
from rackready.design.qos import qos_facts
from rackready.design.wiring import trunk_ends
from rackready.model.site import Site
from rackready.model.software import SoftwareProfile


def roce_vars(site: Site, software: SoftwareProfile) -> dict[str, Any]:
    """Return the variables of role host_roce that are the same on every node, plain JSON types only.

    DOCA-OFED brings an mlnx-tools of its own, numbered higher than the site's: 2510.0.16-1 in DOCA 3.2.1 (public list
    of its packages for RHEL 10), 2510.0.14 in the driver container of 25.10-1.2.8.0.
    """
    fabric, stack = site.fabric, site.software.nic_stack
    qos = qos_facts(fabric.qos)
    return {
        "host_roce_stack": stack,
        "host_roce_package_version": software.doca if stack == "inbox" else "",
        "host_roce_mtu": fabric.mtu,
        "host_roce_manager": fabric.address_manager,
        "host_roce_dscp": qos.dscp,
        "host_roce_priority": qos.priority,
        "host_roce_cnp_dscp": qos.cnp_dscp,
        "host_roce_cnp_priority": qos.cnp_priority,
        "host_roce_tos": qos.tos,
    }


_TABLES_FROM = 20_000
"""Routing table of rail 0. Our choice: above the tables that systems and network managers use (253 to 255, VRFs)."""


def roce_interfaces(site: Site, facts: NodeFacts) -> list[dict[str, Any]]:
    """Return the compute interfaces of one node in the form of role host_roce."""
    routed = bool(trunk_ends(site)) and site.networks is not None and site.networks.compute is not None
    owner = isolated(site).get(facts.node.name)
    group = {} if owner is None else {"tenant": owner.name}
    return [
        {
            "netdev": nic.netdev,
            "rdma_device": nic.rdma_device,
            "pci": nic.pci,
            "address": f"{nic.address}/{nic.prefix}",
            "rail": nic.rail,
            **(_route(site, nic) if routed else {}),
            **group,
        }
        for nic in facts.nics
    ]


def _route(site: Site, nic: NicFacts) -> dict[str, Any]:
    pools = [site.networks.compute.pool] if site.networks is not None and site.networks.compute is not None else []
    return {"gateway": nic.gateway, "routes": [str(pool) for pool in pools], "table": _TABLES_FROM + nic.rail}
