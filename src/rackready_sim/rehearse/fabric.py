"""The compute fabric of a rehearsal: of the same kind and class, with as few switches as show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.design.endpoints import unit_of
from rackready.design.names import listed
from rackready.design.wiring import topology_fabric
from rackready.model.problems import Message
from rackready.model.site import Site, Switch
from rackready.profiles import loader
from rackready_sim.rehearse.notes import NOTHING, Note
from rackready_sim.rehearse.space import Space
from rackready_sim.rehearse.stand_in import ROUTED, switch_system, system_refused

Document = dict[str, Any]
_MODEL = "sn5600"
"""Model of switches whose system is stood in for."""
_SPINES = 2
_UNITS = 2
_MOST_LEAFS = 8
_RANGE = "NCCL_IB_ADDR_RANGE"
"""Setting of NCCL that names addresses of the site."""
_KEPT = ("mtu", "switch_mtu", "qos", "address_manager", "nccl_net", "nccl")


@dataclass(slots=True)
class Part:
    """What the fabric adds to the site file of the rehearsal."""

    keys: Document = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    refused: list[Message] = field(default_factory=list)
    profiles: dict[str, Document] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    """Node -> scalable unit, where the fabric has such."""


def settings(site: Site, kind: str) -> Document:
    """Return the fabric's own settings, as the site has them."""
    dump = site.fabric.model_dump(mode="json", exclude_defaults=True, include=set(_KEPT))
    for found in (dump.get("nccl", {}).get("settings", {}), *dump.get("nccl", {}).get("platforms", {}).values()):
        found.pop(_RANGE, None)
    return {"kind": kind, **dump}


def build(site: Site, models: Mapping[str, str], stand_ins: Mapping[str, str], space: Space) -> Part:
    """Return the fabric between the chosen nodes of a RoCE site; InfiniBand has its own module.

    ``models``: chosen node -> platform in the rehearsal.
    """
    make = _flat if site.topology is None else _tiers
    part = make(site, models, stand_ins, space)
    part.notes += _other(site)
    if any(_RANGE in found for found in (site.fabric.nccl.settings, *site.fabric.nccl.platforms.values())):
        part.notes.append(Note(_RANGE, "set", NOTHING, "it names addresses of the site"))
    return part


def _other(site: Site) -> list[Note]:
    names = [fabric.name for fabric in site.other_fabrics]
    names += [switch.name for switch in site.switches if switch.role != "compute"]
    reason = "the simulated rack has one management network and the compute fabric"
    return [Note("other fabrics", listed(names), NOTHING, reason)] if names else []


# --- leafs written by hand --------------------------------------------------------------------------------------------


def _flat(site: Site, models: Mapping[str, str], stand_ins: Mapping[str, str], space: Space) -> Part:
    """Return the leafs at which the chosen nodes are, with the same ports."""
    part = Part({"fabric": settings(site, "roce") | {"rails": _rails(site, space)}})
    links = [link for link in site.links if link.node in models]
    wanted = {link.switch for link in links}
    switches = [switch for switch in site.switches if switch.name in wanted]
    part.refused += [
        system_refused(os, routed=False)
        for os in dict.fromkeys(switch.os for switch in switches)
        if not switch_system(os, stand_ins, routed=False)
    ]
    if not links:
        step = "Add links, or a topology, for nodes that can be rehearsed."
        part.refused.append(Message("links", "cables", expected="some of chosen nodes", actual="none", next_step=step))
    made = {switch.name: _leaf(switch, stand_ins) for switch in switches}
    moved = {name for name, item in made.items() if item["model"] == _MODEL and item["os"] != _of(site, name).os}
    part.keys["switches"] = list(made.values())
    part.keys["links"] = _links(links, moved)
    part.notes += _switch_notes(site, wanted, stand_ins)
    return part


def _of(site: Site, name: str) -> Switch:
    return next(switch for switch in site.switches if switch.name == name)


def _rails(site: Site, space: Space) -> list[Document]:
    return [{"rail": rail.rail, "vlan": rail.vlan, "subnet": str(space.take(24))} for rail in site.fabric.rails]


def _leaf(switch: Switch, stand_ins: Mapping[str, str]) -> Document:
    """Return a switch without its login; ports of another system are not its ports."""
    system = switch_system(switch.os, stand_ins, routed=False)
    if system != switch.os:
        return {"name": switch.name, "os": system, "model": _MODEL}
    groups = [group.model_dump(mode="json", exclude_defaults=True) for group in switch.ports]
    return {
        "name": switch.name,
        "os": switch.os,
        "model": switch.model,
        **({"ports": groups} if groups else {}),
    }


def _links(links: Sequence[Any], moved: set[str]) -> list[Document]:
    """Return the cables; at a stand-in they take its ports in order."""
    out, used = [], dict.fromkeys(moved, 0)
    for link in links:
        ports = link.ports
        if link.switch in moved:
            first, last = link.rails.split("-")[0], link.rails.split("-")[-1]
            start = used[link.switch] + 1
            used[link.switch] += int(last) - int(first) + 1
            ports = f"swp{start}-swp{used[link.switch]}" if last != first else f"swp{start}"
        out.append({"node": link.node, "rails": link.rails, "switch": link.switch, "ports": ports})
    return out


def _switch_notes(site: Site, kept: set[str], stand_ins: Mapping[str, str]) -> list[Note]:
    compute = [switch for switch in site.switches if switch.role == "compute"]
    out = []
    left = [switch.name for switch in compute if switch.name not in kept]
    if left:
        reason = "no chosen node is cabled to them"
        out.append(Note("switches", f"{len(compute)}", f"{len(compute) - len(left)}", reason))
    for os in dict.fromkeys(switch.os for switch in compute if switch.name in kept):
        if stand_ins.get(os, os) != os:
            reason = (
                "--stand-in: rackready only renders the configuration of that system here; ports are the stand-in's"
            )
            out.append(Note(f"switch system {os}", os, stand_ins[os], reason))
    return out


