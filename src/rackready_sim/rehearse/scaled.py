"""Scale a site down to a rehearsal: the same platforms, software, fabric, gates and scheduler, on few machines.

Pure. Nothing of the site that leads to its machines enters the rehearsal: addresses, logins, keys, secrets, mirrors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from rackready.design.deployable import require
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Node, Site
from rackready.profiles import loader
from rackready_sim.plan import FABRIC
from rackready_sim.rehearse import beside, fabric, subnet
from rackready_sim.rehearse.choose import choose, counted
from rackready_sim.rehearse.notes import ALWAYS, Note, dropped
from rackready_sim.rehearse.space import Space, networks_of
from rackready_sim.rehearse.stand_in import platform_notes, platforms, software_refused

Document = dict[str, Any]
_SECRETS = ".rackready/sim/secrets"
_NODE, _BMC, _SWITCH = 10, 100, 200
_OURS = frozenset({"mirror", "slurmctl", FABRIC})
"""Machines of the rack beside nodes and switches."""


class RehearsalError(RackreadyError):
    """The site, or some of it, cannot be rehearsed."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The rehearsal of a site. ``profiles``: file below its folder of profiles -> what it holds."""

    document: Document
    profiles: Mapping[str, Document]
    nodes: tuple[str, ...]
    not_covered: tuple[Note, ...]


def scaled(site: Site, *, most: int, stand_ins: Mapping[str, str] | None = None, limit: Sequence[str] = ()) -> Scaled:
    """Return the rehearsal of a site on a machine that holds ``most`` nodes.

    ``stand_ins``: platform or switch system -> what takes its place. ``limit``: only these nodes; empty: of all. Raises
    RehearsalError with every reason why there is none.
    """
    swaps = dict(stand_ins or {})
    asked = [node.name for node in site.nodes() if not limit or node.name in limit]
    metal = [name for name in asked if site.node(name).kind == "metal" and name not in _OURS]
    found = platforms(site, metal, swaps)
    able = [name for name in metal if site.node(name).platform in found and _cabled(site, name)]
    notes = [*_virtual(site, asked), *platform_notes(site, metal, found)]
    _refuse(site, _no_node(site, able, notes, most))
    choice = choose(site, able, most)
    names = list(choice.nodes)
    space = Space(networks_of(site))
    place = space.take(24)
    models = {name: found[site.node(name).platform] for name in names}
    is_ib = site.fabric.kind == "infiniband"
    part = subnet.build(site, names, models) if is_ib else fabric.build(site, models, swaps, space)
    others = beside.build(site, names, str(place[2]), str(place[5]))
    _refuse(site, [*part.refused, *software_refused(site, names)])
    document: Document = {"schema": "rackready/site/v1", "name": site.name, **others.keys, **part.keys}
    document["racks"] = _racks(site, names, models, part.units, [str(host) for host in place])
    if is_ib:
        subnet.slow_down(document["racks"])
    for number, switch in enumerate(document["switches"]):
        if switch.get("os"):
            switch |= {
                "address": str(place[_SWITCH + number]),
                "password": {"file": f"{_SECRETS}/{switch['name']}"},
            }
    waves = math.ceil(len(metal) / site.campaign.wave_size)
    if waves > 1 and len(names) <= site.campaign.wave_size:
        notes.append(Note("waves", str(waves), "1", "all nodes of a rehearsal fit into one wave of the site's size"))
    every = [
        *choice.notes,
        counted(site, names),
        *notes,
        *part.notes,
        *others.notes,
        *_left_out(site),
        *_refused_now(site),
    ]
    return Scaled(document, part.profiles, choice.nodes, (*every, *ALWAYS))


def _refuse(site: Site, reasons: Sequence[Message]) -> None:
    if reasons:
        head = f"rackready rehearse: site {site.name} cannot be rehearsed; nothing was changed."
        raise RehearsalError.of(dict.fromkeys(reasons), head=head)


def _no_node(site: Site, able: Sequence[str], notes: Sequence[Note], most: int) -> list[Message]:
    if most < 1:
        step = "Free memory, or rehearse on a larger machine: 2 GiB, and 1 GiB and half a core for each node."
        return [Message("this machine", "nodes that it holds", expected="at least 1", actual="0", next_step=step)]
    if able:
        return []
    why = "; ".join(f"{note.what}: {note.reason}" for note in notes) or "no node has a cable of the compute fabric"
    step = "Give --stand-in PLATFORM=dgx_h100, or choose other nodes with --limit."
    return [Message(f"site {site.name}", "nodes", expected="one that can be rehearsed", actual=why, next_step=step)]


