"""What is wrong inside one rack: units, weight, heat, feeds over their rating, supplies under the minimum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackready.design.capacity import circuits, cooling
from rackready.design.capacity.parts import RackInput, least
from rackready.design.capacity.supply import Live, Shortage, Supplies, needed_psus


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong in a rack. Two racks that are alike have equal findings."""

    topic: str
    """units, weight, cooling, feed or supplies, and what of it: moving a node away is tried until the topic is gone."""
    message: str
    live: Live | None = None
    """Which feeds live when it shows; None when it does not depend on feeds."""
    feed: int | None = None
    seen_w: float = 0.0
    short: Shortage | None = None


def units(rack: RackInput) -> list[Finding]:
    """Return whether devices need more units than the rack has (each one's place is checked with the site file)."""
    if rack.used_u <= rack.height_u:
        return []
    return [Finding("units", f"devices need more units than the rack has - Expected: at most {rack.height_u} U Actual: {rack.used_u} U.")]


def weight(rack: RackInput) -> list[Finding]:
    """Return whether the published weights together are more than the place bears."""
    total = sum(device.model.weight_kg or 0.0 for device in rack.devices)
    if rack.max_weight_kg is None or total <= rack.max_weight_kg:
        return []
    some = least(partial=any(device.model.weight_kg is None for device in rack.devices))
    return [Finding("weight", f"devices are too heavy - Expected: at most {rack.max_weight_kg:g} kg Actual: {some}{total:g} kg.")]


def heat(rack: RackInput) -> list[Finding]:
    """Return heat beyond what the rack's place can lose, and liquid-cooled devices in a rack without liquid."""
    limits, out = rack.cooling, []
    if limits is None:
        return []
    for way, limit in (("", limits.max_kw), ("air", limits.max_air_kw), ("liquid", limits.max_liquid_kw)):
        load, what = cooling.known(rack, way), f" into {way}" if way else ""
        if limit is not None and load.watts > limit * 1000:
            actual = f"{least(partial=load.partial)}{_kw(load.watts)}"
            out.append(Finding(f"cooling{what}", f"heat{what} is more than its cooling carries - Expected: at most {limit:g} kW Actual: {actual}."))
    if limits.kind == "air":
        wet = sorted({device.model.id for device in rack.devices if device.model.liquid_share})
        out += [Finding(f"liquid {model}", f"{model} is liquid-cooled - Expected: cooling of kind liquid or hybrid Actual: air.") for model in wet]
    return out


def stated_supplies(rack: RackInput) -> list[Finding]:
    """Return nodes whose number of supplies is not what the rack's feeds say in sum."""
    stated = [feed.psus for feed in rack.feeds if feed.kind == "pdu"]
    counts = [item for item in stated if item is not None]
    if not counts:
        return []
    if len(counts) < len(stated):
        return [Finding("stated", f"psus is given for some feeds only - Expected: all {len(stated)} Actual: {len(counts)}.")]
    models = {device.model.id: device.model for device in rack.devices if device.kind == "node" and device.model.psus is not None}
    return [
        Finding(f"stated {name}", f"psus of the feeds do not add up for {name} - Expected: {model.psus} in sum Actual: {sum(counts)}.")
        for name, model in sorted(models.items())
        if model.psus != sum(counts)
    ]


def powered(rack: RackInput, live: Live, supplies: Supplies) -> list[Finding]:
    """Return feeds over their rating and devices under their minimum of supplies with some feeds alive."""
    state, out = supplies.of(rack, live), []
    lost = [feed.name for feed, alive in zip(rack.feeds, live, strict=True) if not alive]
    when = f" with feed {' and '.join(lost)} lost" if lost else ""
    for number, (feed, seen) in enumerate(zip(rack.feeds, state.judged_w, strict=True)):
        usable = circuits.usable_w(feed)
        if usable is not None and seen > usable + 0.5:
            actual = f"{least(partial=bool(rack.unpublished))}{_kw(seen)}"
            text = f"feed {feed.name} ({circuits.rating_text(feed)}) is over its rating{when} - Expected: at most {_kw(usable)} Actual: {actual}."
            out.append(Finding("feed", text, live, number, seen))
    for short in state.short:
        need = needed_psus(short.model)
        have = f"{short.live} of {short.model.psus}" if short.model.psus is not None else "no supply"
        text = f"{short.devices} x {short.model.id} keep too few power supplies{when} - Expected: at least {need} Actual: {have}."
        out.append(Finding(f"supplies {short.model.id}", text, live, short=short))
    return out


def _kw(watts: float) -> str:
    return f"{watts / 1000:.1f} kW"


def still(rack: RackInput) -> list[Finding]:
    """Return what is wrong whatever the feeds do."""
    return units(rack) + weight(rack) + heat(rack) + stated_supplies(rack)


def all_of(rack: RackInput, states: Iterable[Live], supplies: Supplies) -> list[Finding]:
    """Return everything that is wrong in a rack, in any of these states of its feeds."""
    return still(rack) + [finding for live in states for finding in powered(rack, live, supplies)]
