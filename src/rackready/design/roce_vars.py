"""Variables of role host_roce."""

from __future__ import annotations

from typing import Any

from rackready.design.facts import NodeFacts
from rackready.design.qos import qos_facts
from rackready.model.site import Fabric
from rackready.model.software import SoftwareProfile


def roce_vars(fabric: Fabric, software: SoftwareProfile) -> dict[str, Any]:
    """Return the variables of role host_roce that are the same on every node, plain JSON types only."""
    qos = qos_facts(fabric.qos)
    return {
        "host_roce_package_version": software.doca,
        "host_roce_mtu": fabric.mtu,
        "host_roce_dscp": qos.dscp,
        "host_roce_priority": qos.priority,
        "host_roce_cnp_dscp": qos.cnp_dscp,
        "host_roce_cnp_priority": qos.cnp_priority,
        "host_roce_tos": qos.tos,
    }


def roce_interfaces(facts: NodeFacts) -> list[dict[str, Any]]:
    """Return the compute interfaces of one node in the form of role host_roce."""
    return [
        {
            "netdev": nic.netdev,
            "rdma_device": nic.rdma_device,
            "pci": nic.pci,
            "address": f"{nic.address}/{nic.prefix}",
            "rail": nic.rail,
        }
        for nic in facts.nics
    ]
