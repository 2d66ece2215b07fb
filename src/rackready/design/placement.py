"""Where the switches that a topology makes stand: the slots that the site gives them, taken in an order in which new switches come last.

Leafs by unit, then plane and index: a new unit comes behind all that stand. Spines by pod, then index, then plane, and cores by index, then plane: when
more of them are needed, those of every plane come behind all that stand, and not behind their own plane's only.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    written = {switch.name: (switch.rack, switch.unit) for switch in site.switches if switch.rack is not None and switch.unit is not None}
    places = dict(written)
    problems = []
    for tier in ("leaf", "spine", "core"):
        wanted = [switch for switch in fabric.switches if switch.tier == tier and switch.name not in places]
        wanted.sort(key=_leaf_order if tier == "leaf" else _upper_order)
        slots = [(slot.rack, int(unit)) for slot in site.switch_slots if slot.tier == tier for unit in expand_range(slot.units)[:: slot.step]]
        places |= dict(zip((switch.name for switch in wanted), slots, strict=False))
        if len(slots) < len(wanted) and (site.switch_slots or written):
            left = wanted[len(slots)].name
            text = f"switch_slots: {len(wanted)} {tier} switches have {len(slots)} slots ({left} is the first without)."
            problems.append(f"{text} Add slots for {len(wanted) - len(slots)} more.")
    return Placement(places, tuple(problems))
