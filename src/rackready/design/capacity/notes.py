"""What is not judged, and why: figures that nobody publishes, elements without a rating, losses that the site accepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackready.design.capacity import circuits
from rackready.design.capacity.parts import DeviceModel, RackInput, where
from rackready.design.names import listed
from rackready.model.facility import PowerNode

NOT_PUBLISHED = "not published"
"""Stands where a profile has no figure. Nothing is guessed in its place."""


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
    return out + _way_out([model for _, model in sorted(models.items()) if model.max_w is None]) + _stated(models.values())


def _way_out(models: Iterable[DeviceModel]) -> list[str]:
    """Return how the site states a draw that nobody publishes."""
    beside = {model.label: None for model in models if model.beside}
    listed_models = {model.label: None for model in models if not model.beside}
    parts = [f"max_power_w of devices of kind {', '.join(beside)}"] if beside else []
    parts += [f"facility.nameplates for {', '.join(listed_models)}"] if listed_models else []
    return [f"a draw that is not published is judged once the site states it: {' and '.join(parts)}"] if parts else []


def _stated(models: Iterable[DeviceModel]) -> list[str]:
    """Return which figures are the site's own statement, and where it has them from."""
    by_source: dict[str, dict[str, None]] = {}
    for model in models:
        if model.stated:
            by_source.setdefault(model.stated, {})[model.label] = None
    return [f"figures of {', '.join(sorted(labels))} are the site's own statement ({source})" for source, labels in sorted(by_source.items())]


def _unrated_feeds(racks: Sequence[RackInput]) -> list[str]:
    bare = {rack.name: sum(circuits.usable_w(feed) is None for feed in rack.feeds) for rack in racks}
    names, count = [name for name, feeds in bare.items() if feeds], sum(bare.values())
    if not names:
        return []
    return [f"{count:,} feed{'s' if count > 1 else ''} of {where(names)} {'have' if count > 1 else 'has'} no rating: not judged"]


def notes(racks: Sequence[RackInput], nodes: Sequence[PowerNode]) -> list[str]:
    """Return what a reader of the report must know of its gaps."""
    bare = sum(1 for rack in racks if not rack.feeds)
    out = [f"{bare} of {len(racks)} racks declare no feeds: their supply and its loss are not judged"] if bare else []
    out += _figures(racks)
    unrated = [node.name for node in nodes if circuits.usable_w(node) is None]
    if unrated:
        out.append(f"no rating given for {listed(unrated)}: loads are shown, not judged")
    out += _unrated_feeds(racks)
    return out + [f"loss of {node.name} is accepted: {node.loss_accepted}" for node in nodes if node.loss_accepted is not None]
