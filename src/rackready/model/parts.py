"""Orderable cables, fibres and modules (``profiles/parts``): part number, reach and source of each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Model, ProfileId
from rackready.model.supply import Figure

Form = Literal["osfp_finned", "osfp_flat", "qsfp112", "qsfp56", "qsfp28", "sfp28", "rj45"]
"""A plug that fits one kind of cage.

``osfp_finned`` has its heat sink on the plug (IHS: cages of air-cooled switches). ``osfp_flat`` has none, because the
heat sink is on the cage (RHS: adapters, DGX systems, liquid-cooled switches). They differ in height: neither fits the
other's cage.
"""

Layer = Literal["ethernet", "infiniband"]
Medium = Literal["dac", "acc", "aoc", "mmf", "smf", "twisted_pair"]
"""Passive copper, active copper, active optical cable, multimode fibre, single-mode fibre, copper patch cord (RJ45)."""

Part = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9][A-Z0-9.-]*$")]
BOTH_LAYERS: tuple[Layer, ...] = ("ethernet", "infiniband")


class Transceiver(Model):
    """A pluggable module. One module fills one cage and has ``ports`` optical connectors."""

    part: Part
    ordering: str | None = Field(
        None, description="the maker's newer ordering number of the same module, e.g. 980-9I510-00NS00"
    )
    form: Form
    ports: Literal[1, 2] = Field(
        description="optical connectors, each for one straight fibre cable with ``lanes`` lanes each way"
    )
    lanes: int = Field(4, ge=1, le=8, description="lanes of one optical connector each way")
    lane_rate: int = Field(description="rate of one lane, Gb/s; a module does not run slower lanes")
    optics: ProfileId = Field(description="kind of optics, e.g. sr4, dr4, fr4; both ends of a cable need the same")
    reach: Figure = Field(description="longest fibre that the module drives, m")
    fibre: Literal["mmf", "smf"]
    connector: Literal["mpo12", "lc"]
    polish: Literal["apc", "upc"] = Field(
        description="polish of the connector's end face; apc and upc must never be mated"
    )
    power: Figure | None = Field(None, description="highest draw, W; null: no published figure found")
    layers: tuple[Layer, ...] = BOTH_LAYERS
    source: str = Field(min_length=5)


class Stocked(Model):
    """A part in fixed lengths, each with its own part number."""

    series: str = Field(min_length=3)
    lengths: dict[float, Part] = Field(min_length=1, description="length in m to part number")
    by_specification: bool = Field(
        default=False, description="the part is a specification that any maker can meet, not one maker's number"
    )
    source: str = Field(min_length=5)

    @model_validator(mode="after")
    def _ascending(self) -> Stocked:
        if list(self.lengths) != sorted(self.lengths) or min(self.lengths) <= 0:
            message = "lengths must be positive and in ascending order"
            raise ValueError(message)
        return self


class Fibre(Stocked):
    """A fibre cable between two modules."""

    fibre: Literal["mmf", "smf"]
    grade: Literal["OM3", "OM4", "OM5", "OS2"]
    connector: Literal["mpo12", "lc"]
    polish: Literal["apc", "upc"]
    lanes: int = Field(4, ge=1, le=8, description="lanes each way at its trunk end")
    longest: Figure | None = Field(
        None, description="longest whole link over it, m, when shorter than the module's reach"
    )


class Assembly(Stocked):
    """A cable with fixed plugs: copper or active optical. Its plugs fill whole cages."""

    medium: Medium
    a_form: Form = Field(description="plug of its trunk end")
    b_form: Form = Field(description="plug of every far end")
    ways: Literal[1, 2, 4] = Field(1, description="number of far ends; they share the lanes of the trunk end")
    lanes: int = Field(ge=1, le=8, description="lanes of the trunk end each way")
    lane_rate: int = Field(ge=1, description="rate of one lane, Gb/s")
    layers: tuple[Layer, ...] = BOTH_LAYERS


class PartsProfile(Model):
    """The parts of one supplier."""

    id: ProfileId
    transceivers: list[Transceiver]
    fibres: list[Fibre]
    assemblies: list[Assembly]
    source: str

    @model_validator(mode="after")
    def _each_part_once(self) -> PartsProfile:
        parts = [item.part for item in self.transceivers] + [
            part for item in (*self.fibres, *self.assemblies) for part in item.lengths.values()
        ]
        twice = sorted({part for part in parts if parts.count(part) > 1})
        if twice:
            message = f"duplicate part numbers: {', '.join(twice)}"
            raise ValueError(message)
        return self
