"""Power cords: one for each power supply, from the outlet of the rack PDU that feeds it, and notes on missing facts.

``capacity.supply`` also judges losses by these connections of supplies to feeds, so list and judgement agree. No
maker's part number is known for any cord: type and length come from the profile (inlet), the feed (``outlet``,
``cord_m``) and the site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rackready.design.cabling.bom import spares
from rackready.design.cabling.types import BomLine
from rackready.design.capacity.parts import PoweredDevice, RackInput
from rackready.design.capacity.supply import layout
from rackready.design.names import listed

NO_PART = "no part number published"
_SOURCE = "one for each power supply of profiles and devices, by the feeds of the rack"


class Cord(NamedTuple):
    """One power cord inside a rack.

    ``supply`` counts from 1; ``phase`` is empty for a single-phase feed without one; ``length_m`` None: not given.
    """

    rack: str
    unit: int | None
    device: str
    supply: int
    feed: str
    source: str
    phase: str
    outlet: str
    inlet: str
    length_m: float | None

    @property
    def kind(self) -> str:
        """Return the kind of cord to order: its outlet, its inlet and its length."""
        length = f"{self.length_m:g} m" if self.length_m is not None else "length not given"
        return f"power cord, outlet {self.outlet or 'not given'} to inlet {self.inlet or 'not published'}, {length}"


def cords(racks: Iterable[RackInput]) -> Iterator[Cord]:
    """Yield the cords of all racks; racks that are alike are computed once."""
    known: dict[tuple[object, ...], list[tuple[int, list[tuple[int, str]]]]] = {}
    for rack in racks:
        if not rack.feeds:
            continue
        hung = known.get(rack.shape)
        if hung is None:
            hung = known[rack.shape] = [
                (number, [(feed, phase or "") for feed, phase in outlets]) for number, outlets in layout(rack).outlets
            ]
        for number, outlets in hung:
            yield from _of_device(rack, rack.devices[number], outlets)


def _of_device(rack: RackInput, device: PoweredDevice, outlets: Sequence[tuple[int, str]]) -> Iterator[Cord]:
    for supply, (number, phase) in enumerate(outlets, 1):
        feed = rack.feeds[number]
        inlet = device.model.inlet or ""
        yield Cord(
            rack.name,
            device.unit,
            device.name,
            supply,
            feed.name,
            feed.source,
            phase,
            feed.outlet or "",
            inlet,
            feed.cord_m,
        )


def cord_lines(racks: Sequence[RackInput], spares_pct: float) -> list[BomLine]:
    """Return the cords for the bill of materials, by kind. Racks that are alike are counted once and multiplied."""
    alike = Counter(rack.shape for rack in racks)
    first = {rack.shape: rack for rack in reversed(racks)}
    kinds: Counter[str] = Counter()
    for shape, times in alike.items():
        for cord in cords([first[shape]]):
            kinds[cord.kind] += times
    return [
        BomLine("cord", NO_PART, kind, needed, spares(needed, spares_pct), _SOURCE)
        for kind, needed in sorted(kinds.items())
    ]


def cord_notes(racks: Sequence[RackInput]) -> list[str]:
    """Return notes on equipment that is fed but has no cord in the list, with the reason."""
    loose: Counter[str] = Counter()
    pooled = bare = 0
    alike = Counter(rack.shape for rack in racks)
    for shape, rack in {rack.shape: rack for rack in racks}.items():
        bare += alike[shape] * (not rack.feeds and any(device.model.max_w != 0 for device in rack.devices))
        hung = layout(rack) if rack.feeds else None
        pooled += alike[shape] * bool(hung and hung.pooled)
        for model in hung.loose if hung else ():
            loose[model.label] += alike[shape] * (model.max_w != 0)
    loose = +loose
    out = (
        [
            (
                f"power cords of {listed(f'{count} x {label}' for label, count in sorted(loose.items()))} are not "
                f"listed: {_UNSAID}"
            )
        ]
        if loose
        else []
    )
    out += [f"power cords: devices on the bus bar of {_racks(pooled)} need none."] if pooled else []
    return out + (
        [f"power cords of {_racks(bare)} are not listed: the site lists no feeds for {'them' if bare > 1 else 'it'}."]
        if bare
        else []
    )


def _racks(count: int) -> str:
    return f"{count:,} rack{'s' if count > 1 else ''}"


_UNSAID = "their number of power supplies is not published (set psus of a device)."
