"""Problems inside one rack: units, weight, heat, feeds over their rating, too few power supplies."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rackready.design.capacity import circuits, cooling
from rackready.design.capacity.limits import SLACK_KG, as_given, kilowatts, over
from rackready.design.capacity.parts import DeviceModel, RackInput, least
from rackready.design.capacity.supply import Live, Shortage, Supplies, needed_psus, overloaded


@dataclass(frozen=True, slots=True)
class CapacityFinding:
    """One problem of a rack. Racks that are alike have equal findings."""

    topic: str
    """units, weight, cooling, feed, supplies or stated; liquid, air, ac or dc for a model that does not fit."""
    message: str
    of: str = ""
    """The detail: a way of cooling, or a model."""
    live: Live | None = None
    """Feeds that are alive when it shows; None if it does not depend on feeds."""
    feed: int | None = None
    seen_w: float = 0.0
    short: Shortage | None = None
    at: str = ""
    """For a feed: its name and the case in which it is over its rating, for a message about several cases."""

    @property
    def about(self) -> tuple[str, str]:
        """Return topic and detail. A node is moved away on trial until both are gone."""
        return self.topic, self.of


def units(rack: RackInput) -> list[CapacityFinding]:
    """Return whether devices need more units than the rack has.

    The check of the site file covers the position of each.
    """
    if rack.used_u <= rack.height_u:
        return []
    return [
        CapacityFinding(
            "units",
            f"devices need more units than the rack has - Expected: at most {rack.height_u} U Actual: {rack.used_u} U.",
        )
    ]


def weight(rack: RackInput) -> list[CapacityFinding]:
    """Return whether the published weights together exceed the limit of the place."""
    total = sum(device.model.weight_kg or 0.0 for device in rack.devices)
    if rack.max_weight_kg is None or not over(total, rack.max_weight_kg, SLACK_KG):
        return []
    some = least(partial=any(device.model.weight_kg is None for device in rack.devices))
    most, have = as_given(total, rack.max_weight_kg, "kg")
    return [CapacityFinding("weight", f"total weight is too high - Expected: at most {most} Actual: {some}{have}.")]


def heat(rack: RackInput) -> list[CapacityFinding]:
    """Return heat beyond the limits of the rack."""
    limits, out = rack.cooling, []
    if limits is None:
        return []
    for way, limit in (("", limits.max_kw), ("air", limits.max_air_kw), ("liquid", limits.max_liquid_kw)):
        load, what = cooling.known(rack, way), f" into {way}" if way else ""
        if limit is not None and over(load.watts, limit * 1000):
            most, have = as_given(load.watts / 1000, limit, "kW")
            text = (
                f"heat{what} exceeds its cooling - Expected: at most {most} "
                f"Actual: {least(partial=load.partial)}{have}."
            )
            out.append(CapacityFinding("cooling", text, way))
    return out


def fits(rack: RackInput) -> list[CapacityFinding]:
    """Return models that do not fit the rack's cooling or its kind of feeds."""
    models = {device.model.id: device.model for device in rack.devices}
    kind, kinds = rack.cooling.kind if rack.cooling is not None else None, {feed.kind for feed in rack.feeds}
    found = [(cooling_misfit(kind, model), feed_misfit(kinds, model)) for model in models.values()]
    return [misfit for pair in found for misfit in pair if misfit is not None]


def wet(model: DeviceModel) -> bool:
    """Return whether a model needs a liquid loop."""
    return model.cooled in {"liquid", "hybrid"} or bool(model.liquid_share)


def cooling_misfit(kind: str | None, model: DeviceModel) -> CapacityFinding | None:
    """Return the problem if a model's way of cooling does not match the rack; None if it does."""
    if kind == "air" and wet(model):
        text = f"{model.label} is liquid-cooled - Expected: cooling of kind liquid or hybrid Actual: air."
        return CapacityFinding("liquid", text, model.label)
    if kind == "liquid" and model.cooled == "air":
        text = f"{model.label} is air-cooled - Expected: cooling of kind air or hybrid Actual: liquid."
        return CapacityFinding("air", text, model.label)
    return None


def feed_misfit(kinds: AbstractSet[str], model: DeviceModel) -> CapacityFinding | None:
    """Return the problem if a model can use no feed of the rack: cords on a DC bus bar, or a bus bar with PDUs."""
    if kinds == {"shelf"} and model.fed == "ac":
        text = (
            f"{model.label} has AC supplies with cords - Expected: a feed of kind pdu Actual: shelf only (DC bus bar)."
        )
        return CapacityFinding("ac", text, model.label)
    if kinds == {"pdu"} and model.fed == "bus_bar":
        text = f"{model.label} takes its power from a DC bus bar - Expected: a feed of kind shelf Actual: pdu only."
        return CapacityFinding("dc", text, model.label)
    return None


def stated_supplies(rack: RackInput) -> list[CapacityFinding]:
    """Return nodes whose number of supplies differs from the sum over the feeds of the rack."""
    stated = [feed.psus for feed in rack.feeds if feed.kind == "pdu"]
    counts = [item for item in stated if item is not None]
    if not counts:
        return []
    if len(counts) < len(stated):
        return [
            CapacityFinding(
                "stated", f"psus is set for some feeds only - Expected: all {len(stated)} Actual: {len(counts)}."
            )
        ]
    models = {
        device.model.id: device.model
        for device in rack.devices
        if device.kind == "node" and device.model.psus is not None
    }
    return [
        CapacityFinding(
            "stated",
            f"psus of the feeds do not add up for {name} - Expected: {model.psus} in total Actual: {sum(counts)}.",
            name,
        )
        for name, model in sorted(models.items())
        if model.psus != sum(counts)
    ]


def powered(rack: RackInput, live: Live, supplies: Supplies) -> list[CapacityFinding]:
    """Return overloaded feeds, and devices with too few power supplies, with some feeds alive."""
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
        out.append(CapacityFinding("feed", text, live=live, feed=number, seen_w=seen, at=f"feed {feed.name}{when}"))
    for short in state.short:
        need = needed_psus(short.model)
        have = f"{short.live} of {short.model.psus}" if short.model.psus is not None else "no supply"
        text = (
            f"{short.devices} x {short.model.label} keep too few power supplies{when} - Expected: at least {need} "
            f"Actual: {have}."
        )
        out.append(CapacityFinding("supplies", text, short.model.id, live, short=short))
    return out


def still(rack: RackInput) -> list[CapacityFinding]:
    """Return problems that do not depend on feeds."""
    return units(rack) + weight(rack) + heat(rack) + fits(rack) + stated_supplies(rack)


def all_of(rack: RackInput, states: Iterable[Live], supplies: Supplies) -> list[CapacityFinding]:
    """Return all problems of a rack, in any of these states of its feeds."""
    return still(rack) + [finding for live in states for finding in powered(rack, live, supplies)]
