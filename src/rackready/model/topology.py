"""The compute fabric of the site file: kind, tiers, planes, switch models, ratio. ``design/topology`` computes it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rackready.model.base import Model, Name, ProfileId

_RATIO = re.compile(r"^([1-9]\d?):([1-9]\d?)$")


def split_ratio(text: str) -> tuple[int, int]:
    """Return ``(down, up)`` of a ratio such as ``3:1``. Raises ValueError for other text, or when up exceeds down."""
    match = _RATIO.match(text)
    if match is None or int(match[1]) < int(match[2]):
        message = f"{text!r} is not a ratio of capacity down to capacity up, such as 1:1 or 3:1 (down at least up)"
        raise ValueError(message)
    return int(match[1]), int(match[2])


def _is_ratio(text: str) -> str:
    split_ratio(text)
    return text


Ratio = Annotated[str, AfterValidator(_is_ratio)]
"""``down:up``: capacity to nodes and capacity to the tier above. 1:1 is non-blocking."""


class TierSwitches(Model):
    """The switches of one tier."""

    model: ProfileId = Field(description="switch model: id of a switch profile")
    radix: int | None = Field(
        None,
        ge=4,
        le=1024,
        description="ports of one switch at link rate, after breakout; default: computed from the switch profile",
    )


class ReservedSlot(Model):
    """A node's place in a scalable unit that another device takes, e.g. UFM in an H100 SuperPOD."""

    su: int = Field(1, ge=1, description="scalable unit, counted from 1")
    slot: int = Field(
        ge=1, description="place of a node in that unit, counted from 1: its port on every leaf of the unit"
    )
    devices: dict[Name, list[int]] = Field(
        min_length=1, description="device to its rails (leafs); rails that no device takes stay free"
    )


class Topology(Model):
    """The compute fabric between NICs."""

    kind: Literal["rail_optimized", "fat_tree"] = Field(
        "rail_optimized",
        description="rail_optimized: leaf i of a scalable unit carries rail i of its nodes; "
        "fat_tree: all NICs of a node on one leaf",
    )
    tiers: Literal[2, 3] | None = Field(
        None, description="2: leaf and spine; 3: leaf, spine and core; default: the fewest that suffice"
    )
    planes: int = Field(1, ge=1, le=8, description="number of independent fabrics")
    planes_by: Literal["port", "rail"] = Field(
        "port",
        description="port: every NIC has one link into each plane; "
        "rail: each rail belongs to one plane, so each plane "
        "carries a part of the rails",
    )
    link: Literal["roce", "infiniband"] = Field("roce", description="link layer")
    leaf: TierSwitches
    spine: TierSwitches | None = Field(None, description="switches of the spines; default: as leaf")
    core: TierSwitches | None = Field(None, description="switches of the cores; default: as spine")
    oversubscription: Ratio = Field("1:1", description="ratio of a leaf, down:up")
    spine_oversubscription: Ratio = Field("1:1", description="ratio of a spine, down:up, with three tiers")
    su_nodes: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="nodes per scalable unit; default: the platform's, else the down ports of a leaf",
    )
    grow_to_su: int | None = Field(
        None,
        ge=1,
        description="scalable units for which spines and cores are sized from the "
        "start, so that growth up to this number moves no "
        "cable",
    )
    laid_for_su: int | None = Field(
        None,
        ge=1,
        description="scalable units for which spines and cores were sized when their cables were laid; "
        "rackready refuses a plan that would move one of these cables",
    )
    reserved: list[ReservedSlot] = Field(default_factory=list, description="node places that other devices take")

    @model_validator(mode="after")
    def _tiers_agree(self) -> Topology:
        if self.tiers == 2 and self.core is not None:  # noqa: PLR2004 - two tiers
            message = "tiers: 2 has no core - Expected: tiers: 3, or no core. Remove one of the two."
            raise ValueError(message)
        return self

    def spine_switches(self) -> TierSwitches:
        """Return the switches of the spines."""
        return self.spine or self.leaf

    def core_switches(self) -> TierSwitches:
        """Return the switches of the cores."""
        return self.core or self.spine_switches()
