"""How the values of one metric lie over all units: a strip with its bounds, and the units that stand apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median, quantiles
from typing import Any

from rackready.render import svg

_WIDTH, _HEIGHT = 720.0, 74.0
_LEFT, _RIGHT = 12.0, 12.0
_MIDDLE = 32.0
_FENCE = 1.5
"""Tukey's fences: 1.5 interquartile ranges beyond the quartiles (Exploratory Data Analysis, 1977). What lies outside is shown by name;
whether it fails is said by the gate's bounds alone."""

LEAST = 4
"""Fewer values have no quartiles worth the name."""

MOST_NAMED = 20


@dataclass(frozen=True)
class Strip:
    """The values of one metric of one gate, by unit."""

    gate: str
    metric: str
    unit: str
    values: Mapping[str, float]
    bounds: Mapping[str, float]
    """Label (floor, reference, ceiling) -> value, as it was applied."""

    @cached_property
    def ordered(self) -> list[float]:
        """Return the values, the lowest first."""
        return sorted(self.values.values())

    @property
    def fences(self) -> tuple[float, float] | None:
        """Return what lies apart below and above; None for fewer than four values."""
        if len(self.ordered) < LEAST:
            return None
        low, _, high = quantiles(self.ordered, n=4)
        return low - _FENCE * (high - low), high + _FENCE * (high - low)

    @cached_property
    def apart(self) -> list[tuple[str, float]]:
        """Return the units outside the fences, the lowest first."""
        fences = self.fences
        if fences is None or (fences[0] <= self.ordered[0] and self.ordered[-1] <= fences[1]):
            return []
        outside = ((name, value) for name, value in zip(self.values, self.values.values(), strict=True) if not fences[0] <= value <= fences[1])
        return sorted(outside, key=lambda item: item[1])


def counted(metric: Mapping[str, Any]) -> bool:
    """Whether a metric has a distribution: a count has none."""
    return bool(metric["unit"] != "1")


def describe(strip: Strip) -> dict[str, Any]:
    """Return the strip as a report shows it: figures, picture, and the units that stand apart."""
    values = strip.ordered
    return {
        "gate": strip.gate,
        "metric": strip.metric,
        "unit": strip.unit,
        "count": len(values),
        "least": values[0],
        "median": median(values),
        "most": values[-1],
        "bounds": dict(strip.bounds),
        "apart": [{"unit": name, "value": value} for name, value in strip.apart[:MOST_NAMED]],
        "apart_count": len(strip.apart),
    }


def picture(strip: Strip) -> str:
    """Return the strip as SVG: a mark for each value, a line for each bound."""
    points = [strip.ordered[0], strip.ordered[-1], *strip.bounds.values()]
    low, high = min(points), max(points)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def at(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    parts = [svg.line(_LEFT, _MIDDLE, _WIDTH - _RIGHT, _MIDDLE, "axis")]
    parts += [svg.line(x, _MIDDLE - 9, x, _MIDDLE + 9, "mark") for x in _places(strip.ordered, at)]
    parts += [svg.line(at(value), _MIDDLE - 16, at(value), _MIDDLE + 16, "apart") for _, value in strip.apart[:MOST_NAMED]]
    parts += _bounds(strip.bounds, at)
    parts += [svg.text(_LEFT, _HEIGHT - 4, f"{low:.4g} {strip.unit}", "tick"), svg.text(_WIDTH - _RIGHT, _HEIGHT - 4, f"{high:.4g} {strip.unit}", "tick end")]
    return svg.picture((_WIDTH, _HEIGHT), f"{strip.metric} of {len(strip.ordered)} units, {strip.unit}", parts)


def _places(values: Iterable[float], at: Callable[[float], float]) -> list[float]:
    """Return where marks stand: values nearer than a 400th of the width share one."""
    step = _WIDTH / 400
    return sorted({round(at(value) / step) * step for value in values})


def _bounds(bounds: Mapping[str, float], at: Callable[[float], float]) -> list[str]:
    out: list[str] = []
    for place, (label, value) in enumerate(sorted(bounds.items(), key=lambda item: item[1])):
        x = at(value)
        out.append(svg.line(x, 14, x, _MIDDLE + 20, f"bound {label}"))
        out.append(svg.text(min(max(x, 40), _WIDTH - 60), 10 if place % 2 == 0 else _MIDDLE + 30, f"{label} {value:.4g}", "tick middle"))
    return out