def _cabled(site: Site, name: str) -> bool:
    return site.topology is not None or any(link.node == name for link in site.links)


def _virtual(site: Site, names: Sequence[str]) -> list[Note]:
    virtual = [name for name in names if site.node(name).kind == "virtual"]
    reason = "the simulated rack has no hypervisor; docs/howto/virtual.md says how to have them made"
    return [Note("virtual nodes", str(len(virtual)), "not rehearsed", reason)] if virtual else []


def _racks(
    site: Site, names: Sequence[str], models: Mapping[str, str], units: Mapping[str, int], hosts: Sequence[str]
) -> list[Document]:
    """Return the racks of the chosen nodes, with simulated addresses and serial numbers."""
    out, number, taken = [], count(1), dict.fromkeys(units.values(), 0)
    for place, rack in enumerate((rack for rack in site.racks if any(node.name in names for node in rack.nodes)), 1):
        here = [node for node in rack.nodes if node.name in names]
        unit = units.get(here[0].name)
        own: Document = {"name": rack.name, "index": place}
        if unit is not None:
            own |= {"su": unit, "su_slot": taken[unit] + 1}
            taken[unit] += len(here)
        nodes = [_node(node, models[node.name], slot, next(number), hosts) for slot, node in enumerate(here, 1)]
        out.append({**own, "height_u": rack.height_u, "nodes": nodes})
    return out


def _node(node: Node, platform: str, slot: int, number: int, hosts: Sequence[str]) -> Document:
    """Return a node; one that is stood in for gets a rack unit of its own, since it may be of another height."""
    height = loader.platform(platform).rack_units
    same = height == loader.platform(node.platform).rack_units
    return {
        "name": node.name,
        "platform": platform,
        "serial": f"REHEARSAL-{number:04}",
        "index": number,
        "slot": slot,
        "unit": node.unit if same and node.unit is not None else (slot - 1) * height + 1,
        "address": hosts[_NODE + number],
        "bmc": {
            "address": hosts[_BMC + number],
            "username": "admin",
            "password": {"file": f"{_SECRETS}/{node.name}-bmc"},
        },
    }


def _left_out(site: Site) -> list[Note]:
    """Return the parts of the site file that a rehearsal has no machine for."""
    provisioning = site.provisioning
    imaged = [provisioning.boot] if provisioning is not None else []
    outlets = [node.name for node in site.nodes() if node.outlets]
    pinned = [node.name for node in site.nodes() if node.bmc.fingerprint or node.bmc.factory_password]
    few = "nodes that boot what is on their disks"
    return [
        *[
            Note("imaging", f"boot: {kind}", few, "`rackready sim up --metal N` images QEMU machines on its own")
            for kind in imaged
        ],
        *dropped("baselines", site.baselines, "simulated machines have firmware of their own"),
        *dropped(
            "tenants", (item.name for item in site.tenants), "VLANs, VRFs and partitions of tenants need more nodes"
        ),
        *dropped(
            "NVLink domains",
            (item.name for item in site.nvlink_domains),
            "a domain over several nodes is not simulated",
        ),
        *dropped(
            "NIC plans", (item.name for item in site.nic_plans), "only compute ports are simulated, no bond and no DPU"
        ),
        *dropped("devices", (item.name for item in site.devices), "only nodes and compute switches are simulated"),
        *dropped("hypervisors", (item.name for item in site.hypervisors), "the simulated rack has no hypervisor"),
        *dropped(
            "power by outlets", [f"{len(outlets)} nodes" if outlets else ""], "the simulated rack has no rack PDU"
        ),
        *dropped(
            "BMC identity", [f"{len(pinned)} nodes" if pinned else ""], "simulated BMCs have certificates of their own"
        ),
        *dropped("BMC authority", [site.bmc_authority and "bmc_authority"], "no certificate of your CA is made"),
        *dropped("maintenance windows", (item.name for item in site.maintenance), "a rehearsal interrupts nobody"),
    ]


def _refused_now(site: Site) -> list[Note]:
    """Return why `rackready deploy` refuses the site itself today: what a rehearsal replaces hides this."""
    try:
        require(site, [node.name for node in site.nodes()], "deploy")
    except RackreadyError as error:
        reason = "`rackready deploy` refuses the site until then; the rehearsal has a simulated value in its place"
        return [Note("the site file", str(item), "replaced or left out", reason) for item in error.messages]
    return []
