"""The smallest fix for a problem of a rack: move nodes to a rack with room, split, or use a larger feed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rackready.design.capacity import circuits, findings
from rackready.design.capacity.findings import CapacityFinding
from rackready.design.capacity.limits import SLACK_W, over
from rackready.design.capacity.losses import Flow
from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput, least
from rackready.design.capacity.supply import Live, Supplies, needed_psus, spread

MOST_MOVES = 4
"""Most moves of a small fix; beyond this, split the rack."""


@dataclass(frozen=True, slots=True)
class Move:
    """Move of one node to another rack."""

    device: str
    rack: str
    unit: int
    unknown: tuple[str, ...] = ()
    """Unpublished figures in the comparison; with any, it is not known whether the move fits."""

    def __str__(self) -> str:
        doubt = f" (not known to fit: {' and '.join(self.unknown)} not published)" if self.unknown else ""
        return f"{self.device} to rack {self.rack} unit {self.unit}{doubt}"


def free_unit(rack: RackInput, size: int) -> int | None:
    """Return the lowest unit from which ``size`` units are free; None without one, or if a device has no place."""
    if any(device.unit is None for device in rack.devices) or rack.used_u + size > rack.height_u:
        return None
    taken = {
        unit
        for device in rack.devices
        for unit in range(device.unit or 0, (device.unit or 0) + device.model.rack_units)
    }
    for unit in range(1, rack.height_u - size + 2):
        if taken.isdisjoint(range(unit, unit + size)):
            return unit
    return None


def _may_cool(rack: RackInput, model: DeviceModel) -> bool:
    """Return whether a rack is known to take the heat of a model: a rack without cooling data has air and no liquid."""
    return not findings.wet(model) or (rack.cooling is not None and rack.cooling.kind != "air")


def states_alone(rack: RackInput) -> list[Live]:
    """Return the states of a rack's feeds without a power graph: all alive, and each one lost alone."""
    count = len(rack.feeds)
    return (
        [(True,) * count, *(tuple(number != lost for number in range(count)) for lost in range(count))] if count else []
    )


