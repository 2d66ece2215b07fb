"""Figures with their source, and the power supplies and cooling of one server or switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from rackready.model.base import Model


class Figure(Model):
    """A number with its unit and source."""

    value: float
    unit: str = Field(min_length=1)
    source: str = Field(
        min_length=5,
        description="document, issue or file that states it; 'derived: ...' with the formula when computed",
    )
    derived: bool = Field(default=False, description="computed from other figures, not published")

    @model_validator(mode="before")
    @classmethod
    def _derived_by_its_source(cls, given: Any) -> Any:  # noqa: ANN401 - whatever is to be validated
        """Return a figure in today's form: profiles of before this field begin such a source with 'derived'."""
        if not isinstance(given, Mapping) or "derived" in given:
            return given
        return {**given, "derived": str(given.get("source", "")).startswith("derived")}


Inlet = Literal["C14", "C16", "C20", "C22"]
"""Appliance inlet of a power supply, IEC 60320-1 (C22: -3)."""


class InputVolts(Model):
    """Nominal input voltages of a power supply at full output."""

    low: float = Field(gt=0, description="V")
    high: float = Field(gt=0, description="V")
    source: str = Field(min_length=5)

    @model_validator(mode="after")
    def _ascending(self) -> InputVolts:
        if self.high < self.low:
            message = f"high {self.high:g} V is below low {self.low:g} V"
            raise ValueError(message)
        return self


class Psus(Model):
    """Power supplies of one server or switch."""

    count: int = Field(ge=1, le=16)
    min_count: int | None = Field(
        None, ge=1, le=16, description="supplies that must have input for full performance; null: not published"
    )
    min_boot: int | None = Field(
        None, ge=1, le=16, description="supplies that must have input to start; null: not published"
    )
    max_w: Figure | None = Field(None, description="output of one supply, W; null: not published")
    input: InputVolts | None = Field(None, description="nominal input voltages for that output, V; null: not published")
    inlet: Inlet | None = Field(None, description="inlet of one supply, IEC 60320; null: not published")
    inlet_source: str | None = Field(None, min_length=5, description="source of the inlet")
    source: str = Field(min_length=5, description="source of count and redundancy")

    @model_validator(mode="after")
    def _inlet_has_its_source(self) -> Psus:
        if (self.inlet is None) != (self.inlet_source is None):
            message = "inlet and inlet_source go together"
            raise ValueError(message)
        return self


class Cooling(Model):
    """Cooling of one server."""

    kind: Literal["air", "liquid", "hybrid"]
    liquid_share: Figure | None = Field(
        None, description="share of heat into liquid, 0 to 1; null: not published (air: 0)"
    )
    source: str = Field(min_length=5)
