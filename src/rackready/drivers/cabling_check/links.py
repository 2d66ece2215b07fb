"""Links from the reports of their two ends: one link for each pair, and what contradicts itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rackready.drivers.cabling_check import findings as kinds
from rackready.drivers.cabling_check.types import End, PlannedCable, Seen, Sighting
from rackready.model.outcome import Finding
from rackready.model.place import Place


class Link(NamedTuple):
    """One link: two ends in order of their names, rate (Gb/s) and lanes; 0 if unknown."""

    a: End
    b: End
    rate: int = 0
    lanes: int = 0
    words: str = ""

    def other(self, end: End) -> End:
        """Return the end that is not ``end``."""
        return self.b if end == self.a else self.a


@dataclass(slots=True)
class Links:
    """Links as seen; ``doubtful``: ports about which nothing can be concluded."""

    links: list[Link] = field(default_factory=list)
    doubtful: set[End] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def links_of(planned: Mapping[End, PlannedCable], seen: Seen) -> Links:
    """Return the links of all sightings, with findings for reports that contradict each other or are one-sided."""
    out = Links(doubtful=set(seen.unidentified))
    told = _by_port(planned, seen.sightings)
    for local in sorted(told):
        if len(remotes := {sighting.remote for sighting in told[local]}) > 1:
            out.doubtful.add(local)
            words = " and ".join(map(str, sorted(remotes)))
            out.findings.append(kinds.AMBIGUOUS.found(Place(*local), "one neighbour", words))
    for local in sorted(told):
        if local not in out.doubtful:
            _add(out, told, seen, told[local][0])
    return out


def _by_port(planned: Mapping[End, PlannedCable], sightings: Iterable[Sighting]) -> dict[End, list[Sighting]]:
    told: dict[End, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        cable = planned.get(sighting.local)
        far = far_end(cable, sighting.local) if cable is not None else None
        if not sighting.remote.port and far is not None and far.device == sighting.remote.device:
            sighting = sighting._replace(remote=far)  # noqa: PLW2901 - only the device was reported, and it is right
        told[sighting.local].append(sighting)
    return told


def _add(out: Links, told: Mapping[End, list[Sighting]], seen: Seen, sighting: Sighting) -> None:
    local, remote = sighting.local, sighting.remote
    if remote in out.doubtful:
        out.doubtful.add(local)
        return
    back = told.get(remote)
    if back is not None and back[0].remote != local:
        out.doubtful |= {local, remote}
        actual = f"it reports {remote}, which reports {back[0].remote}"
        out.findings.append(kinds.AMBIGUOUS.found(Place(*local), "both ends name each other", actual))
    elif back is None or local < remote:
        a, b = sorted((local, remote))
        out.links.append(Link(a, b, *_least(sighting, back[0] if back else sighting)))
    if back is None and remote.port and remote.device in seen.devices:
        actual = f"{remote} reports no neighbour"
        out.findings.append(kinds.ONE_SIDED.found(Place(*local), "both ends report it", actual, far=remote))


def _least(one: Sighting, other: Sighting) -> tuple[int, int, str]:
    slow = min(one, other, key=lambda sighting: (sighting.rate, sighting.lanes))
    return slow.rate, slow.lanes, slow.words


def far_end(cable: PlannedCable, end: End) -> End:
    """Return the planned far end of a port."""
    return cable.b.end if cable.a.end == end else cable.a.end
