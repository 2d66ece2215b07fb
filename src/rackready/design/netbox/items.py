"""A plan as NetBox objects in the order of creation, each identified by its own key and never by an id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rackready.design.device_facts import links_of
from rackready.design.placement import place_switches
from rackready.design.plan import Plan, switch_models
from rackready.model.site import Node, Rack
from rackready.profiles import loader

Key = tuple[str, ...]
Ref = tuple[str, Key]
"""(kind, key) of another object."""

KINDS = (
    "dcim.sites",
    "dcim.manufacturers",
    "dcim.device-types",
    "dcim.device-roles",
    "dcim.racks",
    "dcim.devices",
    "dcim.interfaces",
    "ipam.ip-addresses",
    "dcim.cables",
)
"""Kinds of objects in order of dependency (NetBox 4 REST API, /api/<app>/<name>/)."""

NODE_ROLE = "gpu-node"
"""Role of nodes in NetBox."""
IN_BAND, OOB = "in-band", "bmc"
"""Names of the interfaces that carry a device's two addresses."""
_MAKER = "as-planned"
"""Manufacturer of models in NetBox: a profile's id names the model, not its maker."""


@dataclass(frozen=True, slots=True)
class Item:
    """One object.

    ``fields``: as the API takes them; ``refs``: objects whose ids are filled in; ``ends``: the two interfaces of a
    cable.
    """

    kind: str
    key: Key
    fields: Mapping[str, object] = field(default_factory=dict)
    refs: Mapping[str, Ref] = field(default_factory=dict)
    ends: tuple[Key, Key] | None = None


def slug(text: str) -> str:
    """Return text as a NetBox slug: letters, digits, hyphens, underscores."""
    return re.sub(r"[^-a-z0-9_]", "-", text.lower())


def items(plan: Plan) -> list[Item]:
    """Return all objects of a plan: racks, nodes, switches, interfaces, addresses, and cables of the compute fabric."""
    site = slug(plan.site.name)
    out = [Item("dcim.sites", (site,), {"name": plan.site.name, "slug": site, "status": "planned"})]
    out.append(Item("dcim.manufacturers", (_MAKER,), {"name": _MAKER, "slug": _MAKER}))
    out += _types(plan)
    out += [_rack(rack, site) for rack in plan.site.racks]
    out += [_node(node, rack, site) for rack in plan.site.racks for node in rack.nodes if node.kind == "metal"]
    out += _switches(plan, site)
    out += _interfaces(plan)
    return out


def _types(plan: Plan) -> Iterator[Item]:
    switches = list(switch_models(plan))
    models = {
        node.platform: loader.platform(node.platform).rack_units for node in plan.site.nodes() if node.kind == "metal"
    }
    models |= {model: loader.switch(model).rack_units or 1 for _, _, model in switches}
    for model, height in sorted(models.items()):
        own = {"model": model, "slug": slug(model), "u_height": height}
        yield Item("dcim.device-types", (slug(model),), own, {"manufacturer": ("dcim.manufacturers", (_MAKER,))})
    for role in sorted({NODE_ROLE, *(tier for _, tier, _ in switches)}):
        yield Item("dcim.device-roles", (slug(role),), {"name": role, "slug": slug(role)})


def _rack(rack: Rack, site: str) -> Item:
    return Item(
        "dcim.racks", (rack.name,), {"name": rack.name, "u_height": rack.height_u}, {"site": ("dcim.sites", (site,))}
    )


def _device(name: str, model: str, role: str, site: str, place: tuple[str, int | None] | None) -> Item:
    refs = {
        "site": ("dcim.sites", (site,)),
        "device_type": ("dcim.device-types", (slug(model),)),
        "role": ("dcim.device-roles", (slug(role),)),
    }
    fields: dict[str, object] = {"name": name}
    if place is not None:
        refs["rack"] = ("dcim.racks", (place[0],))
        if place[1] is not None:
            fields |= {"position": place[1], "face": "front"}
    return Item("dcim.devices", (name,), fields, refs)


def _node(node: Node, rack: Rack, site: str) -> Item:
    made = _device(node.name, node.platform, NODE_ROLE, site, (rack.name, node.unit))
    return Item(made.kind, made.key, {**made.fields, **({"serial": node.serial} if node.serial else {})}, made.refs)


def _switches(plan: Plan, site: str) -> Iterator[Item]:
    places = place_switches(plan.site, plan.fabric).places
    for name, tier, model in switch_models(plan):
        yield _device(name, model, tier, site, places.get(name))


def _interfaces(plan: Plan) -> Iterator[Item]:
    """Yield interfaces, then addresses, then the address fields of devices, then cables."""
    netdevs = {
        node.name: {nic.rail: nic.netdev for nic in loader.platform(node.platform).nics}
        for node in plan.site.nodes()
        if node.kind == "metal"
    }
    ends: dict[tuple[Key, Key], None] = {}
    for node, rail, plane, switch, port in links_of(plan):
        name = netdevs.get(node, {}).get(rail)
        if name is not None:
            ends[((node, name if plane == 1 else f"{name}.{plane}"), (switch, port))] = None
    owned = list(_addresses(plan))
    used = dict.fromkeys([*((device, name) for device, name, _, _ in owned), *(end for pair in ends for end in pair)])
    for device, name in used:
        kind = "virtual" if name in {IN_BAND, OOB} else "other"
        fields = {"name": name, "type": kind} | ({"mgmt_only": True} if name == OOB else {})
        yield Item("dcim.interfaces", (device, name), fields, {"device": ("dcim.devices", (device,))})
    for device, name, address, _ in owned:
        fields = {"address": f"{address}/32", "assigned_object_type": "dcim.interface"}
        yield Item("ipam.ip-addresses", (address,), fields, {"assigned_object_id": ("dcim.interfaces", (device, name))})
    for device, _, address, says in owned:
        yield Item("dcim.devices", (device,), {}, {says: ("ipam.ip-addresses", (address,))})
    for near, far in ends:
        yield Item("dcim.cables", (*near, *far), {"status": "planned"}, ends=(near, far))


def _addresses(plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """Yield (device, interface, address, field of the device that names it)."""
    metal = {node.name for node in plan.site.nodes() if node.kind == "metal"}
    for node in plan.addresses.nodes:
        if node.name in metal:
            yield from (
                (node.name, name, address, says)
                for name, address, says in ((IN_BAND, node.in_band, "primary_ip4"), (OOB, node.oob, "oob_ip"))
                if address
            )
    for switch in plan.addresses.switches:
        if switch.oob:
            yield switch.name, IN_BAND, switch.oob, "primary_ip4"
