"""A BMC's own thresholds of a reading: of a Sensor (DSP0268), and of the older Thermal and Power resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackready.gates.bmc.documents import Document, numeric


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper and lower thresholds in the reading's unit; None where the BMC has none."""

    high_caution: float | None = None
    high_critical: float | None = None
    high_fatal: float | None = None
    low_caution: float | None = None
    low_critical: float | None = None
    low_fatal: float | None = None

    def high(self) -> tuple[str, float] | None:
        """Return the lowest upper threshold with its name."""
        named = (("caution", self.high_caution), ("critical", self.high_critical), ("fatal", self.high_fatal))
        return min(
            ((word, value) for word, value in named if value is not None), key=lambda item: item[1], default=None
        )

    def low(self) -> tuple[str, float] | None:
        """Return the highest lower threshold with its name."""
        named = (("caution", self.low_caution), ("critical", self.low_critical), ("fatal", self.low_fatal))
        return max(
            ((word, value) for word, value in named if value is not None), key=lambda item: item[1], default=None
        )


_NEW = (("high_caution", "UpperCaution"), ("high_critical", "UpperCritical"), ("high_fatal", "UpperFatal"))
_NEW_LOW = (("low_caution", "LowerCaution"), ("low_critical", "LowerCritical"), ("low_fatal", "LowerFatal"))
_OLD = (
    ("high_caution", "UpperThresholdNonCritical"),
    ("high_critical", "UpperThresholdCritical"),
    ("high_fatal", "UpperThresholdFatal"),
    ("low_caution", "LowerThresholdNonCritical"),
    ("low_critical", "LowerThresholdCritical"),
    ("low_fatal", "LowerThresholdFatal"),
)


def bounds(document: Document) -> Bounds:
    """Return the thresholds of a sensor, or of a reading in an older resource.

    An upper one that is not above a lower one does not count: BMCs write 0 for unset.
    """
    found = {field: numeric(document.get(key)) for field, key in _OLD}
    given = document.get("Thresholds")
    if isinstance(given, Mapping):
        found |= {field: _reading(given.get(key)) for field, key in (*_NEW, *_NEW_LOW)}
    floor = max((value for field, value in found.items() if field.startswith("low") and value is not None), default=0.0)
    return Bounds(
        **{
            field: None if field.startswith("high") and value is not None and value <= floor else value
            for field, value in found.items()
        }
    )


def _reading(threshold: Any) -> float | None:  # noqa: ANN401 - JSON
    return numeric(threshold.get("Reading")) if isinstance(threshold, dict) else None
