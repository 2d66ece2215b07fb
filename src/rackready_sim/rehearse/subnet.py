"""The InfiniBand fabric of a rehearsal: leafs without a login, opensm on nodes, at a rate that ibsim knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackready.design.wiring import topology_fabric
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.rehearse.fabric import Part, settings
from rackready_sim.rehearse.notes import Note

Document = dict[str, Any]
_FASTEST = 200
"""HDR: ibsim 0.10 (Debian 12) knows no faster speed (ibsim/sim_net.c)."""
_SLOWER = "hdr"
_LEAFS = 2
_MANAGERS = 2


def build(site: Site, nodes: Sequence[str], platforms: Mapping[str, str]) -> Part:
    """Return two leafs with the rails in halves; ``platforms``: node -> platform in the rehearsal."""
    part = Part()
    for platform in dict.fromkeys(platforms[name] for name in nodes):
        _slow_platform(platform, part)
    model = _model(site, part)
    rails = sorted({nic.rail for name in nodes for nic in loader.platform(platforms[name]).nics})
    halves = [rails[: (len(rails) + 1) // _LEAFS], rails[(len(rails) + 1) // _LEAFS :]]
    names = [f"leaf{place:02}" for place, half in enumerate(halves, 1) if half]
    managers = [nodes[0], *nodes[1:_MANAGERS]]
    manager = {"subnet_manager": "opensm", "nodes": managers}
    part.keys = {
        "fabric": settings(site, "infiniband") | {"infiniband": manager},
        "switches": [{"name": name, "model": model} for name in names],
        "links": [
            _link(node, half, name, at)
            for at, node in enumerate(nodes)
            for name, half in zip(names, halves, strict=False)
        ],
    }
    part.notes += _notes(site, len(names))
    return part


def slower(platform: str) -> str:
    """Return the id that a server model has in the rehearsal."""
    fast = any(nic.rate > _FASTEST for nic in loader.platform(platform).nics)
    return f"{platform}_{_SLOWER}" if fast else platform


def slow_down(racks: Sequence[Document]) -> None:
    """Give nodes the server model at the rate of the rehearsal."""
    for rack in racks:
        for node in rack["nodes"]:
            node["platform"] = slower(node["platform"])


def _slow_platform(platform: str, part: Part) -> None:
    if slower(platform) == platform:
        return
    profile = loader.platform(platform)
    document = profile.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    document["id"] = slower(platform)
    for nic in document["nics"]:
        nic["rate"] = min(nic["rate"], _FASTEST)
    part.profiles[f"platform/{document['id']}.yml"] = document
    rates = sorted({nic.rate for nic in profile.nics})
    reason = "ibsim 0.10 knows no faster links, so bounds of bandwidth are those of HDR"
    part.notes.append(Note(f"link rate of {platform}", f"{rates[-1]} Gb/s", f"{_FASTEST} Gb/s", reason))


def _model(site: Site, part: Part) -> str:
    """Return the switch model of the leafs: the site's own, at a rate that ibsim knows."""
    models = [switch.model for switch in site.switches if switch.role == "compute"]
    here = models[0] if models else site.topology.leaf.model if site.topology is not None else ""
    profile = loader.switch(here)
    if profile.rate <= _FASTEST:
        return here
    document = {
        "id": f"{here}_{_SLOWER}",
        "ports": profile.ports,
        "os": [],
        "rate": _FASTEST,
        "layer": "infiniband",
        "cage": profile.cage,
        "lanes": profile.lanes or 4,
        "source": f"the packaged {here} at the fastest rate that ibsim knows, its ports by their numbers",
    }
    part.profiles[f"switch/{document['id']}.yml"] = document
    return str(document["id"])


def _link(node: str, rails: Sequence[int], switch: str, place: int) -> Document:
    first = place * len(rails) + 1
    return {
        "node": node,
        "rails": f"{rails[0]}-{rails[-1]}" if len(rails) > 1 else f"{rails[0]}",
        "switch": switch,
        "ports": f"{first}-{first + len(rails) - 1}" if len(rails) > 1 else f"{first}",
    }


def _notes(site: Site, leafs: int) -> list[Note]:
    count = len(topology_fabric(site).switches) if site.topology is not None else len(site.switches)
    out = []
    if site.topology is not None or count != leafs:
        reason = "leafs that are not joined, each a subnet; `rackready sim fabric` rehearses the whole planned fabric"
        out.append(Note("switches", str(count), str(leafs), reason))
    manager = site.fabric.infiniband
    kind = manager.subnet_manager if manager is not None else "not named in the site file"
    if kind != "opensm":
        reason = "the simulated rack has no other subnet manager"
        out.append(Note("subnet manager", kind, "opensm on nodes", reason))
    if manager is not None and manager.routing_engine != "updn":
        reason = "each subnet is one leaf; `rackready sim fabric --engine` tries the engine"
        out.append(Note("routing engine", manager.routing_engine, "updn", reason))
    return out
