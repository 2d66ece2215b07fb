"""The distribution of one metric over all units: a strip with its bounds, and the outliers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, quantiles
from typing import Any

from rackready.evidence.bounds import ShownBound, figure
from rackready.render import svg

_WIDTH, _HEIGHT = 720.0, 88.0
_LEFT, _RIGHT = 12.0, 12.0
_MIDDLE = 32.0
_FENCE = 1.5
"""Tukey's fences: 1.5 interquartile ranges beyond the quartiles (Exploratory Data Analysis, 1977).

Units outside are shown by name. Only the gate's bounds decide whether they fail.
"""
_NARROWEST = 0.03
"""Least distance of fences from the quartiles, as a share of the median.

It is the smallest effect that gates look for among identical units.
"""

LEAST = 4
"""Fewer values have no useful quartiles."""

MOST_NAMED = 20

FACTS = frozenset({"1", "B", "MiB", "GiB", "GB", "s since 1970"})
"""Units of counts, sizes and dates: facts of a part, which differ between healthy ones."""

_NUMBER = re.compile(r"\d+")


def kind_of(name: str) -> str:
    """Return the kind of a unit: its name without numbers, but with the model in parentheses."""
    head, mark, model = name.partition(" (")
    return _NUMBER.sub("#", head) + mark + model


@dataclass(frozen=True)
class Strip:
    """The values of one metric of one gate, by unit."""

    gate: str
    metric: str
    unit: str
    values: Mapping[str, float]
    bounds: Sequence[ShownBound]
    """As they were applied."""
    kinds: Callable[[], Iterable[Hashable]] | None = None
    """Returns the kind of each unit, in the order of the values; None: by their names."""
    beyond: Sequence[float] = ()
    """Values beyond a bound of their own record."""

    @cached_property
    def ordered(self) -> list[float]:
        """Return the values, the lowest first."""
        return sorted(self.values.values())

    @cached_property
    def apart(self) -> list[tuple[str, float]]:
        """Return the units outside the fences of their kind, the lowest first."""
        fences = {kind: found for kind, values in self._alike().items() if (found := _fences(values))}
        if not fences:
            return []
        everywhere = (float("-inf"), float("inf"))
        named = zip(self.values, self._kinds(), self.values.values(), strict=True)
        outside = (
            (name, value)
            for name, kind, value in named
            if not (limits := fences.get(kind, everywhere))[0] <= value <= limits[1]
        )
        return sorted(outside, key=lambda item: item[1])

    def broken(self, value: float) -> bool:
        """Return whether a unit with this value is beyond a bound of its own record."""
        return value in self.beyond

    def split(self) -> tuple[list[float], list[float]]:
        """Return the values within the bounds and those beyond, the lowest first."""
        if not self.beyond:
            return self.ordered, []
        return sorted((Counter(self.ordered) - Counter(self.beyond)).elements()), sorted(self.beyond)

    def _kinds(self) -> Iterable[Hashable]:
        return map(kind_of, self.values) if self.kinds is None else self.kinds()

    def _alike(self) -> dict[Hashable, list[float]]:
        """Return the values of each kind."""
        out: dict[Hashable, list[float]] = {}
        for kind, value in zip(self._kinds(), self.values.values(), strict=True):
            out.setdefault(kind, []).append(value)
        return out


def _fences(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the fences below and above, None when no value is outside, or for fewer than four values."""
    if len(values) < LEAST:
        return None
    low, middle, high = quantiles(values, n=4)
    step = max(_FENCE * (high - low), _NARROWEST * abs(middle))
    below, above = low - step, high + step
    return None if below <= min(values) and max(values) <= above else (below, above)


def counted(metric: Mapping[str, Any]) -> bool:
    """Return whether a metric has a distribution: a count, a size or a date has none."""
    return metric["unit"] not in FACTS


def describe(strip: Strip) -> dict[str, Any]:
    """Return the strip as a report shows it: figures, bounds with their sources, and the outliers."""
    values = strip.ordered
    return {
        "gate": strip.gate,
        "metric": strip.metric,
        "unit": strip.unit,
        "count": len(values),
        "least": values[0],
        "median": median(values),
        "most": values[-1],
        "bounds": [{"text": bound.text(), "sources": list(bound.sources)} for bound in _by_value(strip.bounds)],
        "apart": [{"unit": name, "value": value} for name, value in strip.apart[:MOST_NAMED]],
        "apart_count": len(strip.apart),
    }


def picture(strip: Strip) -> str:
    """Return the strip as SVG: a mark for each value, a line for each bound."""
    points = [
        strip.ordered[0],
        strip.ordered[-1],
        *(value for bound in strip.bounds for value in (bound.low, bound.high)),
    ]
    low, high = min(points), max(points)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def at(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    parts = [svg.line(_LEFT, _MIDDLE, _WIDTH - _RIGHT, _MIDDLE, "axis")]
    good, bad = strip.split()
    parts += [
        svg.strokes(_places(values, at), _MIDDLE - 9, 18, style)
        for values, style in ((good, "mark"), (bad, "bad"))
        if values
    ]
    parts += [
        svg.line(at(value), _MIDDLE - 13, at(value), _MIDDLE + 13, "apart")
        for _, value in strip.apart[:MOST_NAMED]
        if not strip.broken(value)
    ]
    parts += _bounds(strip.bounds, at)
    parts += [
        svg.text(_LEFT, _HEIGHT - 4, f"{_short(low)} {strip.unit}", "tick"),
        svg.text(_WIDTH - _RIGHT, _HEIGHT - 4, f"{_short(high)} {strip.unit}", "tick end"),
    ]
    return svg.picture((_WIDTH, _HEIGHT), f"{strip.metric} of {len(strip.ordered)} units, {strip.unit}", parts)


def _by_value(bounds: Iterable[ShownBound]) -> list[ShownBound]:
    return sorted(bounds, key=lambda bound: (bound.low, bound.label))


def _short(value: float) -> str:
    return figure(float(f"{value:.4g}"))


def _places(values: Iterable[float], at: Callable[[float], float]) -> list[float]:
    """Return the places of marks: values nearer than a 400th of the width share one."""
    step = _WIDTH / 400
    return sorted({round(at(value) / step) * step for value in values})


def _bounds(bounds: Iterable[ShownBound], at: Callable[[float], float]) -> list[str]:
    out: list[str] = []
    for place, bound in enumerate(_by_value(bounds)):
        x, style = at(bound.low), "bound reference" if bound.label == "reference" else "bound"
        out.append(svg.line(x, 14, x, _MIDDLE + 20, style))
        if bound.value is None:
            out.append(svg.line(at(bound.high), 14, at(bound.high), _MIDDLE + 20, style))
        words = f"{bound.label} {_short(bound.low)}" + ("" if bound.value is not None else f" to {_short(bound.high)}")
        out.append(svg.text(min(max(x, 40), _WIDTH - 60), 10 if place % 2 == 0 else _MIDDLE + 30, words, "tick middle"))
    return out
