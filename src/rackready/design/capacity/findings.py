"""What is wrong inside one rack: units, weight, heat, feeds over their rating, supplies under the minimum."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rackready.design.capacity import circuits, cooling
from rackready.design.capacity.limits import SLACK_KG, as_given, kilowatts, over
from rackready.design.capacity.parts import DeviceModel, RackInput, least
from rackready.design.capacity.supply import Live, Shortage, Supplies, needed_psus, overloaded


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
    at: str = ""
    """Of a feed: its name and when it is over its rating, for a message that speaks of several."""


def units(rack: RackInput) -> list[Finding]:
    """Return whether devices need more units than the rack has (each one's place is checked with the site file)."""
    if rack.used_u <= rack.height_u:
        return []
    return [
        Finding(
            "units",
            f"devices need more units than the rack has - Expected: at most {rack.height_u} U Actual: {rack.used_u} U.",
        )
    ]


def weight(rack: RackInput) -> list[Finding]:
    """Return whether the published weights together are more than the place bears."""
    total = sum(device.model.weight_kg or 0.0 for device in rack.devices)
    if rack.max_weight_kg is None or not over(total, rack.max_weight_kg, SLACK_KG):
        return []
    some = least(partial=any(device.model.weight_kg is None for device in rack.devices))
    most, have = as_given(total, rack.max_weight_kg, "kg")
    return [Finding("weight", f"devices are too heavy - Expected: at most {most} Actual: {some}{have}.")]


def heat(rack: RackInput) -> list[Finding]:
    """Return heat beyond what the rack's place can lose."""
    limits, out = rack.cooling, []
    if limits is None:
        return []
    for way, limit in (("", limits.max_kw), ("air", limits.max_air_kw), ("liquid", limits.max_liquid_kw)):
        load, what = cooling.known(rack, way), f" into {way}" if way else ""
        if limit is not None and over(load.watts, limit * 1000):
            most, have = as_given(load.watts / 1000, limit, "kW")
            text = (
                f"heat{what} is more than its cooling carries - Expected: at most {most} "
                f"Actual: {least(partial=load.partial)}{have}."
            )
            out.append(Finding(f"cooling{what}", text))
    return out


def fits(rack: RackInput) -> list[Finding]:
    """Return models that the rack's cooling or its kind of feeds cannot serve at all."""
    models = {device.model.id: device.model for device in rack.devices}
    kind, kinds = rack.cooling.kind if rack.cooling is not None else None, {feed.kind for feed in rack.feeds}
    found = [
        (model, *misfit)
        for model in models.values()
        for misfit in (cooling_misfit(kind, model), feed_misfit(kinds, model))
        if misfit
    ]
    return [Finding(f"{topic} {model.label}", text) for model, topic, text in found]


def wet(model: DeviceModel) -> bool:
    """Say whether a model needs a liquid loop."""
    return model.cooled in {"liquid", "hybrid"} or bool(model.liquid_share)


def cooling_misfit(kind: str | None, model: DeviceModel) -> tuple[str, str] | None:
    """Return (topic, what is wrong) when a model's way of cooling is not the rack's: liquid-cooled in air, air-cooled in liquid."""
    if kind == "air" and wet(model):
        return "liquid", f"{model.label} is liquid-cooled - Expected: cooling of kind liquid or hybrid Actual: air."
    if kind == "liquid" and model.cooled == "air":
        return "air", f"{model.label} is air-cooled - Expected: cooling of kind air or hybrid Actual: liquid."
    return None


def feed_misfit(kinds: AbstractSet[str], model: DeviceModel) -> tuple[str, str] | None:
    """Return (topic, what is wrong) when a model takes power from no feed of the rack: cords on a DC bus bar, a bus bar where there are PDUs."""
    if kinds == {"shelf"} and model.fed == "ac":
        return (
            "ac",
            f"{model.label} has AC supplies with cords - Expected: a feed of kind pdu Actual: shelf only (DC bus bar).",
        )
    if kinds == {"pdu"} and model.fed == "bus_bar":
        return (
            "dc",
            f"{model.label} takes its power from a DC bus bar - Expected: a feed of kind shelf Actual: pdu only.",
        )
    return None


def stated_supplies(rack: RackInput) -> list[Finding]:
    """Return nodes whose number of supplies is not what the rack's feeds say in sum."""
    stated = [feed.psus for feed in rack.feeds if feed.kind == "pdu"]
    counts = [item for item in stated if item is not None]
    if not counts:
        return []
    if len(counts) < len(stated):
        return [
            Finding("stated", f"psus is given for some feeds only - Expected: all {len(stated)} Actual: {len(counts)}.")
        ]
    models = {
        device.model.id: device.model
        for device in rack.devices
        if device.kind == "node" and device.model.psus is not None
    }
    return [
        Finding(
            f"stated {name}",
            f"psus of the feeds do not add up for {name} - Expected: {model.psus} in sum Actual: {sum(counts)}.",
        )
        for name, model in sorted(models.items())
        if model.psus != sum(counts)
    ]


def powered(rack: RackInput, live: Live, supplies: Supplies) -> list[Finding]:
    """Return feeds over their rating and devices under their minimum of supplies with some feeds alive."""
    state, out = supplies.of(rack, live), []
    lost = [feed.name for feed, alive in zip(rack.feeds, live, strict=True) if not alive]
    when = f" with feed {' and '.join(lost)} lost" if lost else " with everything alive"
    for number, seen, usable in overloaded(rack, state):
        feed, (most, have) = rack.feeds[number], kilowatts(seen, usable)
        some = least(partial=bool(rack.unpublished))
        text = (
            f"feed {feed.name} ({circuits.rating_text(feed)}) is over its rating{when} - Expected: at most {most} "
            f"Actual: {some}{have}."
        )
        out.append(Finding("feed", text, live, number, seen, at=f"feed {feed.name}{when}"))
    for short in state.short:
        need = needed_psus(short.model)
        have = f"{short.live} of {short.model.psus}" if short.model.psus is not None else "no supply"
        text = (
            f"{short.devices} x {short.model.label} keep too few power supplies{when} - Expected: at least {need} "
            f"Actual: {have}."
        )
        out.append(Finding(f"supplies {short.model.id}", text, live, short=short))
    return out


def still(rack: RackInput) -> list[Finding]:
    """Return what is wrong whatever the feeds do."""
    return units(rack) + weight(rack) + heat(rack) + fits(rack) + stated_supplies(rack)


def all_of(rack: RackInput, states: Iterable[Live], supplies: Supplies) -> list[Finding]:
    """Return everything that is wrong in a rack, in any of these states of its feeds."""
    return still(rack) + [finding for live in states for finding in powered(rack, live, supplies)]
