"""Desired state of every node and switch as short texts by name, to compare plans with what was applied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator

from rackready.design.addresses import NodeAddresses
from rackready.design.addresses_fabric import trunk_addresses, trunk_problem
from rackready.design.collector import without_gc
from rackready.design.facts import absent_fields, driver_version
from rackready.design.nic_use import nic_plan
from rackready.design.other_fabrics import other_layout
from rackready.design.placement import place_switches
from rackready.design.plan import Laid, switch_models
from rackready.design.software_of import software_views
from rackready.design.subnets import settings
from rackready.design.tenants import tenants, words
from rackready.design.wiring import fabric_links, switch_port_names
from rackready.model.network import NicPlan, NicUse
from rackready.model.site import Node, Rack, Site
from rackready.profiles import loader
from rackready.profiles.scope import Scoped

Facts = dict[str, str]
"""Field -> text, of one device."""


def device_facts(plan: Laid, of: Collection[str] | None = None) -> dict[str, Facts]:
    """Return the facts of every node (``node gpu01``) and switch (``switch leaf01``).

    Facts are position, addresses, networks, tenant, links, cables, power and software.

    ``of``: keys whose facts are needed. Other devices are listed without facts, so that a first plan, which has
    nothing to compare with, does not build a million texts. Devices such as PDUs or storage, and switches of other
    fabrics, are in the plan, but nothing is ever applied to them.
    """
    with without_gc():
        beside = {switch.name for switch in other_layout(plan.site).switches}
        keys = [
            *(f"node {node.name}" for node in plan.site.nodes()),
            *(f"switch {name}" for name, _, _ in switch_models(plan) if name not in beside),
        ]
        wanted = set(keys) if of is None else set(of).intersection(keys)
        facts: dict[str, Facts] = {key: {} for key in keys}
        if not wanted:
            return facts
        facts |= (*_nodes(plan, wanted), *_switches(plan, wanted))
        for (end, port), (far, far_port) in _links(plan):
            if end in wanted:
                facts[end][port] = f"{far} {far_port}"
        _add_cables(plan, facts, wanted)
        _add_link_addresses(plan, facts, wanted)
        return facts


def _add_link_addresses(plan: Laid, facts: dict[str, Facts], wanted: set[str]) -> None:
    """Add the /31 of both ends of every numbered link."""
    if plan.site.topology is None or trunk_problem(plan.site, plan.fabric):
        return
    named = switch_port_names(plan.site, plan.fabric)
    for trunk, low, high in trunk_addresses(plan.site, plan.fabric):
        for switch, port, address in ((trunk.lower, trunk.lower_port, low), (trunk.upper, trunk.upper_port, high)):
            if (key := f"switch {switch}") in wanted:
                facts[key][f"address of {named[switch][port - 1]}"] = f"{address}/31"


def digest(facts: Facts) -> str:
    """Return the SHA-256 (hex) of one device's facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _nodes(plan: Laid, wanted: set[str]) -> Iterator[tuple[str, Facts]]:
    site = plan.site
    software = {
        name: f"{view.site.software.set}, driver {driver_version(view.site)}"
        for view in software_views(site)
        for name in view.nodes
    }
    fabric = _digest_of(fabric_text(site))
    given, owners = {own.name: own for own in plan.addresses.nodes}, tenants(site)
    for rack in site.racks:
        supply = {"feeds": ", ".join(f"{feed.name} from {feed.source}" for feed in rack.feeds)} if rack.feeds else {}
        for node in rack.nodes:
            if (key := f"node {node.name}") in wanted:
                own = given[node.name]
                group = {"tenant": words(owners[node.name])} if node.name in owners else {}
                planned = _node(node, rack, own) | _networks(site, own) | _ports_used(nic_plan(site, node)) | group
                yield key, planned | {"software": software[node.name], "fabric settings": fabric} | supply


def _networks(site: Site, own: NodeAddresses) -> Facts:
    """Return the settings that go with an address: prefix, gateway, MTU, VLAN and DHCP relay."""
    roles = (
        ("in-band network", "in_band", own.in_band),
        ("BMC network", "oob", own.oob),
        ("storage network", "storage", own.storage),
    )
    found = {field: settings(site, role, address) for field, role, address in roles}
    return {field: text for field, text in found.items() if text}


def _ports_used(plan: NicPlan | None) -> Facts:
    """Return how a NIC plan uses ports; empty without a plan."""
    if plan is None:
        return {}
    out = {
        f"port {use.name}": ", ".join([use.role, *(f"{what} {value}" for what, value in _endpoint_facts(use))])
        for use in plan.nics
    }
    out |= {f"port {port.name}": "unused" for port in plan.unused}
    out |= {f"bond {bond.name}": f"{bond.mode} of {', '.join(bond.members)}" for bond in plan.bonds}
    return out | {
        f"DPU {dpu.name}": ", ".join([f"{dpu.mode} mode", *([dpu.os] if dpu.os else []), *dpu.ports])
        for dpu in plan.dpus
    }


