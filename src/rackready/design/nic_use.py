"""Uses of a node's ports: its NIC plan, the networks of its other ports, and ports that are unused on purpose."""

from __future__ import annotations

from collections.abc import Iterator

from rackready.model.network import NicPlan
from rackready.model.other_fabric import OtherRole
from rackready.model.profile import OtherNic
from rackready.model.site import Node, Site
from rackready.profiles import loader

ROLES: dict[str, OtherRole] = {"inband": "in_band", "storage": "storage", "oob": "oob"}
"""Role of a port in platform profiles -> network of the site."""


def nic_plan(site: Site, node: Node) -> NicPlan | None:
    """Return how a node uses its NICs: the plan that it names, else the plan of its platform."""
    plans = site.remember("nic_plans", lambda: {plan.name: plan for plan in site.nic_plans})
    if node.nic_plan is not None:
        return plans.get(node.nic_plan)
    return site.remember("nic_plan_of", lambda: {plan.platform: plan for plan in reversed(site.nic_plans)}).get(
        node.platform
    )


def used_ports(site: Site, node: Node) -> Iterator[tuple[OtherNic, OtherRole]]:
    """Yield a node's cabled ports beside the compute fabric, each with its network.

    The network comes from the NIC plan, else from the platform's profile.
    """
    plan = nic_plan(site, node)
    said = {use.name: use.role for use in plan.nics} if plan is not None else {}
    unused = unused_ports(site, node)
    for nic in loader.platform(node.platform).other_nics:
        if nic.name not in unused:
            role = said.get(nic.name, ROLES[nic.role])
            yield nic, role if role != "compute" else ROLES[nic.role]


def unused_ports(site: Site, node: Node) -> dict[str, str]:
    """Return the ports of a node that are left without a cable on purpose, each with its reason."""
    plan = nic_plan(site, node)
    return {port.name: port.reason for port in plan.unused} if plan is not None else {}
