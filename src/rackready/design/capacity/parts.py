"""Input of the capacity calculation: devices with the figures of their models, and racks with their feeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rackready.model.facility import Feed, RackCooling


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """Figures of one model, from its profile. None: not published, so nothing is assumed."""

    id: str
    rack_units: int
    max_w: float | None
    typical_w: float | None = None
    transient_w: float | None = None
    weight_kg: float | None = None
    psus: int | None = None
    psu_min: int | None = None
    """Power supplies needed for full operation."""
    psu_max_w: float | None = None
    inlet: str | None = None
    """Inlet of one supply, IEC 60320."""
    liquid_share: float | None = None
    """Share of its heat that goes into liquid; 0 for air-cooled."""
    cooled: str | None = None
    """air, liquid or hybrid; None if not known."""
    fed: str | None = None
    """ac: supplies with cords; bus_bar: a rack's DC bus bar; either: as ordered; None if not known."""
    stays: bool = False
    """It belongs to its rack (a tray of an NVLink domain that spans servers): it is never moved to another."""
    stated: str = ""
    """Source of the figures that the site states; empty if all are from the profile."""

    @property
    def label(self) -> str:
        """Return the label for people: the id without the figures that separate devices of one kind."""
        return self.id.partition("/")[0]

    @property
    def beside(self) -> bool:
        """Return whether it is a device of the site file rather than a model with a profile."""
        return "/" in self.id


@dataclass(frozen=True, slots=True)
class PoweredDevice:
    """One device in a rack. ``unit`` is the lowest rack unit that it occupies; None if its place is not given."""

    name: str
    model: DeviceModel
    unit: int | None
    kind: str = "node"
    """node, switch or device."""


@dataclass(frozen=True)
class RackInput:
    """One rack."""

    name: str
    devices: tuple[PoweredDevice, ...]
    feeds: tuple[Feed, ...] = ()
    height_u: int = 48
    cooling: RackCooling | None = None
    max_weight_kg: float | None = None
    hall: str | None = None

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Return what makes two racks alike, without names.

        These are models in order with their units, feeds without their sources, and limits.
        """
        feeds = tuple(
            (
                feed.name,
                feed.kind,
                feed.rating_kw,
                feed.breaker_a,
                feed.volts,
                feed.phases,
                feed.phase,
                feed.psus,
                feed.power_factor,
                feed.continuous,
                feed.outlet,
                feed.cord_m,
            )
            for feed in self.feeds
        )
        return (
            tuple((device.model.id, device.unit, device.kind) for device in self.devices),
            feeds,
            self.height_u,
            _cooling(self.cooling),
            self.max_weight_kg,
        )

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Return the power node of every feed, in order."""
        return tuple(feed.source for feed in self.feeds)

    @cached_property
    def max_w(self) -> float:
        """Return the highest draw of all devices with a published draw, W."""
        return sum(device.model.max_w or 0.0 for device in self.devices)

    @cached_property
    def unpublished(self) -> tuple[str, ...]:
        """Return the models whose highest draw is not published: sums of draw with this rack are then lower bounds."""
        return tuple(sorted({device.model.label for device in self.devices if device.model.max_w is None}))

    @cached_property
    def used_u(self) -> int:
        """Return the units that its devices occupy."""
        return sum(device.model.rack_units for device in self.devices)

    def without(self, device: PoweredDevice) -> RackInput:
        """Return the same rack without one device."""
        return replace(self, devices=tuple(item for item in self.devices if item is not device))

    def plus(self, device: PoweredDevice) -> RackInput:
        """Return the same rack with one more device."""
        return replace(self, devices=(*self.devices, device))


def _cooling(cooling: RackCooling | None) -> tuple[object, ...]:
    return (
        ()
        if cooling is None
        else (cooling.kind, cooling.liquid_share, cooling.max_kw, cooling.max_air_kw, cooling.max_liquid_kw)
    )


def least(*, partial: bool) -> str:
    """Return the text before a sum that is incomplete because a figure is not published."""
    return "at least " if partial else ""


def collapse(names: Sequence[str], noun: str = "racks") -> str:
    """Return many names in short form: the first, the last and the number; all of a short list."""
    shown = 4
    if len(names) <= shown:
        return ", ".join(names)
    return f"{names[0]} .. {names[-1]} ({len(names)} {noun})"


def where(names: Sequence[str]) -> str:
    """Return where a problem of some racks is."""
    return f"rack {names[0]}" if len(names) == 1 else f"racks {collapse(names)}"


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if one of the values is None."""
    out = 0.0
    for value in values:
        if value is None:
            return None
        out += value
    return out