def _endpoint_facts(use: NicUse) -> Iterator[tuple[str, int]]:
    if use.rail is not None:
        yield "rail", use.rail
        yield "plane", use.plane
    if use.gpu is not None:
        yield "GPU", use.gpu


def _node(node: Node, rack: Rack, own: NodeAddresses) -> Facts:
    platform = loader.platform(node.platform)
    out = {
        "platform": node.platform,
        "platform profile": _profiles(node.platform),
        "rack": rack.name,
        "kind": node.kind,
    }
    out |= {
        "unit": str(node.unit or ""),
        "serial": node.serial or "",
        "in-band address": own.in_band,
        "storage address": own.storage,
    }
    out |= {
        "BMC address": f"{own.oob}:{node.bmc.port}" if own.oob else "",
        "BMC MAC": node.bmc.mac or "",
        "host": node.host or "",
    }
    out["power"] = f"{platform.max_power.value:g} W at most" if node.kind == "metal" else ""
    for nic in own.nics:
        out[f"NIC {nic.rail}.{nic.plane}"] = f"{nic.address}/{nic.prefix} VLAN {nic.vlan}"
    for dpu in own.dpus:
        out[dpu.name] = f"BMC {dpu.bmc}, system {dpu.os}"
    return {field: text for field, text in out.items() if text}


@Scoped
def _profiles(platform: str) -> str:
    profile = loader.platform(platform)
    # Leave out unpublished fields: a field that a later release adds changes nothing until it has a value.
    gpu = loader.gpu(profile.gpu)
    return _digest_of(
        profile.model_dump_json(exclude_none=True)
        + gpu.model_dump_json(exclude_none=True, exclude={"kernel_modules"})  # it refuses a set, and changes no node
    )


def fabric_text(site: Site) -> str:
    """Return the fabric's settings as text; those of InfiniBand and ECN thresholds only where the site has some.

    The way to UFM is no setting of a device.
    """
    return site.fabric.model_dump_json(exclude=absent_fields(site))


def _digest_of(text: str) -> str:
    """Return the first 12 hex digits of a SHA-256: enough to detect a change."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _switches(plan: Laid, wanted: set[str]) -> Iterator[tuple[str, Facts]]:
    site = plan.site
    settings = _digest_of(fabric_text(site))
    written = {switch.name: switch for switch in site.switches}
    places = place_switches(site, plan.fabric).places
    given = {own.name: own for own in plan.addresses.switches}
    for name, tier, model in switch_models(plan):
        if f"switch {name}" not in wanted:
            continue
        rack, unit = places.get(name, ("", ""))
        own, by_hand = given.get(name), written.get(name)
        out = {"model": model, "tier": tier, "rack": rack, "unit": str(unit), "fabric settings": settings}
        if own is not None:
            out |= {"management address": own.oob, "loopback": own.loopback, "AS number": str(own.asn or "")}
        if by_hand is not None:
            out |= {"system": by_hand.os, "SSH port": str(by_hand.port)}
        yield f"switch {name}", {field: text for field, text in out.items() if text}


_End = tuple[str, str]
"""(key of the device, name of the field of its port)."""


def _links(plan: Laid) -> Iterator[tuple[_End, _End]]:
    """Yield every link from both of its ends, as (key, field) and (name, port) of the far end."""
    nodes = {node.name for node in plan.site.nodes()}
    for name, rail, plane, switch, port in links_of(plan):
        if name in nodes:
            yield (f"node {name}", f"link {rail}.{plane}"), (switch, port)
        yield (f"switch {switch}", f"port {port}"), (name, f"rail {rail}")
    if plan.site.topology is None:
        return
    named = switch_port_names(plan.site, plan.fabric)
    for trunk in plan.fabric.trunks:
        low, high = named[trunk.lower][trunk.lower_port - 1], named[trunk.upper][trunk.upper_port - 1]
        yield (f"switch {trunk.lower}", f"port {low}"), (trunk.upper, high)
        yield (f"switch {trunk.upper}", f"port {high}"), (trunk.lower, low)


def links_of(plan: Laid) -> Iterator[tuple[str, int, int, str, str]]:
    """Yield (node or device, rail, plane, switch, port) of every link between a NIC and a leaf."""
    yield from fabric_links(plan.site, plan.fabric)


def _add_cables(plan: Laid, facts: dict[str, Facts], wanted: set[str]) -> None:
    """Add each cable's part at its first end, and links outside the compute fabric."""
    parts: dict[tuple[str, float], str] = {}
    nodes = {node.name for node in plan.site.nodes()}
    for cable in plan.cables.cables:
        key = f"node {cable.a_device}" if cable.a_device in nodes else f"switch {cable.a_device}"
        if key not in wanted:
            continue  # not needed, or a device without facts: the far end has the link
        piece = (cable.cable_part, cable.stock_m)
        if piece not in parts:
            parts[piece] = f"{piece[0]}, {piece[1]:g} m" if piece[0] else "no part serves"
        facts[key][f"cable {cable.a_port}"] = parts[piece]
        if cable.run.kind not in {"compute", "trunk"}:
            facts[key][f"port {cable.a_port}"] = f"{cable.b_device} {cable.b_port}"
