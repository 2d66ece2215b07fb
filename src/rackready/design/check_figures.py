"""Checks of figures that are probably in another unit: a nameplate in kW, a hall in mm, a UPS of 400,000 kW.

The limits are judgement, and wide of anything that is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rackready.design.capacity.from_site import platform_model, switch_model
from rackready.design.capacity.parts import DeviceModel
from rackready.design.check_names import Loc
from rackready.design.site_flaws import Flaw, Subject
from rackready.model.facility import Facility, Nameplate
from rackready.model.site import Device, Site
from rackready.profiles import loader


class _Bound(NamedTuple):
    """Range of a figure."""

    key: str
    low: float
    high: float
    unit: str
    why: str


_RATED = (
    _Bound("volts", 100, 1000, "V", "low voltage ends at 1,000 V (IEC 60038)"),
    _Bound("breaker_a", 5, 6300, "A", "standard breakers go from 6 to 6,300 A (IEC 60898-1, IEC 60059)"),
    _Bound("power_factor", 0.5, 1, "", "power supplies of servers correct theirs to 0.9 or more"),
)
_SOURCE_VOLTS = _Bound("volts", 100, 800_000, "V", "grids have 1,000,000 V at most, sites take less")
_KW: dict[str, tuple[float, str]] = {
    "utility": (5_000_000, "the largest planned sites have 5 GW"),
    "generator": (1_000_000, "a power station on site"),
    "ups": (50_000, "parallel static and rotary systems reach tens of MW"),
    "sts": (10_000, "static switches reach several thousand A"),
    "rpp": (5_000, "6,300 A at 415 V are 4,500 kW"),
    "busway": (5_000, "6,300 A at 415 V are 4,500 kW"),
    "pdu": (5_000, "6,300 A at 415 V are 4,500 kW"),
    "shelf": (1_000, "a rack of 1 MW has several"),
}
"""Highest rating by kind of power node, kW."""
_LEAST_KW = 0.5
_FEED_KW = _Bound("rating_kw", _LEAST_KW, 2_000, "kW", "racks of 1 MW are announced")
_COOLING = tuple(
    _Bound(key, _LEAST_KW, 2_000, "kW", "racks of 1 MW are announced")
    for key in ("max_kw", "max_air_kw", "max_liquid_kw")
)
_RACK = (_Bound("max_weight_kg", 100, 10_000, "kg", "an empty rack weighs 100 kg, a full NVL72 1.4 t"),)
_HALL = (
    _Bound("rack_pitch_m", 0.3, 3, "m", "racks are 0.6 to 0.8 m wide"),
    _Bound("row_pitch_m", 0.8, 30, "m", "a row and an aisle are 2 to 5 m"),
    _Bound("tray_height_m", 0.3, 30, "m", "trays hang below the ceiling of a hall"),
)
_WAY_M = _Bound("", 1, 10_000, "m", "a campus")
_FACILITY = (_Bound("cooling_kw", 1, 5_000_000, "kW", "the largest planned sites have 5 GW"),)
_STEP = _Bound("max_step_kw", 1, 5_000_000, "kW", "the largest planned sites have 5 GW")


def check_figures(subject: Subject) -> list[Flaw]:
    """Return figures that are implausible in the unit in which they are read."""
    return [*_facility(subject.site.facility), *_racks(subject.site), *_halls(subject.site), *_devices(subject.site)]


def _bounded(item: Any, bounds: tuple[_Bound, ...], here: Loc) -> Iterator[Flaw]:  # noqa: ANN401 - a model with these keys
    for bound in bounds:
        value = getattr(item, bound.key)
        if value is not None:
            yield from _outside(value, bound, (*here, bound.key))


def _outside(value: float, bound: _Bound, loc: Loc) -> Iterator[Flaw]:
    if bound.low <= value <= bound.high:
        return
    unit = f" {bound.unit}" if bound.unit else ""
    yield Flaw.of(
        loc,
        f"implausible value ({bound.why})",
        f"Give it in {bound.unit}." if bound.unit else "Correct it.",
        expected=f"{bound.low:g} to {bound.high:,.12g}{unit}",
        actual=f"{value:,.12g}{unit}",
    )


def _facility(facility: Facility | None) -> Iterator[Flaw]:
    if facility is None:
        return
    here: Loc = ("facility",)
    yield from _bounded(facility, _FACILITY, here)
    yield from _bounded(facility.power_on, (_STEP,), (*here, "power_on"))
    for p, node in enumerate(facility.power):
        most, why = _KW[node.kind]
        volts = (_SOURCE_VOLTS, *_RATED[1:]) if node.kind in {"utility", "generator", "ups"} else _RATED
        yield from _bounded(node, (_Bound("rating_kw", _LEAST_KW, most, "kW", why), *volts), (*here, "power", p))
    for k, plate in enumerate(facility.nameplates):
        yield from _plate(plate, (*here, "nameplates", k))


def _racks(site: Site) -> Iterator[Flaw]:
    for r, rack in enumerate(site.racks):
        yield from _bounded(rack, _RACK, ("racks", r))
        if rack.cooling is not None:
            yield from _bounded(rack.cooling, _COOLING, ("racks", r, "cooling"))
        for k, feed in enumerate(rack.feeds):
            # check_power compares the voltage of outlets with the power supplies connected to them.
            volts = _RATED[1:] if feed.kind == "pdu" else _RATED
            yield from _bounded(feed, (_FEED_KW, *volts), ("racks", r, "feeds", k))


def _halls(site: Site) -> Iterator[Flaw]:
    for h, hall in enumerate(site.halls):
        yield from _bounded(hall, _HALL, ("halls", h))
        for name, way in hall.ways_m.items():
            yield from _outside(way, _WAY_M, ("halls", h, "ways_m", name))


_PER_UNIT_W = 20_000
"""Highest draw of one rack unit, W: the densest trays draw 7 kW. Judgement."""
_LEAST_W = 5
"""Lowest plausible maximum draw of a device with electronics, W. Judgement."""
_DEVICE_KG = _Bound("weight_kg", 0.1, 10_000, "kg", "the heaviest coolant distribution units weigh some tonnes")


def _devices(site: Site) -> Iterator[Flaw]:
    for d, device in enumerate(site.devices):
        here: Loc = ("devices", d)
        yield from _bounded(device, (_DEVICE_KG,), here)
        yield from _draw(device, (*here, "max_power_w"))


def _draw(device: Device, loc: Loc) -> Iterator[Flaw]:
    """Check the draw of a device.

    A device without units is outside racks; how much of the building it represents is not known.
    """
    if device.max_power_w is None:
        return
    most = _PER_UNIT_W * device.height_u if device.height_u else float("inf")
    if not _LEAST_W <= device.max_power_w <= most:
        high = "" if most == float("inf") else f" to {most:,.12g}"
        yield Flaw.of(
            loc,
            f"draw of a {device.kind} of {device.height_u} U",
            "Give it in W.",
            expected=f"{_LEAST_W}{high or ' or more'} W",
            actual=f"{device.max_power_w:,.12g} W",
            reads=((*loc[:-1], "height_u"),),
        )


_TIMES = 4
"""Factor by which a nameplate may differ from a profile because of options; a wrong unit is a factor of 1,000.

