"""Groups of cables that are plugged in at each other's ports, and the move that puts each right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.drivers.cabling_check import findings as kinds
from rackready.drivers.cabling_check.links import Link, far_end
from rackready.drivers.cabling_check.types import End, PlannedCable, PlannedEnd
from rackready.model.finding_kinds import FindingKind
from rackready.model.outcome import Finding
from rackready.model.place import Place

_LISTED = 8
"""Cables that the next step of one finding lists."""


@dataclass(slots=True)
class Group:
    """Planned cables without their link, joined by the unplanned links at their ports."""

    cables: list[PlannedCable] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


class Floor:
    """Where planned ports are, and what a device carries, for messages."""

    def __init__(self, cables: Iterable[PlannedCable]) -> None:
        self._ends: dict[End, PlannedEnd] = {}
        self._devices: dict[str, list[PlannedEnd]] = defaultdict(list)
        for cable in cables:
            for end in (cable.a, cable.b):
                self._ends[end.end] = end
                self._devices[end.device].append(end)

    def __contains__(self, device: object) -> bool:
        return device in self._devices

    def at(self, end: End) -> PlannedEnd:
        """Return the port with its place; a spare port of a planned device has the device's."""
        known = self._ends.get(end)
        if known is not None:
            return known
        own = self._devices.get(end.device)
        if own is None:
            return PlannedEnd(end.device, end.port)
        rails = {item.rail for item in own}
        return PlannedEnd(*end, own[0].rack, own[0].unit, rails.pop() if len(rails) == 1 else 0)


def groups(
    missing: Sequence[PlannedCable], links: Sequence[Link], planned: Mapping[End, PlannedCable]
) -> tuple[list[Group], list[Link]]:
    """Return the groups of missing cables, each cable in one of them, and links that touch no planned port."""
    own = {id(cable): Group([cable]) for cable in missing}
    beside = []
    for link in links:
        touched = [own[id(planned[end])] for end in (link.a, link.b) if end in planned]
        if not touched:
            beside.append(link)
            continue
        first, last = touched[0], touched[-1]
        first.links.append(link)
        if first is not last:
            first.cables += last.cables
            first.links += last.links
            for cable in last.cables:
                own[id(cable)] = first
    return list({id(group): group for group in own.values()}.values()), beside


def crossed(group: Group, floor: Floor) -> list[Finding]:
    """Return the findings of a group with links: one if its cables are crossed, else one for each wrong link."""
    if len(group.cables) > 1 and len(group.links) > 1:
        return [_swapped(group, floor)]
    return [_moved(group, link, floor) for link in group.links]


def _swapped(group: Group, floor: Floor) -> Finding:
    cables = sorted(group.cables, key=lambda cable: (cable.a.end, cable.b.end))
    first = cables[0]
    rails = sorted({end.rail for cable in cables for end in (cable.a, cable.b) if cable.a.rail and cable.b.rail})
    words = f", rails {_list(rails)}" if len(rails) > 1 else ""
    return kinds.SWAPPED.found(
        Place(first.a.device, first.a.port, f"({first.a.place})" if first.a.place else ""),
        _list([str(cable) for cable in cables[:_LISTED]], "; "),
        _list([f"{floor.at(link.a)} to {floor.at(link.b)}" for link in sorted(group.links)[:_LISTED]], "; "),
        nodes=[end.device for cable in cables for end in (cable.a, cable.b)],
        count=len(cables),
        rails=words,
        step=_step(cables, group),
    )


def _step(cables: Sequence[PlannedCable], group: Group) -> str:
    """Return the move: at one device if a swap of two ports there puts both right, else every cable as planned."""
    if len(cables) == 2 and len(group.links) == 2:  # noqa: PLR2004 - two cables are crossed
        for pair in _sides(cables, group):
            if pair[0].device == pair[1].device:
                return f"Swap the cables at {pair[0]} and {pair[1].port}{_beside(pair[1])}."
        one, other = next(iter(_sides(cables, group)), (cables[0].b, cables[1].b))
        return f"Swap the cables at {one} and {other}."
    listed = "; ".join(map(str, cables[:_LISTED]))
    more = f"; and {len(cables) - _LISTED} more" if len(cables) > _LISTED else ""
    return f"Plug in as planned: {listed}{more}."


def _sides(cables: Sequence[PlannedCable], group: Group) -> list[tuple[PlannedEnd, PlannedEnd]]:
    """Return the pairs of ports at which exchanging the two plugs makes both links as planned; switches first."""
    one, other = cables
    seen = {frozenset((link.a, link.b)) for link in group.links}
    pairs = []
    for mine, theirs in (((one.b, one.a), (other.b, other.a)), ((one.b, one.a), (other.a, other.b))):
        if {frozenset((mine[0].end, theirs[1].end)), frozenset((theirs[0].end, mine[1].end))} == seen:
            pairs += [(mine[0], theirs[0]), (mine[1], theirs[1])]
    return pairs


def _beside(end: PlannedEnd) -> str:
    return f" (rail {end.rail})" if end.rail else ""


def _moved(group: Group, link: Link, floor: Floor) -> Finding:
    """Return the finding of one cable that ends at a wrong port, and of the cable whose port it takes."""
    stays, goes, cable = _ends(group, link)
    planned_end = cable.b if cable.a.end == stays else cable.a
    right, wrong = floor.at(stays), floor.at(goes)
    displaced = [str(item) for item in group.cables if item is not cable]
    note = f"; no link: {_list(displaced, '; ')}" if displaced else ""
    return _kind(planned_end, wrong).found(
        Place(right.device, right.port, f"({right.place})" if right.place else ""),
        planned_end,
        f"{wrong}{note}",
        nodes=[planned_end.device, wrong.device, *(end.device for item in group.cables for end in (item.a, item.b))],
        device=wrong.device,
        seen=wrong.rail,
        actual=wrong,
        planned=planned_end,
    )


def _ends(group: Group, link: Link) -> tuple[End, End, PlannedCable]:
    """Return the end that is right, the wrong one, and the cable. Most likely is the shortest way to a wrong port."""
    choices = [
        (far_end(cable, stays).device != goes.device, stays != cable.a.end, stays, goes, cable)
        for stays, goes in ((link.a, link.b), (link.b, link.a))
        for cable in group.cables
        if stays in {cable.a.end, cable.b.end}
    ]
    _, _, stays, goes, cable = min(choices, key=lambda choice: choice[:4])
    return stays, goes, cable


def _kind(planned: PlannedEnd, wrong: PlannedEnd) -> FindingKind:
    if wrong.device == planned.device and (not wrong.rail or wrong.rail == planned.rail):
        return kinds.WRONG_PORT
    if wrong.rail and planned.rail and wrong.rail != planned.rail:
        return kinds.WRONG_RAIL
    return kinds.WRONG_DEVICE


def _list(items: Iterable[object], sign: str = ", ") -> str:
    return sign.join(map(str, items))