class Planner:
    """Offers places for nodes that must move. A place, its units and its power are offered only once."""

    def __init__(self, racks: Sequence[RackInput], flow: Flow | None, supplies: Supplies) -> None:
        self.flow, self.supplies = flow, supplies
        self.racks = {rack.name: rack for rack in racks}
        self.states: dict[str, Iterable[Live]] = {}
        for group in flow.groups if flow is not None else []:
            self.states |= {name: list(group.states) for name in group.names}
        if flow is None:
            self.states = {rack.name: states_alone(rack) for rack in racks}
        self.reserved_w = [0.0] * len(flow.base) if flow is not None else []
        self._fits: dict[tuple[object, ...], bool] = {}
        self._taken: dict[tuple[object, ...], int] = {}
        self._full: set[str] = set()
        """Models for which no rack has room any more. Places are only ever taken, so the search is not repeated."""

    def _room_upstream(self, rack: RackInput, watts: float) -> bool:
        if self.flow is None or not rack.feeds:
            return True
        for node in self.flow.graph.upstream_of(rack.sources):
            usable, more = self.flow.graph.usable[node], watts * self.flow.graph.times[node]
            if usable is not None and over(self.flow.worst_w[node] + self.reserved_w[node] + more, usable):
                return False
        return True

    def _fits_in(self, rack: RackInput, device: PoweredDevice, unit: int) -> bool:
        states = self.states.get(rack.name, [])
        key = (rack.shape, device.model.id, unit, tuple(states))
        if key not in self._fits:
            self._fits[key] = not findings.all_of(rack.plus(replace(device, unit=unit)), states, self.supplies)
        return self._fits[key]

    def place(self, device: PoweredDevice, away_from: str) -> Move | None:
        """Find the first rack with room for one more node, and reserve the place.

        Room means free units, power (with any single loss), cooling and weight.

        Upstream the node counts with its whole draw on every element that can feed the rack, on top of the
        highest load of this element in any case.
        """
        if device.model.id in self._full:
            return None
        doubtful: Move | None = None
        for rack in self.racks.values():
            move = self._offer(device, rack) if rack.name != away_from else None
            if move is not None and not move.unknown:
                return self._reserved(move, device)
            doubtful = doubtful or move
        if doubtful is not None:
            return self._reserved(doubtful, device)
        self._full.add(device.model.id)
        return None

    def _offer(self, device: PoweredDevice, rack: RackInput) -> Move | None:
        """Return a place in a rack by the known figures; None if there is none."""
        size = device.model.rack_units
        if rack.used_u + size > rack.height_u or not _may_cool(rack, device.model):
            return None
        unit = free_unit(rack, size)
        if (
            unit is None
            or not self._fits_in(rack, device, unit)
            or not self._room_upstream(rack, device.model.max_w or 0.0)
        ):
            return None
        return Move(device.name, rack.name, unit, self._unknown(device, rack))

    def _reserved(self, move: Move, device: PoweredDevice) -> Move:
        rack = self.racks[move.rack]
        self.racks[move.rack] = rack.plus(replace(device, unit=move.unit))
        for node in self.flow.graph.upstream_of(rack.sources) if self.flow is not None and rack.feeds else []:
            self.reserved_w[node] += (
                (device.model.max_w or 0.0) * self.flow.graph.times[node] if self.flow is not None else 0.0
            )
        return move

    def _unknown(self, device: PoweredDevice, rack: RackInput) -> tuple[str, ...]:
        """Return unpublished figures of a device, its new rack and the power nodes above it that a limit depends on."""
        draw = set(rack.plus(device).unpublished) if rack.feeds or rack.cooling is not None else set[str]()
        if self.flow is not None and rack.feeds:
            rated = {
                node for node in self.flow.graph.upstream_of(rack.sources) if self.flow.graph.usable[node] is not None
            }
            beside = (
                group
                for group in self.flow.groups
                if group.rack.unpublished and rated & set(self.flow.graph.upstream_of(group.rack.sources))
            )
            draw |= {label for group in beside for label in group.rack.unpublished}
        heavy = (
            {item.model.label for item in (*rack.devices, device) if item.model.weight_kg is None}
            if rack.max_weight_kg is not None
            else set()
        )
        texts = [("draw", draw), ("weight", heavy)]
        return tuple(f"{what} of {', '.join(sorted(labels))}" for what, labels in texts if labels)

    def take(self, rack: RackInput, about: tuple[str, str]) -> list[PoweredDevice]:
        """Return the fewest nodes (up to MOST_MOVES, from the rack's end) whose removal fixes a problem, or none.

        ``about``: see ``Finding.about``.
        """
        states = self.states.get(rack.name, [])
        nodes = [device for device in reversed(rack.devices) if device.kind == "node" and not device.model.stays][
            :MOST_MOVES
        ]
        key = (rack.shape, about, tuple(states))
        if key not in self._taken:
            self._taken[key] = self._fewest(rack, about, nodes, states)
        return nodes[: self._taken[key]]

    def _fewest(
        self, rack: RackInput, about: tuple[str, str], nodes: list[PoweredDevice], states: Iterable[Live]
    ) -> int:
        left = rack
        for number, device in enumerate(nodes, start=1):
            left = left.without(device)
            if not any(found.about == about for found in findings.all_of(left, states, self.supplies)):
                return number
        return 0

    def moves(self, rack: RackInput, about: tuple[str, str]) -> list[Move]:
        """Return moves that fix a problem (see ``Finding.about``), each to its own place; empty if there are none.

        Places stay reserved only if all moves fit.
        """
        nodes = self.take(rack, about)
        if any(device.model.id in self._full for device in nodes):
            return []
        before, reserved = dict(self.racks), list(self.reserved_w)
        out = [self.place(device, rack.name) for device in nodes]
        made = [move for move in out if move is not None]
        if len(made) < len(out):
            self.racks, self.reserved_w = before, reserved
            return []
        return made