Judgement.
"""
_WEIGHT = _Bound("weight_kg", 0.5, 3_000, "kg", "no server or switch weighs more")
_WATTS = (20, 50_000)
"""Draw of one server or switch without published figures, W. Judgement."""


def _plate(plate: Nameplate, here: Loc) -> Iterator[Flaw]:
    """Compare the figures of a model in the site file with its published figures, and with each other."""
    if plate.model in loader.known("platform"):
        model = platform_model(plate.model)
    elif plate.model in loader.known("switch"):
        model = switch_model(plate.model)
    else:
        return
    pairs = (
        ("max_power_w", model.max_w),
        ("typical_power_w", model.typical_w),
        ("transient_power_w", model.transient_w or model.max_w),
    )
    for key, published in (*pairs, ("weight_kg", model.weight_kg)):
        value = getattr(plate, key)
        if value is not None:
            yield from _stated(key, value, published, plate.model, (*here, key))
    yield from _ordered(plate, model, here)


def _stated(key: str, value: float, published: float | None, model: str, loc: Loc) -> Iterator[Flaw]:
    unit = "kg" if key == "weight_kg" else "W"
    if published is not None:
        low, high, why = published / _TIMES, published * _TIMES, f"its profile has {published:,.12g} {unit}"
    else:
        low, high = (_WEIGHT.low, _WEIGHT.high) if unit == "kg" else _WATTS
        why = "implausible for a server or switch"
    if not low <= value <= high:
        yield Flaw.of(
            loc,
            f"{model}: {why}",
            f"Give it in {unit}, for one {model}.",
            expected=f"{low:,.6g} to {high:,.6g} {unit}",
            actual=f"{value:,.12g} {unit}",
        )


def _ordered(plate: Nameplate, model: DeviceModel, here: Loc) -> Iterator[Flaw]:
    """Check that typical draw is at most the maximum, and the maximum at most the transient draw."""
    most = plate.max_power_w if plate.max_power_w is not None else model.max_w
    typical = plate.typical_power_w if plate.typical_power_w is not None else model.typical_w
    if (
        most is not None
        and typical is not None
        and typical > most
        and (plate.max_power_w is not None or plate.typical_power_w is not None)
    ):
        key = "typical_power_w" if plate.typical_power_w is not None else "max_power_w"
        yield Flaw.of(
            (*here, key),
            f"{plate.model} typical draw exceeds the maximum",
            "Correct one of the two.",
            expected=f"at most {most:,.12g} W",
            actual=f"{typical:,.12g} W",
            reads=tuple((*here, name) for name in ("max_power_w", "typical_power_w")),
        )
    brief = plate.transient_power_w
    if most is not None and brief is not None and brief < most:
        yield Flaw.of(
            (*here, "transient_power_w"),
            f"{plate.model} transient draw is below the maximum",
            "Correct one of the two.",
            expected=f"{most:,.12g} W or more",
            actual=f"{brief:,.12g} W",
            reads=((*here, "max_power_w"),),
        )