# --- leafs and spines -------------------------------------------------------------------------------------------------


def _tiers(site: Site, models: Mapping[str, str], stand_ins: Mapping[str, str], space: Space) -> Part:
    """Return leafs and two spines of the same kind of topology."""
    here = site.topology
    if here is None:
        return Part()
    system, refused = _system(site, stand_ins)
    part = Part(refused=refused)
    part.units = _units(site, list(models))
    rails = max(len(loader.platform(model).nics) for model in models.values())
    model = here.leaf.model if ROUTED in loader.switch(here.leaf.model).os else _MODEL
    spine = here.spine_switches().model if ROUTED in loader.switch(here.spine_switches().model).os else _MODEL
    most = max(list(part.units.values()).count(unit) for unit in part.units.values())
    size = most + most % _SPINES  # as many cables to each spine
    is_rail = here.kind == "rail_optimized"
    down = size if is_rail else size * rails
    leafs = min(rails, _MOST_LEAFS) if is_rail else len(set(part.units.values()))
    radix = max(4, 2 * down)
    topology = {
        "kind": here.kind,
        "leaf": {"model": model, "radix": radix},
        "spine": {"model": spine, "radix": max(4, leafs * radix // 2 // _SPINES)},
        "su_nodes": size,
    }
    pools = {
        "rack_slots": max(size, 1),
        "compute": {"pool": str(space.take(16)), "per_unit": 24, "rails": rails},
        "loopbacks": str(space.take(24)),
        "underlay": _underlay(site, space),
    }
    names = _names(is_rail=is_rail, leafs=leafs)
    switches = [{"name": name, "os": system, "model": spine if "spine" in name else model} for name in names]
    part.keys = {"fabric": settings(site, "roce"), "topology": topology, "networks": pools, "switches": switches}
    part.notes = _tier_notes(site, len(names), (model, spine), system, rails)
    return part


def _names(*, is_rail: bool, leafs: int) -> list[str]:
    """Return the switch names that the topology computes."""
    form = "leaf-su001-r{0}" if is_rail else "leaf-su{0:03}-01"
    return [*(form.format(place) for place in range(1, leafs + 1)), *(f"spine-{n:03}" for n in range(1, _SPINES + 1))]


def _system(site: Site, stand_ins: Mapping[str, str]) -> tuple[str, list[Message]]:
    """Return the switch system of the rehearsal, and the refusal if the site's cannot be had."""
    compute = [switch.os for switch in site.switches if switch.role == "compute"]
    used = list(dict.fromkeys(compute)) or [""]
    found = [system for os in used if (system := switch_system(os, stand_ins, routed=True))]
    return (found[0], []) if found else (ROUTED, [system_refused(used[0], routed=True)])


def _units(site: Site, nodes: Sequence[str]) -> dict[str, int]:
    """Return node -> unit in the rehearsal: one with a leaf for each rail, two where a unit has one leaf."""
    if site.topology is not None and site.topology.kind == "rail_optimized":
        return dict.fromkeys(nodes, 1)
    units = list(dict.fromkeys(unit_of(site, site.rack_of(name)) for name in nodes))
    return {name: units.index(unit_of(site, site.rack_of(name))) % _UNITS + 1 for name in nodes}


def _underlay(site: Site, space: Space) -> Document:
    links = site.networks.underlay.links if site.networks is not None else "unnumbered"
    return {"links": links, **({"pool": str(space.take(20))} if links == "numbered" else {})}


def _tier_notes(site: Site, count: int, models: tuple[str, str], system: str, rails: int) -> list[Note]:
    here, fabric = site.topology, topology_fabric(site)
    if here is None:
        return []
    units = len({unit_of(site, rack) for rack in site.racks if rack.nodes})
    reason = "a rehearsal has the leafs of one unit, or one leaf each of two, and two spines"
    out = [Note("switches", f"{len(fabric.switches)} in {units} units", str(count), reason)]
    used = sorted({switch.os for switch in site.switches if switch.role == "compute"}) or [""]
    if system not in used:
        named = used[0] or "not named in the site file"
        text = "--stand-in: the configuration of the real switches is rendered by `rackready plan`, not tried"
        out.append(Note("switch system", named, system, text))
    elif len(used) > 1:
        out.append(Note("switch systems", ", ".join(used), system, "a rehearsal of leaf and spine has one system"))
    models_here = (here.leaf.model, here.spine_switches().model)
    if models != models_here:
        out.append(Note("switch models", ", ".join(models_here), ", ".join(models), f"{system} runs on these"))
    if any(switch.tier == "core" for switch in fabric.switches):
        out.append(Note("tiers", "three", "two", "ten switches are the most of a simulated rack"))
    if here.planes > 1:
        out.append(Note("planes", str(here.planes), "1", "ten switches are the most of a simulated rack"))
    if {here.oversubscription, here.spine_oversubscription} != {"1:1"}:
        ratio = f"{here.oversubscription} and {here.spine_oversubscription}"
        out.append(Note("oversubscription", ratio, "1:1", "the simulated links have no contention"))
    if here.reserved:
        names = sorted({name for slot in here.reserved for name in slot.devices})
        out.append(Note("reserved places", listed(names), NOTHING, "devices beside the nodes are not simulated"))
    if rails > _MOST_LEAFS:
        out.append(Note("rails", str(rails), str(_MOST_LEAFS), "ten switches are the most of a simulated rack"))
    return out
