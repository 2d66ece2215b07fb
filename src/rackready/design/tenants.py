"""The tenant of a node, and the settings that isolate the tenant's traffic on the ports of its nodes."""

from __future__ import annotations

from rackready.model.base import expand_names
from rackready.model.network import Tenant
from rackready.model.site import Site

FULL_MEMBER = 0x8000
"""Top bit of a partition key: full membership (InfiniBand Architecture Specification vol. 1, 10.9.1)."""


def tenants(site: Site) -> dict[str, Tenant]:
    """Return node -> tenant of a checked site; nodes without a tenant are left out."""
    by_rack = {rack.name: [node.name for node in rack.nodes] for rack in site.racks}
    out: dict[str, Tenant] = {}
    for tenant in site.tenants:
        out |= {name: tenant for text in tenant.nodes for name in expand_names(text)}
        racks = [rack for text in tenant.racks for rack in expand_names(text)]
        out |= {name: tenant for rack in racks for name in by_rack.get(rack, ())}
    return out


def port_key(tenant: Tenant) -> str:
    """Return the partition key as its ports hold it, with the full-membership bit; empty without one."""
    if tenant.pkey is None:
        return ""
    return f"0x{int(tenant.pkey, 16) | (FULL_MEMBER if tenant.full_member else 0):04x}"


def words(tenant: Tenant) -> str:
    """Return a tenant in words."""
    parts = {"VLAN": tenant.vlan, "VRF": tenant.vrf, "VNI": tenant.vni, "partition key": port_key(tenant)}
    return ", ".join([tenant.name, *(f"{name} {value}" for name, value in parts.items() if value)])
