"""Checks of racks: units, heights, positions in halls, and references of nodes, devices and switches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rackready.design.check_names import Loc, known_platforms, members, names_twice, twice, unknown
from rackready.design.names import listed
from rackready.design.site_flaws import NUMBER, Flaw, Lost, Subject
from rackready.model.base import expand_range
from rackready.model.site import Node, Site
from rackready.profiles import loader


@dataclass(frozen=True, slots=True)
class _Box:
    """An item that occupies units of a rack. ``what``: its name in messages."""

    rack: str
    what: str
    unit: int
    height: int
    loc: Loc


_MEASURED_M = 0.01
"""Tolerance between two figures for one length, m. Judgement: halls are not measured more finely."""


def check_units(subject: Subject) -> list[Flaw]:
    """Return items that overlap in racks, extend beyond their top, or have no unit."""
    site = subject.site
    heights = {rack.name: rack.height_u for rack in site.racks}
    places: dict[str, Loc] = {rack.name: ("racks", r) for r, rack in enumerate(site.racks)}
    taken: dict[str, dict[int, str]] = {}
    out: list[Flaw] = []
    for box in [*_nodes(site), *_switches(site), *_devices(site), *_slots(site)]:
        units = range(box.unit, box.unit + box.height)
        in_rack = taken.setdefault(box.rack, {})
        clash = next((in_rack[unit] for unit in units if unit in in_rack), None)
        span = f"{box.unit}-{box.unit + box.height - 1}" if box.height > 1 else f"{box.unit}"
        if clash:
            noun = "units" if box.height > 1 else "unit"
            text = (
                f"{noun} {span} are partly occupied by {clash}."
                if box.height > 1
                else f"{noun} {span} is occupied by {clash}."
            )
            out.append(Flaw((*box.loc, "unit"), text, f"Move {box.what} to {box.height} U of free space."))
        elif box.unit + box.height - 1 > heights.get(box.rack, box.unit + box.height):
            what, hint = (
                f"units {span} of {box.what} extend beyond rack {box.rack}",
                "Move it lower, or correct height_u of the rack.",
            )
            reads = ((*places[box.rack], "height_u"),)
            out.append(Flaw.of((*box.loc, "unit"), what, hint, expected=f"1 to {heights[box.rack]}", reads=reads))
        in_rack |= dict.fromkeys(units, box.what)
    return out


def _nodes(site: Site) -> list[_Box]:
    known = {platform: loader.platform(platform).rack_units for platform in known_platforms(site)}
    return [
        _Box(rack.name, node.name, node.unit, known[node.platform], ("racks", r, "nodes", n))
        for r, rack in enumerate(site.racks)
        for n, node in enumerate(rack.nodes)
        if node.unit is not None and node.kind == "metal" and node.platform in known
    ]


def _switches(site: Site) -> list[_Box]:
    known = set(loader.known("switch"))
    return [
        _Box(
            switch.rack,
            switch.name,
            switch.unit,
            getattr(loader.switch(switch.model), "rack_units", None) or 1,
            ("switches", s),
        )
        for s, switch in enumerate(site.switches)
        if switch.rack is not None and switch.unit is not None and switch.model in known
    ]


def _devices(site: Site) -> list[_Box]:
    return [
        _Box(device.rack, device.name, device.unit, device.height_u, ("devices", d))
        for d, device in enumerate(site.devices)
        if device.rack is not None and device.unit is not None
    ]


def _slots(site: Site) -> list[_Box]:
    """Return the units reserved for switches of the topology and of other fabrics."""
    models: dict[tuple[str | None, str], str] = {}
    if site.topology is not None:
        tiers = {
            "leaf": site.topology.leaf,
            "spine": site.topology.spine_switches(),
            "core": site.topology.core_switches(),
        }
        models |= {(None, tier): item.model for tier, item in tiers.items()}
    models |= {(other.name, "leaf"): other.leaf for other in site.other_fabrics}
    models |= {(other.name, "spine"): other.spine for other in site.other_fabrics if other.spine is not None}
    known = set(loader.known("switch"))
    heights = {
        place: (loader.switch(model).rack_units if model in known else None) or 1 for place, model in models.items()
    }
    return [
        _Box(
            slot.rack,
            f"the {slot.tier} slot at unit {unit}",
            int(unit),
            heights[slot.fabric, slot.tier],
            ("switch_slots", s),
        )
        for s, slot in enumerate(site.switch_slots)
        if (slot.fabric, slot.tier) in heights
        for unit in expand_range(slot.units)[:: slot.step]
    ]


def check_places(subject: Subject) -> list[Flaw]:
    """Return problems with the positions and feeds of racks, and with references of devices, switches and nodes."""
    site = subject.site
    out = names_twice((hall.name for hall in site.halls), "halls", "hall")
    out += (
        _halls(site, subject.lost)
        + _floor(site, subject.lost)
        + _supplies(site, subject.lost)
        + _references(site, subject.lost)
    )
    out += _kinds(site, subject.lost) + _numbers(site)
    return out


def _halls(site: Site, lost: Lost) -> list[Flaw]:
    """Check halls: no row twice, which would shift all rows after it; one length for each way between two halls."""
    known = {hall.name: hall for hall in site.halls}
    before: set[str] = set()
    out: list[Flaw] = []
    for h, hall in enumerate(site.halls):
        rows: set[str] = set()
        for k, row in enumerate(hall.rows):
            if row in rows:
                out.append(
                    Flaw(
                        ("halls", h, "rows", k),
                        f"row {row} of hall {hall.name} is given twice.",
                        "Give each row its own name.",
                    )
                )
            rows.add(row)
        for name, way in hall.ways_m.items():
            here: Loc = ("halls", h, "ways_m", name)
            out += unknown(name, known, here, "hall", lost.of("halls"))
            back = known[name].ways_m.get(hall.name, way) if name in known else way
            # Reported once, at the second of the two entries.
            if abs(back - way) > _MEASURED_M and name in before:
                out.append(
                    Flaw.of(
                        here,
                        f"the cable path from {hall.name} to {name} is {way:.12g} m, but {back:.12g} m from {name} "
                        f"to {hall.name}",
                        "Measure it from entry to entry, and list it once.",
                        expected="one length",
                    )
                )
        before.add(hall.name)
    return out


def _floor(site: Site, lost: Lost) -> list[Flaw]:
    rows = {hall.name: hall.rows for hall in site.halls}
    out: list[Flaw] = []
    stands: dict[tuple[str, str, int], str] = {}
    for r, rack in enumerate(site.racks):
        out += unknown(rack.hall, rows, ("racks", r, "hall"), "hall", lost.of("halls"))
        strange = rack.hall in rows and rack.row is not None and rack.row not in rows[rack.hall]
        if strange and not lost.of("rows")(str(rack.row)):
            out.append(
                Flaw.of(
                    ("racks", r, "row"),
                    f"hall {rack.hall} has no row {rack.row}",
                    "Correct the row, or add it to the hall.",
                    expected=f"one of {listed(rows[str(rack.hall)])}",
                )
            )
        if not strange and rack.hall is not None and rack.row is not None and rack.position is not None:
            before = stands.setdefault((rack.hall, rack.row, rack.position), rack.name)
            if before != rack.name:
                text = f"position {rack.position} of row {rack.row} in hall {rack.hall} is occupied by {before}."
                out.append(Flaw(("racks", r, "position"), text, f"Give {rack.name} another position."))
    return out


def _supplies(site: Site, lost: Lost) -> list[Flaw]:
    power = [] if site.facility is None else site.facility.power
    known = dict.fromkeys(node.name for node in power)
    out: list[Flaw] = []
    for p, node in enumerate(power):
        for k, name in enumerate(node.fed_by):
            out += unknown(name, known, ("facility", "power", p, "fed_by", k), "power node", lost.of("power"))
    for r, rack in enumerate(site.racks):
        for k, feed in enumerate(rack.feeds):
            out += unknown(
                feed.source,
                known,
                ("racks", r, "feeds", k, "from"),
                "power node",
                lost.of("facility" if lost.any("facility") else "power"),
            )
        out += twice(
            ((feed.name, ("racks", r, "feeds", k, "name"), f"feed {k + 1}") for k, feed in enumerate(rack.feeds)),
            f"name of a feed of {rack.name}:",
        )
    return out


def _references(site: Site, lost: Lost) -> list[Flaw]:
    racks = dict.fromkeys(rack.name for rack in site.racks)
    devices = {device.name: (d, device) for d, device in enumerate(site.devices)}
    plans = dict.fromkeys(plan.name for plan in site.nic_plans)
    out: list[Flaw] = []
    for d, device in enumerate(site.devices):
        out += unknown(device.rack, racks, ("devices", d, "rack"), "rack", lost.of("racks"))
        out += unknown(device.pair, devices, ("devices", d, "pair"), "device", lost.of("devices"))
        out += members(device.serves, racks, ("devices", d, "serves"), "rack", lost.of("racks"))[1]
        place, other = devices.get(device.pair or "", (d, None))
        if other is not None and other.pair != device.name:
            text = f"{device.name} names {other.name} as its pair, but {other.name} names {other.pair or 'none'}."
            hint = "Make each of the two name the other."
            out.append(Flaw(("devices", d, "pair"), text, hint, (("devices", place, "pair"),)))
    for s, switch in enumerate(site.switches):
        out += unknown(switch.rack, racks, ("switches", s, "rack"), "rack", lost.of("racks"))
    for s, slot in enumerate(site.switch_slots):
        out += unknown(slot.rack, racks, ("switch_slots", s, "rack"), "rack", lost.of("racks"))
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            out += unknown(node.nic_plan, plans, ("racks", r, "nodes", n, "nic_plan"), "NIC plan", lost.of("nic_plans"))
    return out


def _kinds(site: Site, lost: Lost) -> list[Flaw]:
    """Check that metal nodes have a rack unit, and that virtual nodes run on metal nodes."""
    kinds = {node.name: node.kind for node in site.nodes()}
    out: list[Flaw] = []
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            here: Loc = ("racks", r, "nodes", n)
            if node.kind == "metal":
                if node.unit is None:
                    out.append(
                        Flaw(
                            (*here, "unit"),
                            "is required and missing.",
                            "Add the rack unit where the node is mounted.",
                        )
                    )
                if node.host is not None:
                    out.append(
                        Flaw(
                            (*here, "host"),
                            f"metal node {node.name} has a host.",
                            "Remove host, or set kind: virtual.",
                            ((*here, "kind"),),
                        )
                    )
            elif node.unit is not None:
                out.append(
                    Flaw((*here, "unit"), f"virtual node {node.name} has a unit.", "Remove unit: its host has one.")
                )
            elif node.host is None:
                step = "Add the metal node that the virtual node runs on."
                out.append(Flaw((*here, "host"), "is required and missing.", step))
            elif kinds.get(node.host) == "virtual" or (node.host not in kinds and not lost.of("nodes")(node.host)):
                what = "is virtual itself" if node.host in kinds else "does not exist"
                out.append(
                    Flaw.of(
                        (*here, "host"),
                        f"{node.host}, the host of {node.name}, {what}",
                        "Correct the name.",
                        expected="a metal node",
                    )
                )
    return out


def _numbers(site: Site) -> list[Flaw]:
    """Check that the numbers from which addresses derive are unique."""
    if site.networks is None:
        placed: list[tuple[Node, Loc]] = [
            (node, ("racks", r, "nodes", n)) for r, rack in enumerate(site.racks) for n, node in enumerate(rack.nodes)
        ]
        given = twice(((node.index, (*loc, "index"), f"node {node.name}") for node, loc in placed), "index")
        # A node without an index has its position in the file as its number, which may be the index of another node.
        return given or twice(
            ((site.position_of(node.name), loc, f"node {node.name}") for node, loc in placed if node.kind == "metal"),
            "node number",
        )
    same = twice(
        ((rack.index, ("racks", r, "index"), f"rack {rack.name}") for r, rack in enumerate(site.racks)), "number"
    )
    out = [replace(flaw, about=NUMBER) for flaw in same]
    for r, rack in enumerate(site.racks):
        out += twice(
            ((node.slot, ("racks", r, "nodes", n), f"node {node.name}") for n, node in enumerate(rack.nodes)),
            f"slot of {rack.name}:",
        )
    if not out:
        every = (
            (node.index, ("racks", r, "nodes", n, "index"), f"node {node.name}")
            for r, rack in enumerate(site.racks)
            for n, node in enumerate(rack.nodes)
        )
        out += twice(every, "node number")
    return out
