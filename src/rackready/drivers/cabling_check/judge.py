"""The judge: findings from planned cables and links as seen, one for each cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rackready.drivers.cabling_check import findings as kinds
from rackready.drivers.cabling_check.crossings import Floor, crossed, groups
from rackready.drivers.cabling_check.exchanged import exchanged, renamed
from rackready.drivers.cabling_check.links import Link, far_end, links_of
from rackready.drivers.cabling_check.types import End, PlannedCable, PlannedEnd, Seen
from rackready.model.finding_kinds import FindingKind
from rackready.model.outcome import Finding
from rackready.model.place import Place

_LEAST = 2
"""Cables without link from which their device is the cause, and not each cable."""
_LISTED = 8
"""Cables that one finding of a device lists."""


def judge(cables: Sequence[PlannedCable], seen: Seen) -> list[Finding]:
    """Return every deviation from the plan, one finding for each cause; an error if there is nothing to compare.

    Each port belongs to at most one planned cable.
    """
    if not cables or not seen.sightings:
        counts = f"{len(cables)} planned cables, {len(seen.sightings)} ports with a link"
        return [kinds.NOTHING_SEEN.found("cabling", "planned cables and links", counts)]
    planned = {end.end: cable for cable in cables for end in (cable.a, cable.b)}
    return _Check(cables, planned, seen).findings()


class _Check:
    """One comparison."""

    def __init__(self, cables: Sequence[PlannedCable], planned: Mapping[End, PlannedCable], seen: Seen) -> None:
        self._planned, self._seen, self._floor = planned, seen, Floor(cables)
        found = links_of(planned, seen)
        self._out = found.findings
        self._places = exchanged(planned, found.links)
        self._links = renamed(found.links, self._places, planned)
        doubtful = {id(planned[end]) for end in found.doubtful if end in planned}
        self._cables = [cable for cable in cables if id(cable) not in doubtful]

    def findings(self) -> list[Finding]:
        """Return all findings, devices before cables."""
        right, wrong = self._sort()
        missing = [cable for cable in self._cables if id(cable) not in right]
        linked = {id(cable) for cable in missing}
        usual, strange = self._strange(wrong)
        joined, beside = groups(
            missing, usual, {end: cable for end, cable in self._planned.items() if id(cable) in linked}
        )
        self._exchanged()
        explained = self._foreign(strange)
        dark = []
        for group in joined:
            if group.links:
                self._out += crossed(group, self._floor)
            else:
                dark += [cable for cable in group.cables if id(cable) not in explained]
        self._unplanned(beside)
        self._missing(dark)
        return self._out

    def _sort(self) -> tuple[set[int], list[Link]]:
        """Return the ids of cables with their link, and all other links; judge rate and width of the former."""
        right, wrong = set(), []
        for link in self._links:
            cable = self._planned.get(link.a)
            if cable is None or far_end(cable, link.a) != link.b:
                wrong.append(link)
                continue
            right.add(id(cable))
            self._rate(cable, link)
        return right, wrong

    def _rate(self, cable: PlannedCable, link: Link) -> None:
        near, far = cable.a, cable.b
        if cable.rate and link.rate == cable.rate:
            return  # fewer and faster lanes carry the same
        if cable.lanes and link.lanes and link.lanes != cable.lanes:
            self._found(kinds.WIDTH, near, f"{cable.lanes} lanes", link.words or f"{link.lanes} lanes", far)
        elif cable.rate and link.rate and link.rate != cable.rate:
            words = f"{link.rate} Gb/s{f' ({link.words})' if link.words else ''}"
            self._found(kinds.SPEED, near, f"{cable.rate} Gb/s", words, far)

    def _strange(self, wrong: Iterable[Link]) -> tuple[list[Link], dict[str, list[tuple[End, End]]]]:
        """Return links inside the site, and device -> (its port, port of the site) of devices outside the plan."""
        usual, strange = [], defaultdict(list)
        for link in wrong:
            if link.a.device in self._floor and link.b.device in self._floor:
                usual.append(link)
            for end in (link.a, link.b):
                if end.device not in self._floor:
                    strange[end.device].append((end, link.other(end)))
        return usual, strange

    def _exchanged(self) -> None:
        told = set()
        for device, place in sorted(self._places.items()):
            if device in told:
                continue
            back = self._places.get(place) == device
            told |= {device, place} if back else {device}
            actual = f"at the ports of {place}{f', and {place} at those of {device}' if back else ''}"
            own = self._device(device)
            known = f" ({self._seen.foreign[device]})" if device in self._seen.foreign else ""
            where = Place(device, "", f"({own.place})" if own.place else "", nodes=[place])
            expected = f"{place} there" if device not in self._floor else "at its own ports"
            self._out.append(kinds.DEVICE_EXCHANGED.found(where, expected, actual + known, other=place))

    def _device(self, device: str) -> PlannedEnd:
        end = self._floor.at(End(device, ""))
        return PlannedEnd(device, "", end.rack, end.unit)

    def _foreign(self, strange: Mapping[str, Sequence[tuple[End, End]]]) -> set[int]:
        """Report each device outside the plan; return the ids of cables whose port it takes."""
        explained = set()
        for device, pairs in sorted(strange.items()):
            ends, near = [], [remote.device for _, remote in pairs]
            for local, remote in sorted(pairs):
                taken = self._planned.get(remote)
                if taken is not None:
                    explained.add(id(taken))
                    near += [taken.a.device, taken.b.device]
                instead = f" in place of {self._floor.at(far_end(taken, remote))}" if taken is not None else ""
                ends.append(f"{f'its {local.port} ' if local.port else ''}at {self._floor.at(remote)}{instead}")
            known = self._seen.foreign.get(device)
            where = Place(device, "", f"({known})" if known else "")
            self._out.append(kinds.FOREIGN.found(where, "not connected", "; ".join(ends), nodes=near))
        return explained

    def _unplanned(self, links: Iterable[Link]) -> None:
        for link in sorted(links):
            near, far = self._floor.at(link.a), self._floor.at(link.b)
            self._found(kinds.UNPLANNED, near, "no link", f"a link to {far}", far)

    def _missing(self, dark: Sequence[PlannedCable]) -> None:
        """Report cables without a link: first by the devices that explain the most of them, then each by itself."""
        live = {end.device for link in self._links for end in (link.a, link.b)}
        read = self._seen.devices
        rest = self._by_device(
            kinds.DEVICE_ABSENT,
            [cable for cable in dark if {cable.a.device, cable.b.device} & read],
            lambda device: device not in live and device not in self._places,
            "a link at each",
            _LEAST,
        )
        moved = {*self._places}
        for cable in rest:
            if not {cable.a.device, cable.b.device} & moved:
                self._found(kinds.MISSING, cable.a, f"a link to {cable.b}", "none at either end", cable.b)
        blind = [cable for cable in dark if not {cable.a.device, cable.b.device} & read]
        self._by_device(kinds.UNREAD, blind, lambda _device: True, "read at one end at least", 1)

    def _by_device(
        self, kind: FindingKind, cables: Sequence[PlannedCable], may: Callable[[str], bool], expected: str, least: int
    ) -> list[PlannedCable]:
        """Report devices that explain ``least`` cables or more, the largest first; return the cables that are left."""
        rest = list(cables)
        while rest:
            counts = Counter(end.device for cable in rest for end in (cable.a, cable.b) if may(end.device))
            device, count = min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
            if count < least:
                break
            own = [cable for cable in rest if device in {cable.a.device, cable.b.device}]
            rest = [cable for cable in rest if device not in {cable.a.device, cable.b.device}]
            place = self._device(device).place
            where = Place(device, "", f"({place})" if place else "")
            ends = [str(cable.b if cable.a.device == device else cable.a) for cable in own]
            more = f" and {len(ends) - _LISTED} more" if len(ends) > _LISTED else ""
            actual = f"none to {', '.join(ends[:_LISTED])}{more}"
            near = [end.device for cable in own for end in (cable.a, cable.b) if end.device != device]
            self._out.append(kind.found(where, expected, actual, nodes=near, count=count))
        return rest

    def _found(self, kind: FindingKind, near: PlannedEnd, expected: str, actual: str, far: PlannedEnd) -> None:
        where = Place(near.device, near.port, f"({near.place})" if near.place else "")
        self._out.append(kind.found(where, expected, actual, nodes=[far.device], far=far))
