"""Checks what stands in racks: units, heights, places in halls, and what nodes, devices and switches refer to."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.found import Found, Subject
from rackready.model.site import Site
from rackready.profiles import loader

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Box:
    """Something that occupies units of a rack. ``what``: as messages call it."""

    rack: str
    what: str
    unit: int
    height: int
    loc: Loc


def check_units(subject: Subject) -> list[Found]:
    """Return what overlaps in racks, sticks out at their top, or has no unit."""
    site = subject.site
    heights = {rack.name: rack.height_u for rack in site.racks}
    taken: dict[str, dict[int, str]] = {}
    out: list[Found] = []
    for box in [*_nodes(site), *_switches(site), *_devices(site)]:
        units = range(box.unit, box.unit + box.height)
        in_rack = taken.setdefault(box.rack, {})
        clash = next((in_rack[unit] for unit in units if unit in in_rack), None)
        span = f"{box.unit}-{box.unit + box.height - 1}" if box.height > 1 else f"{box.unit}"
        if clash:
            noun = "units" if box.height > 1 else "unit"
            text = f"{noun} {span} are partly taken by {clash}." if box.height > 1 else f"{noun} {span} is taken by {clash}."
            out.append(Found((*box.loc, "unit"), text, f"Place {box.what} where {box.height} units are free."))
        elif box.unit + box.height - 1 > heights.get(box.rack, box.unit + box.height):
            text = f"units {span} of {box.what} stick out of rack {box.rack} - Expected: 1 to {heights[box.rack]}."
            out.append(Found((*box.loc, "unit"), text, "Place it lower, or correct height_u of the rack."))
        in_rack |= dict.fromkeys(units, box.what)
    return out


def _nodes(site: Site) -> list[_Box]:
    known = {platform: loader.platform(platform).rack_units for platform in loader.known("platform")}
    return [
        _Box(rack.name, node.name, node.unit, known[node.platform], ("racks", r, "nodes", n))
        for r, rack in enumerate(site.racks)
        for n, node in enumerate(rack.nodes)
        if node.unit is not None and node.kind == "metal" and node.platform in known
    ]


def _switches(site: Site) -> list[_Box]:
    known = set(loader.known("switch"))
    return [
        _Box(switch.rack, switch.name, switch.unit, getattr(loader.switch(switch.model), "rack_units", None) or 1, ("switches", s))
        for s, switch in enumerate(site.switches)
        if switch.rack is not None and switch.unit is not None and switch.model in known
    ]


def _devices(site: Site) -> list[_Box]:
    return [
        _Box(device.rack, device.name, device.unit, device.height_u, ("devices", d))
        for d, device in enumerate(site.devices)
        if device.rack is not None and device.unit is not None
    ]
