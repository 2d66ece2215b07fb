"""Computes cable lengths from the floor plan.

Lengths in m. ``z`` of a port is the middle of its rack unit, ``(unit - 0.5) x 0.04445`` above the rack's foot (a plinth
below racks is left out, as it raises ports towards the trays). ``T`` is the height of the trays, ``S`` the slack at
each end, ``p`` the pitch of racks.

- Ends in the same rack: ``|za - zb| + p + 2 S``. The cable goes out to the vertical manager at the side of the rack and
  back in, half a pitch each.
- Ends in the same hall: ``|za - T| + |zb - T| + |row difference| x row pitch + |position difference| x p + p + 2 S``.
  Trays run along rows and across them.
- Ends in two halls: ``|za - Ta| + |zb - Tb| + way a + way b + way between the halls + pa/2 + pb/2 + 2 S``. The way of a
  rack is ``row x row pitch + position x p``, to the entry of its hall.

Height differences are absolute: a tray that is lower than a port makes its cable go down and never makes it shorter.
Every term is the way along one axis, so a length is never below the straight line between the ports. It does not depend
on which end comes first. The result is rounded up to centimetres.
"""

from __future__ import annotations

import math

from rackready.design.cabling.types import UNIT_M, CabledDevice, CablePlace, FloorPlan, HallPlan
from rackready.model.problems import RackreadyError

DEFAULT_PITCH_M = 0.6
"""Width of a rack with an unknown hall, m: 600 mm, as ``Hall.rack_pitch_m``. Used only for cables inside a rack."""


UP = 1 - 1e-6
"""Tolerance for floating-point errors before rounding up to whole centimetres."""
HIGHEST_UNIT = 60
"""Highest unit of any rack (``Rack.height_u``): the limit for units if the place of the rack is not known."""


class LengthError(RackreadyError):
    """No length can be computed."""


def height(unit: int) -> float:
    """Return the height of a port above the rack's foot, m."""
    return (unit - 0.5) * UNIT_M


class Ruler:
    """Measures distances on one floor plan; the distance between two racks is computed once."""

    def __init__(self, floor: FloorPlan) -> None:
        self._floor = floor
        self._across: dict[tuple[str, str], tuple[float, float, float]] = {}
        self._height: dict[CabledDevice, float] = {}

    def length(self, a: CabledDevice, b: CabledDevice) -> float:
        """Return the length between ports of two devices, m, rounded up to 0.01; raises LengthError."""
        heights = self._height
        za = heights.get(a) or self._measure(a)
        zb = heights.get(b) or self._measure(b)
        key = (a.rack, b.rack)
        between = self._across.get(key) or self._across.setdefault(key, self._between(*key))
        level, tray_a, tray_b = between
        rise = abs(za - zb) if a.rack == b.rack else abs(za - tray_a) + abs(zb - tray_b)
        return int((rise + level) * 100 + UP) / 100

    def _measure(self, device: CabledDevice) -> float:
        place = self._floor.places.get(device.rack)
        top = place.height_u if place else HIGHEST_UNIT
        if not 1 <= device.unit <= top:
            raise LengthError(
                device.name,
                expected=f"a unit of rack {device.rack}, 1 to {top}",
                actual=device.unit,
                next_step="Correct its unit, or the rack's height_u.",
            )
        found = self._height[device] = height(device.unit)
        return found

    def _between(self, a: str, b: str) -> tuple[float, float, float]:
        """Return the horizontal distance between two racks, slack included, and the tray heights at both, m."""
        slack = 2 * self._slack()
        if a == b:
            place = self._floor.places.get(a)
            pitch = self._hall(a, place).rack_pitch_m if place else DEFAULT_PITCH_M
            return pitch + slack, 0.0, 0.0
        pa, pb = self._place(a), self._place(b)
        ha, hb = self._hall(a, pa), self._hall(b, pb)
        aside = (ha.rack_pitch_m + hb.rack_pitch_m) / 2
        if pa.hall == pb.hall:
            way = abs(pa.row - pb.row) * ha.row_pitch_m + abs(pa.position - pb.position) * ha.rack_pitch_m
        else:
            way = _to_entry(pa, ha) + _to_entry(pb, hb) + self._between_halls(pa.hall, pb.hall)
        level = way + aside + slack
        if not math.isfinite(100 * (level + ha.tray_height_m + hb.tray_height_m)):
            raise LengthError(
                f"racks {a} and {b}",
                expected="a measurable distance",
                actual=f"{level:g} m",
                next_step="Correct the pitches of the hall, and the slack.",
            )
        return level, ha.tray_height_m, hb.tray_height_m

    def _slack(self) -> float:
        if self._floor.slack_m < 0:
            raise LengthError(
                "slack",
                expected="0 m or more",
                actual=f"{self._floor.slack_m:g} m",
                next_step="Correct the slack of cables.",
            )
        return self._floor.slack_m

    def _place(self, rack: str) -> CablePlace:
        place = self._floor.places.get(rack)
        if place is None:
            raise LengthError(
                f"rack {rack}",
                expected="hall, row and position",
                actual="not given",
                next_step="Add them, so that lengths can be computed.",
            )
        if place.row < 0 or place.position < 0:
            raise LengthError(
                f"rack {rack}",
                expected="row and position of 0 or more",
                actual=f"{place.row} and {place.position}",
                next_step="Correct them.",
            )
        return place

    def _hall(self, rack: str, place: CablePlace) -> HallPlan:
        hall = self._floor.halls.get(place.hall)
        if hall is None:
            raise LengthError(
                f"rack {rack}",
                expected="a hall of the site",
                actual=place.hall,
                next_step="Add the hall with its pitches, or correct the rack's hall.",
            )
        wrong = [name for name in ("rack_pitch_m", "row_pitch_m", "tray_height_m") if getattr(hall, name) <= 0]
        if wrong:
            raise LengthError(
                f"hall {hall.name}",
                expected="more than 0 m",
                actual=f"{wrong[0]} {getattr(hall, wrong[0]):g}",
                next_step="Measure it and correct the hall.",
            )
        return hall

    def _between_halls(self, first: str, second: str) -> float:
        known = self._floor.between_halls_m
        way = known.get((first, second), known.get((second, first)))
        if way is None:
            one, other = sorted((first, second))
            raise LengthError(
                f"halls {one} and {other}",
                expected="the cable path between them in m",
                actual="not given",
                next_step="Measure it from entry to entry, and add it to ways_m.",
            )
        if way <= 0:
            raise LengthError(
                f"halls {first} and {second}",
                expected="a cable path of more than 0 m",
                actual=f"{way:g} m",
                next_step="Measure it from entry to entry.",
            )
        return way


def _to_entry(place: CablePlace, hall: HallPlan) -> float:
    return place.row * hall.row_pitch_m + place.position * hall.rack_pitch_m
