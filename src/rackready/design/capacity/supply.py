"""Power inside one rack: connections of supplies to feeds, and the load when feeds are lost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import count

from rackready.design.capacity import circuits, poles
from rackready.design.capacity.limits import over
from rackready.design.capacity.parts import DeviceModel, RackInput
from rackready.design.capacity.poles import Poles
from rackready.model.facility import Feed, Phase

Live = tuple[bool, ...]
"""Which feeds of a rack are alive, in order."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Devices of one model that keep fewer supplies than they need for full operation."""

    model: DeviceModel
    devices: int
    live: int


@dataclass(frozen=True, slots=True)
class Supply:
    """State of one rack with some of its feeds alive. Tuples are in the order of the feeds."""

    upstream: tuple[Poles, ...]
    """Load of each feed on its power node."""
    judged_w: tuple[float, ...]
    """Load on each feed's own breaker, W: for three phases three times the worst pole."""
    short: tuple[Shortage, ...]


def needed_psus(model: DeviceModel) -> int:
    """Return how many supplies must be alive: the published minimum, or more if needed for the highest draw.

    The latter is derived: max power / power of a supply.
    """
    carrying = math.ceil(model.max_w / model.psu_max_w) if model.max_w is not None and model.psu_max_w else 1
    return max(model.psu_min or 1, carrying)


def spread(psus: int, feeds: int, first: int) -> list[int]:
    """Return how many of a device's supplies each feed takes: evenly, the remainder from feed ``first`` on in turn."""
    counts = [psus // feeds] * feeds
    for extra in range(psus % feeds):
        counts[(first + extra) % feeds] += 1
    return counts


def bus_bar(rack: RackInput) -> list[int]:
    """Return the indices of the feeds that are power shelves."""
    return [index for index, feed in enumerate(rack.feeds) if feed.kind == "shelf"]


@dataclass(slots=True)
class _Layout:
    """Connections of the supplies of one rack."""

    outlets: list[tuple[int, list[tuple[int, Phase | None]]]] = field(default_factory=list)
    """(index of device, [(feed, phase of the outlet)]) for devices whose supplies are published."""
    pooled: list[DeviceModel] = field(default_factory=list)
    """Devices on the bus bar."""
    loose: list[DeviceModel] = field(default_factory=list)
    """Devices with unpublished supplies: their load counts as even over the PDUs that are alive."""


def _phase(feed: Feed, outlet: int) -> Phase | None:
    return poles.IN_TURN[circuits.line_to_neutral(feed)][outlet % 3] if feed.phases == 3 else feed.phase  # noqa: PLR2004 - three phases


def layout(rack: RackInput) -> _Layout:
    """Connect every supply of a rack to a feed and, at a three-phase PDU, to a phase (outlets take the phases in turn).

    In racks with shelves, devices without published supplies are on the bus bar; all are if there is no PDU.
    """
    out = _Layout()
    shelves = bus_bar(rack)
    pdus = [index for index in range(len(rack.feeds)) if index not in shelves]
    outlets = [count() for _ in rack.feeds]
    stated = [rack.feeds[index].psus for index in pdus]
    first = 0
    for number, device in enumerate(rack.devices):
        psus = device.model.psus
        if shelves and (psus is None or not pdus):
            out.pooled.append(device.model)
        elif psus is None or not pdus:
            out.loose.append(device.model)
        else:
            as_stated = device.kind == "node" and all(item is not None for item in stated)
            counts = [item or 0 for item in stated] if as_stated else spread(psus, len(pdus), first)
            first = (first + psus) % len(pdus)
            out.outlets.append(
                (
                    number,
                    [
                        (feed, _phase(rack.feeds[feed], next(outlets[feed])))
                        for feed, n in zip(pdus, counts, strict=True)
                        for _ in range(n)
                    ],
                )
            )
    return out


def _add_pooled(
    rack: RackInput, live: Live, models: list[DeviceModel], feeds: list[int], out: list[Poles]
) -> dict[tuple[str, int], Shortage]:
    """Add the load of devices that all feeds of a kind carry together; return those left without a living feed."""
    alive = [index for index in feeds if live[index]]
    if not alive:
        return {(model.id, 0): Shortage(model, sum(1 for item in models if item.id == model.id), 0) for model in models}
    load = sum(model.max_w or 0.0 for model in models)
    ratings = [circuits.usable_w(rack.feeds[index]) for index in alive]
    known = [rating for rating in ratings if rating is not None]
    shares = known if len(known) == len(alive) else [1.0] * len(alive)
    for index, share in zip(alive, shares, strict=True):
        out[index] = poles.add(out[index], poles.even(load * share / sum(shares)))
    return {}


def _add_device(model: DeviceModel, hung: list[tuple[int, Phase | None]], live: Live, out: list[Poles]) -> int:
    alive = [(feed, phase) for feed, phase in hung if live[feed]]
    for feed, phase in alive:
        part = (model.max_w or 0.0) / len(alive)
        out[feed] = poles.add(out[feed], poles.even(part) if phase is None else poles.on(phase, part))
    return len(alive)


def supply(rack: RackInput, live: Live, hung: _Layout) -> Supply:
    """Return loads and shortages of a rack with only some of its feeds alive.

    Supplies of one device share its load evenly; shelves share the bus bar's in proportion to their ratings. A device
    with too few supplies still counts with its highest draw, because breakers must carry it.
    """
    loads = [poles.NONE] * len(rack.feeds)
    shelves = bus_bar(rack)
    short = _add_pooled(rack, live, hung.pooled, shelves, loads)
    short |= _add_pooled(
        rack, live, hung.loose, [index for index in range(len(rack.feeds)) if index not in shelves], loads
    )
    for number, outlets in hung.outlets:
        model = rack.devices[number].model
        alive = _add_device(model, outlets, live, loads)
        key = (model.id, alive)
        if alive < needed_psus(model):
            short[key] = Shortage(model, short[key].devices + 1 if key in short else 1, alive)
    judged = tuple(_judged(feed, load) for feed, load in zip(rack.feeds, loads, strict=True))
    upstream = tuple(_upstream(feed, load) for feed, load in zip(rack.feeds, loads, strict=True))
    return Supply(upstream, judged, tuple(short.values()))


def _judged(feed: Feed, load: Poles) -> float:
    return poles.worst(load) if feed.phases == 3 else poles.watts(load)  # noqa: PLR2004 - three phases


def _upstream(feed: Feed, load: Poles) -> Poles:
    """Return the load on the power node.

    The poles of three-phase feeds are rotated from rack to rack during installation, so their load counts as even.
    """
    return load if feed.phases == 1 and feed.phase is not None else poles.even(poles.watts(load))


def overloaded(rack: RackInput, state: Supply) -> list[tuple[int, float, float]]:
    """Return (feed, load on its breaker, its limit), W, of every overloaded feed of a rack."""
    usable = [circuits.usable_w(feed) for feed in rack.feeds]
    pairs = enumerate(zip(state.judged_w, usable, strict=True))
    return [(number, seen, limit) for number, (seen, limit) in pairs if limit is not None and over(seen, limit)]


class Supplies:
    """Supply of racks, computed once for all that are alike."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[object, ...], _Layout] = {}
        self._known: dict[tuple[tuple[object, ...], Live], Supply] = {}

    def of(self, rack: RackInput, live: Live) -> Supply:
        """Return the supply of a rack with only some feeds alive."""
        key = (rack.shape, live)
        if key not in self._known:
            if rack.shape not in self._layouts:
                self._layouts[rack.shape] = layout(rack)
            self._known[key] = supply(rack, live, self._layouts[rack.shape])
        return self._known[key]