def whole_kw(watts: float) -> int:
    """Return the smallest whole number of kW that is not less than a load."""
    return math.ceil((watts - SLACK_W) / 1000)


def bigger_feeds(rack: RackInput, found: Iterable[CapacityFinding]) -> str:
    """Return the standard breakers, or the ratings, for the highest load of every overloaded feed."""
    highest: dict[int, float] = {}
    for finding in found:
        if finding.feed is not None:
            highest[finding.feed] = max(finding.seen_w, highest.get(finding.feed, 0.0))
    wanted: dict[str, list[str]] = {}
    for number, seen in sorted(highest.items()):
        feed = rack.feeds[number]
        size = circuits.standard_breaker(feed, seen)
        some = least(partial=bool(rack.unpublished))
        rating = f"{some}{whole_kw(seen)} kW"
        text = (
            f"a breaker of {some}{size} A ({feed.volts:g} V)"
            if feed.breaker_a is not None and size is not None
            else f"a rating of {rating}"
        )
        wanted.setdefault(text, []).append(feed.name)
    return "use " + " and ".join(
        f"{text} for feed{'s' if len(names) > 1 else ''} {', '.join(names)}" for text, names in wanted.items()
    )


def more_feeds(rack: RackInput, finding: CapacityFinding) -> str:
    """Return over how many feeds supplies must be spread so that any one feed may be lost."""
    short = finding.short
    lost = sum(1 for alive in finding.live or () if not alive)
    if short is None or short.model.psus is None or short.live == short.model.psus:
        return "Feed the rack from two sources that share no power node."
    need, psus = needed_psus(short.model), short.model.psus
    if lost > 1:
        names = " and ".join(feed.name for feed, alive in zip(rack.feeds, finding.live or (), strict=True) if not alive)
        return f"Feeds {names} depend on one power node: feed one of them from another."
    feeds = next((count for count in range(2, psus + 1) if psus - max(spread(psus, count, 0)) >= need), None)
    if feeds is None:
        return f"All {psus} supplies are needed: no number of feeds survives the loss of one."
    parts = " + ".join(str(count) for count in spread(psus, feeds, 0))
    more = feeds - len(rack.feeds)
    return f"Spread its {psus} supplies over {feeds} feeds ({parts})" + (
        f": add {more} feed{'s' if more > 1 else ''} to the rack." if more > 0 else "."
    )


def without_moves(rack: RackInput, finding: CapacityFinding, found: Iterable[CapacityFinding]) -> str:
    """Return the fix if no other rack has room. ``found``: all findings of the rack."""
    nodes = [device.model for device in rack.devices if device.kind == "node"]
    stay = bool(nodes) and all(model.stays for model in nodes)
    if finding.topic == "feed":
        bigger = bigger_feeds(rack, found)
        return (
            f"{_STAY}: {bigger}."
            if stay
            else f"No rack has room for its nodes: {bigger}, or split its nodes over one more rack."
        )
    if finding.topic == "supplies":
        return more_feeds(rack, finding)
    if finding.topic in WAYS:
        return WAYS[finding.topic]
    return (
        f"{_STAY}: correct the figure, or prepare a stronger place."
        if stay
        else "No rack has room for its nodes: split them over one more rack."
    )


_STAY = "The trays of one NVLink domain stay in their rack"
WAYS = {
    "stated": "Set psus for every feed of the rack so that they add up, or for none.",
    "liquid": "Move it to a rack with a liquid loop.",
    "air": "Move it to an air-cooled rack. For a rear-door heat exchanger or a tank, set kind: hybrid with "
    "liquid_share: 1.",
    "ac": "Add a feed of kind pdu to the rack, or move it to another rack.",
    "dc": "Add power shelves (feeds of kind shelf) to the rack, or move it to a rack that has them.",
}
"""Fixes by topic where moving a node does not help."""


def movable(finding: CapacityFinding) -> bool:
    """Return whether moving nodes away may fix it."""
    return finding.topic in {"units", "weight", "feed", "cooling"}
