"""Where the switches that a topology or another fabric makes stand: the slots that the site gives them, taken in an order in which new ones come last.

Leafs by unit, then plane and index: a new unit comes behind all that stand. Spines by pod, then index, then plane, and
cores by index, then plane: when more of them are needed, those of every plane come behind all that stand, and not
behind their own plane's only. Those of other fabrics by their numbers: where there are slots enough, one is left free
for every number between them that is not there yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rackready.design.other_fabrics import other_layout
from rackready.design.topology.types import FabricPlan, TopoSwitch
from rackready.model.base import expand_range
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Placement:
    """``places``: switch to (rack, lowest unit). ``problems``: which switches have no slot."""

    places: dict[str, tuple[str, int]]
    problems: tuple[str, ...]


def _leaf_order(switch: TopoSwitch) -> tuple[int, int, int]:
    return switch.su, switch.plane, switch.index


def _upper_order(switch: TopoSwitch) -> tuple[int, int, int]:
    return switch.pod, switch.index, switch.plane


def place_switches(site: Site, fabric: FabricPlan) -> Placement:
    """Return the place of every switch of the fabric: written by hand, else the next free slot of its tier.

    Nothing is a problem for a site that gives no slots and places no switch: then nobody asks for lengths of cables.
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
        # With a slot for every number, also those that are left out, a switch that comes between others moves none.
        taking = names if len(slots) >= len(names) else wanted
        places |= {name: slot for name, slot in zip(taking, slots, strict=False) if name in wanted}
        if len(slots) < len(wanted) and (site.switch_slots or written or of is not None):
            called = tier if of is None else f"{of} {tier}"
            text = (
                f"switch_slots: {len(wanted)} {called} switches have {len(slots)} slots ({wanted[len(slots)]} is "
                "the first without)."
            )
            problems.append(f"{text} Add slots for {len(wanted) - len(slots)} more.")
    return Placement(places, tuple(problems))


def _wanted(site: Site, fabric: FabricPlan) -> Iterator[tuple[str | None, str, list[str]]]:
    """Yield (fabric, None for the compute fabric; tier; its switches in the order in which they take slots).

    Switches of other fabrics have an empty name for each number that is left out between them.
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
