"""Isolated tenants of a routed RoCE fabric: a VRF each, joined over the spines by VXLAN (EVPN, RFC 8365 and 9136).

A rail's subnet is on one leaf, so the leafs exchange routes, not Ethernet frames: each VRF has one VNI for routed
packets (L3VNI), and VLANs have none. A VNI on a rail's VLAN would bridge the subnets of different scalable units.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackready.design.names import listed
from rackready.design.switch_systems import system_of
from rackready.design.tenants import tenants
from rackready.design.wiring import trunk_ends
from rackready.model.network import Tenant
from rackready.model.problems import Message
from rackready.model.site import Site

_ENCAPSULATION = 50
"""Bytes that VXLAN adds to an IPv4 packet: inner Ethernet 14, VXLAN 8, UDP 8, outer IPv4 20 (RFC 7348, section 5)."""
_OWN_VRFS = frozenset({"default", "mgmt"})
"""VRFs of the switch systems themselves."""
_LAST_VLAN = 4094
MEASURE = frozenset({"deploy", "validate", "gate run"})
"""Commands whose gates need nodes that reach each other."""


@dataclass(frozen=True, slots=True)
class Vrf:
    """Routing table of a tenant on a switch. ``vni``: number of its routed packets in the fabric."""

    name: str
    vni: int


def isolated(site: Site) -> dict[str, Tenant]:
    """Return node -> tenant, of the tenants that a routed RoCE fabric isolates. It is computed once."""
    if site.topology is None or site.fabric.kind != "roce":
        return {}
    return site.remember(
        "isolated tenants", lambda: {node: tenant for node, tenant in tenants(site).items() if _asks(tenant)}
    )


def _asks(tenant: Tenant) -> bool:
    return bool(tenant.vlan or tenant.vrf or tenant.vni)


def tenant_vlan(site: Site, tenant: Tenant | None, vlan: int) -> int:
    """Return the VLAN of a tenant's rail, where ``vlan`` is the fabric's own for that rail and plane."""
    networks = site.networks
    if tenant is None or tenant.vlan is None or networks is None or networks.compute is None:
        return vlan
    return tenant.vlan + vlan - networks.compute.vlan_first


def overlay_problems(site: Site) -> list[Message]:
    """Return why the tenants of the site cannot be isolated."""
    asking = [tenant for tenant in site.tenants if _asks(tenant)]
    if not asking or site.topology is None or site.fabric.kind != "roce":
        return []
    return [*_whole(asking), *vlan_overlaps(site), *unable(site), *_room(site)]


def _whole(asking: list[Tenant]) -> list[Message]:
    out = []
    for tenant in asking:
        lacks = [key for key in ("vlan", "vrf", "vni") if getattr(tenant, key) is None]
        if lacks:
            step = "Give all three, or none: nodes are then not isolated."
            out.append(Message(f"tenant {tenant.name}", f"no {listed(lacks)}", "vlan, vrf and vni", next_step=step))
        elif tenant.vrf in _OWN_VRFS:
            step = "Choose another name."
            out.append(Message(f"tenant {tenant.name}", "VRF of the switch itself", actual=tenant.vrf, next_step=step))
    return out


def vlan_overlaps(site: Site) -> list[Message]:
    """Return tenants whose VLANs, one for each rail and plane, overlap others or go too far.

    Equal first VLANs are left out: the site file is refused with them.
    """
    asking = [tenant for tenant in site.tenants if _asks(tenant)]
    if site.topology is None or site.fabric.kind != "roce":
        return []
    compute = site.networks.compute if site.networks is not None else None
    if compute is None:
        return []
    size = compute.rails * compute.planes
    blocks = [("networks.compute", compute.vlan_first)]
    blocks += [(f"tenant {tenant.name}", tenant.vlan) for tenant in asking if tenant.vlan is not None]
    out = []
    for place, (name, first) in enumerate(blocks):
        if first + size - 1 > _LAST_VLAN:
            step = "Start with a lower VLAN."
            what = f"{size} VLANs from {first}, one for each rail and plane"
            out.append(Message(name, what, f"at most {_LAST_VLAN}", f"end at {first + size - 1}", step))
        for other, start in blocks[:place]:
            if 0 < abs(first - start) < size:
                step = f"Leave {size} VLANs to each: one for each rail and plane."
                out.append(Message(name, f"its VLANs from {first} overlap those of {other} from {start}", "", "", step))
    return out


def unable(site: Site, switches: frozenset[str] | None = None) -> list[Message]:
    """Return why switches (all, or these) cannot isolate tenants; empty if the site does not ask for it."""
    if not isolated(site):
        return []
    names = {name for name, ends in trunk_ends(site).items() if ends and (switches is None or name in switches)}
    routers = {switch.os for switch in site.switches if switch.name in names}
    systems = [(os, system_of(os)) for os in sorted(routers)]
    plain = [os for os, system in systems if system is None or not system.isolates]
    step = "Leave out vlan, vrf and vni, and isolate the tenants by hand."
    what = "rackready does not isolate tenants on these switches"
    return [Message("tenants", what, "a system with EVPN", listed(plain), step)] if plain else []


def _room(site: Site) -> list[Message]:
    fabric = site.fabric
    if fabric.mtu + _ENCAPSULATION <= fabric.switch_mtu:
        return []
    what = f"isolated tenants need {_ENCAPSULATION} bytes more between switches"
    step = "Lower fabric.mtu, or raise fabric.switch_mtu."
    return [Message("fabric.mtu", what, f"at most {fabric.switch_mtu - _ENCAPSULATION} bytes", fabric.mtu, step)]


def apart(site: Site, nodes: Iterable[str], command: str) -> list[Message]:
    """Return why a command cannot measure these nodes together: nodes of different tenants do not reach each other."""
    if command not in MEASURE:
        return []
    owners = isolated(site)
    names = sorted({owners[node].name if node in owners else "no tenant" for node in nodes})
    if not owners or len(names) < 2:  # noqa: PLR2004 - one tenant alone
        return []
    step = "Take one tenant at a time, with --limit."
    return [Message("nodes", "they do not reach each other", "nodes of one tenant", listed(names), step)]
