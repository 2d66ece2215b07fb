"""Notes on gaps: unpublished figures, elements without a rating, losses that the site accepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackready.design.capacity import circuits, cooling
from rackready.design.capacity.graph import SOURCES
from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput, where
from rackready.design.names import listed
from rackready.model.facility import Facility

NOT_PUBLISHED = "not published"
"""Text in place of an unpublished figure. Nothing is guessed."""


def _lacks(model: DeviceModel) -> list[str]:
    out = []
    if model.max_w is None:
        out.append("highest draw")
    if model.typical_w is None:
        out.append("typical draw")
    if model.transient_w is None:
        out.append("transient draw")
    if model.weight_kg is None:
        out.append("weight")
    if model.max_w != 0 and (model.psus is None or (model.psu_min is None and model.psu_max_w is None)):
        out.append("minimum of power supplies")
    return out


def _figures(racks: Sequence[RackInput]) -> list[str]:
    models = {device.model.id: device.model for rack in racks for device in rack.devices}
    missing: dict[str, dict[str, None]] = {}
    for _, model in sorted(models.items()):
        for what in _lacks(model):
            missing.setdefault(what, {})[model.label] = None
    out = [f"{what} {NOT_PUBLISHED}: {', '.join(names)}" for what, names in missing.items()]
    return (
        out + _way_out([model for _, model in sorted(models.items()) if model.max_w is None]) + _stated(models.values())
    )


def _way_out(models: Iterable[DeviceModel]) -> list[str]:
    """Return how the site can state an unpublished draw."""
    beside = {model.label: None for model in models if model.beside}
    listed_models = {model.label: None for model in models if not model.beside}
    parts = [f"max_power_w of devices of kind {', '.join(beside)}"] if beside else []
    parts += [f"facility.nameplates for {', '.join(listed_models)}"] if listed_models else []
    return [f"an unpublished draw is judged once the site states it: {' and '.join(parts)}"] if parts else []


def _stated(models: Iterable[DeviceModel]) -> list[str]:
    """Return which figures are stated by the site, and their source."""
    by_source: dict[str, dict[str, None]] = {}
    for model in models:
        if model.stated:
            by_source.setdefault(model.stated, {})[model.label] = None
    return [
        f"figures of {', '.join(sorted(labels))} are stated by the site ({source})"
        for source, labels in sorted(by_source.items())
    ]


def _unrated_feeds(racks: Sequence[RackInput]) -> list[str]:
    bare = {rack.name: sum(circuits.usable_w(feed) is None for feed in rack.feeds) for rack in racks}
    names, count = [name for name, feeds in bare.items() if feeds], sum(bare.values())
    if not names:
        return []
    return [
        (
            f"{count:,} feed{'s' if count > 1 else ''} of {where(names)} {'have' if count > 1 else 'has'} no rating: "
            "not judged"
        )
    ]


def unsplit(racks: Sequence[RackInput], unplaced: Sequence[PoweredDevice]) -> dict[str, list[str]]:
    """Return the models that draw power with an unpublished split of heat, each with its racks."""
    out: dict[str, list[str]] = {}
    for rack in racks:
        for label in cooling.known(rack, "liquid").share:
            out.setdefault(label, []).append(rack.name)
    for device in unplaced:
        if device.model.liquid_share is None and device.model.max_w != 0:
            out.setdefault(device.model.label, [])
    return dict(sorted(out.items()))


def _split(racks: Sequence[RackInput], unplaced: Sequence[PoweredDevice]) -> list[str]:
    missing = unsplit(racks, unplaced)
    if not missing:
        return []
    held = list(dict.fromkeys(name for names in missing.values() for name in names))
    way = "cooling of kind air or liquid, or of kind hybrid with its liquid_share"
    what = f"give {where(held)} {way}" if held else f"place them in racks that have {way}"
    return [f"heat into liquid and into air is not known: liquid share {NOT_PUBLISHED} of {', '.join(missing)}; {what}"]


def _unplaced(unplaced: Sequence[PoweredDevice]) -> list[str]:
    """Return notes on equipment in no rack, and where its draw is counted."""
    if not unplaced:
        return []
    known = sum(device.model.max_w or 0.0 for device in unplaced)
    missing = sorted({device.model.label for device in unplaced if device.model.max_w is None})
    counted = f"their {known / 1000:,.1f} kW are in the sums of the site, but" if known or not missing else "they are"
    unknown = f" (draw {NOT_PUBLISHED}: {', '.join(missing)})" if missing else ""
    verb = "is" if len(unplaced) == 1 else "are"
    return [
        (
            f"{listed([device.name for device in unplaced])} {verb} in no rack: {counted} not in the "
            f"load of any rack, feed or power node{unknown}; add the rack of each"
        )
    ]


def _overhead(facility: Facility) -> list[str]:
    """Return whether the loads of sources include cooling and losses."""
    sources = [node.name for node in facility.power if node.kind in SOURCES]
    if not sources:
        return []
    if facility.pue is not None:
        return [
            (
                f"load of {listed(sources)} is that of racks x PUE {facility.pue:g}: this includes cooling and losses; "
                "all other power nodes carry only racks"
            )
        ]
    return [f"facility.pue is not set: cooling and losses are not in the load of {listed(sources)}"]


def notes(racks: Sequence[RackInput], facility: Facility, unplaced: Sequence[PoweredDevice] = ()) -> list[str]:
    """Return notes on the gaps that a reader of the report must know."""
    nodes = facility.power
    bare = sum(1 for rack in racks if not rack.feeds)
    out = [f"{bare} of {len(racks)} racks declare no feeds: their supply and its loss are not judged"] if bare else []
    out += _unplaced(unplaced) + _overhead(facility)
    out += _figures([*racks, RackInput("", tuple(unplaced))] if unplaced else racks) + _split(racks, unplaced)
    unrated = [node.name for node in nodes if circuits.usable_w(node) is None]
    if unrated:
        out.append(f"no rating given for {listed(unrated)}: loads are shown, not judged")
    out += _unrated_feeds(racks)
    return out + [
        f"loss of {node.name} is accepted: {node.loss_accepted}" for node in nodes if node.loss_accepted is not None
    ]
