"""Devices that stand, or are named, in the place of another one: all of their cables are as planned for the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rackready.drivers.cabling_check.links import Link, far_end
from rackready.drivers.cabling_check.types import End, PlannedCable

_LEAST = 2
"""Cables from which a device counts as being at another's ports: one cable alone is a cable at the wrong port."""


def exchanged(planned: Mapping[End, PlannedCable], links: Sequence[Link]) -> dict[str, str]:
    """Return device -> the planned device at whose ports all of its links are. Each planned device occurs once."""
    own: dict[str, list[tuple[End, End]]] = defaultdict(list)
    for link in links:
        own[link.a.device].append((link.a, link.b))
        own[link.b.device].append((link.b, link.a))
    known = {end.device for end in planned}
    found: dict[str, str] = {}
    for device, pairs in sorted(own.items()):
        stands = _place_of(pairs, planned, known=device in known)
        if stands is not None and stands != device:
            found[device] = stands
    counts: dict[str, int] = defaultdict(int)
    for stands in found.values():
        counts[stands] += 1
    # A place that another device holds rightly, or that two claim, explains nothing.
    return {
        device: stands
        for device, stands in found.items()
        if counts[stands] == 1 and (stands not in own or stands in found)
    }


def _place_of(pairs: Sequence[tuple[End, End]], planned: Mapping[End, PlannedCable], *, known: bool) -> str | None:
    if len(pairs) < _LEAST:
        return None
    stands = set()
    for local, remote in pairs:
        cable = planned.get(remote)
        if cable is None:
            return None
        end = far_end(cable, remote)
        if known and end.port != local.port:
            return None
        stands.add(end.device)
    return stands.pop() if len(stands) == 1 else None


def renamed(links: Sequence[Link], places: Mapping[str, str], planned: Mapping[End, PlannedCable]) -> list[Link]:
    """Return the links with each exchanged device under the name of the place where it stands."""
    out = []
    for link in links:
        low, high = sorted((_renamed(link.a, link.b, places, planned), _renamed(link.b, link.a, places, planned)))
        out.append(link._replace(a=low, b=high))
    return out


def _renamed(end: End, far: End, places: Mapping[str, str], planned: Mapping[End, PlannedCable]) -> End:
    return far_end(planned[far], far) if end.device in places else end
