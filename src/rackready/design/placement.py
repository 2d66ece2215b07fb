"""Positions of switches that a topology or another fabric makes: each takes one of the slots in the site file.

The order in which switches take slots puts new switches last.

Leafs go by unit, then plane and index: a new unit comes after all existing ones. Spines go by pod, then index, then
plane, and cores by index, then plane: additional switches of every plane come after all existing ones, not only after
those of their plane. Switches of other fabrics go by number: if there are enough slots, one is left free for every
number that is still missing between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rackready.design.other_fabrics import other_layout
from rackready.design.topology.types import FabricPlan, TopoSwitch
from rackready.model.base import expand_range
from rackready.model.problems import Problem
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Placement:
    """``places``: switch -> (rack, lowest unit). ``problems``: switches without a slot."""

    places: dict[str, tuple[str, int]]
    problems: tuple[Problem, ...]


def _leaf_order(switch: TopoSwitch) -> tuple[int, int, int]:
    return switch.su, switch.plane, switch.index


def _upper_order(switch: TopoSwitch) -> tuple[int, int, int]:
    return switch.pod, switch.index, switch.plane


def place_switches(site: Site, fabric: FabricPlan) -> Placement:
    """Return the place of every switch of the fabric: as in the site file, else the next free slot of its tier.

    A site without slots and placed switches has no problems: it does not ask for cable lengths.
    """
    written = {
        switch.name: (switch.rack, switch.unit)
        for switch in site.switches
        if switch.rack is not None and switch.unit is not None
    }
    places = dict(written)
    problems = []
    for of, tier, every in _wanted(site, fabric):
        names = [name for name in every if name not in written]
        wanted = [name for name in names if name]
        slots = [
            (slot.rack, int(unit))
            for slot in site.switch_slots
            if (slot.fabric, slot.tier) == (of, tier)
            for unit in expand_range(slot.units)[:: slot.step]
        ]
        # With a slot for every number, including missing ones, a switch added in between moves no other.
        taking = names if len(slots) >= len(names) else wanted
        places |= {name: slot for name, slot in zip(taking, slots, strict=False) if name in wanted}
        if len(slots) < len(wanted) and (site.switch_slots or written or of is not None):
            called = tier if of is None else f"{of} {tier}"
            text = (
                f"{len(wanted)} {called} switches, but only {len(slots)} slots ({wanted[len(slots)]} is the first "
                f"without). Add slots for {len(wanted) - len(slots)} more."
            )
            problems.append(Problem("switch_slots", text))
    return Placement(places, tuple(problems))


def _wanted(site: Site, fabric: FabricPlan) -> Iterator[tuple[str | None, str, list[str]]]:
    """Yield (fabric, or None for the compute fabric; tier; switches in the order in which they take slots).

    The list of another fabric has an empty name for each missing number.
    """
    for tier in ("leaf", "spine", "core"):
        switches = [switch for switch in fabric.switches if switch.tier == tier]
        switches.sort(key=_leaf_order if tier == "leaf" else _upper_order)
        yield None, tier, [switch.name for switch in switches]
    layout = other_layout(site)
    for other in site.other_fabrics:
        for tier in ("leaf", "spine"):
            by_number = {switch.index: switch.name for switch in layout.of(other.name, tier)}
            yield (
                other.name,
                tier,
                [
                    by_number.get(number, "")
                    for number in range(min(by_number, default=1), max(by_number, default=0) + 1)
                ],
            )
