"""The bounds that a report shows: name, direction and source of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS: Mapping[str, str] = {"ge": "at least", "le": "at most", "eq": "equal to"}
"""Operator -> the words for it."""

_LARGE, _LARGEST = 1e4, 1e15
MOST_SOURCES = 3
_OTHERS = "and others"
_MISNAMED: Mapping[tuple[str, str], str] = {("floor", "le"): "ceiling", ("ceiling", "ge"): "floor"}
"""Earlier versions recorded some upper bounds as a floor, and the smallest credible latency as a ceiling."""


def figure(value: float) -> str:
    """Return a number for people: large ones in groups of three digits, no powers of ten below 1e15."""
    return f"{value:,.0f}" if _LARGE <= abs(value) < _LARGEST else f"{value:.6g}"


def label(criterion: Mapping[str, Any]) -> str:
    """Return a bound's label (floor, reference, ceiling, identity, ...), corrected if its operator contradicts it."""
    return _MISNAMED.get((criterion["label"], criterion["op"]), str(criterion["label"]))


@dataclass(slots=True)
class ShownBound:
    """A bound of a metric over all units: one value, or a range where it was derived for each unit."""

    label: str
    op: str
    low: float
    high: float
    unit: str
    sources: list[str] = field(default_factory=list)
    """The first few different ones, then a note that there are others."""

    @classmethod
    def of(cls, criterion: Mapping[str, Any]) -> ShownBound:
        """Return the bound of one record."""
        value = float(criterion["bound"])
        return cls(label(criterion), criterion["op"], value, value, criterion["unit"], [criterion["source"]])

    def take(self, other: ShownBound) -> None:
        """Add the same bound as it was applied to other units."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        for source in other.sources:
            if source not in self.sources and len(self.sources) <= MOST_SOURCES:
                self.sources.append(source if len(self.sources) < MOST_SOURCES else _OTHERS)

    @property
    def value(self) -> float | None:
        """Return the value, None where it differs between units."""
        return self.low if self.low == self.high else None

    def broken_by(self, value: float) -> bool:
        """Return whether a value is beyond the bound, if it is one for all its units. A reference limits none."""
        if self.value is None or self.label == "reference":
            return False
        return value < self.value if self.op == "ge" else self.op == "le" and value > self.value

    def text(self) -> str:
        """Return the bound in words: "floor: at least 456 GB/s"."""
        value = figure(self.low) if self.value is not None else f"{figure(self.low)} to {figure(self.high)}"
        return f"{self.label}: {WORDS[self.op]} {value} {'' if self.unit == '1' else self.unit}".rstrip()
