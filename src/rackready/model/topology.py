"""The compute fabric as people describe it: kind, tiers, planes, switch models and ratio. What follows from it is computed by ``design/topology``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rackready.model.base import Model, Name, ProfileId

_RATIO = re.compile(r"^([1-9]\d?):([1-9]\d?)$")


def split_ratio(text: str) -> tuple[int, int]:
    """Return ``(down, up)`` of a ratio such as ``3:1``; raises ValueError when it is none, or has more capacity up than down."""
    match = _RATIO.match(text)
    if match is None or int(match[1]) < int(match[2]):
        message = (
            f"{text!r} is no ratio of capacity down to capacity up, such as 1:1 or 3:1 (down is never less than up)"
        )
        raise ValueError(message)
    return int(match[1]), int(match[2])


def _is_ratio(text: str) -> str:
    split_ratio(text)
    return text


Ratio = Annotated[str, AfterValidator(_is_ratio)]
"""``down:up``, capacity towards nodes against capacity towards the tier above: 1:1 is non-blocking."""


class TierSwitches(Model):
    """The switches of one tier."""

    model: ProfileId = Field(description="switch model: a profile of profiles/switch")
    radix: int | None = Field(
        None,
        ge=4,
        le=1024,
        description="ports of one switch at the rate of the links, after breakout; "
        "computed from the switch's profile when absent",
    )


class ReservedSlot(Model):
    """A node's place in a scalable unit that is given to another device, as an H100 SuperPOD gives one to UFM."""

    su: int = Field(1, ge=1, description="scalable unit, counted from 1")
    slot: int = Field(
        ge=1, description="place of a node in that unit, counted from 1: its port on every leaf of the unit"
    )
    devices: dict[Name, list[int]] = Field(
        min_length=1, description="device to the rails (leafs) that it is cabled to; rails left out stay free"
    )


class Topology(Model):
    """The compute fabric between NICs."""

    kind: Literal["rail_optimized", "fat_tree"] = Field(
        "rail_optimized",
        description="rail_optimized: leaf i of a scalable unit carries rail i of its nodes; "
        "fat_tree: all NICs of a node on one leaf",
    )
    tiers: Literal[2, 3] | None = Field(
        None, description="leaf and spine, or leaf, spine and core; the fewest that carry the size when absent"
    )
    planes: int = Field(1, ge=1, le=8, description="independent fabrics beside each other")
    planes_by: Literal["port", "rail"] = Field(
        "port",
        description="port: every NIC has one link into each plane; "
        "rail: each rail lies in one plane, so that each plane "
        "carries a part of the rails",
    )
    link: Literal["roce", "infiniband"] = Field("roce", description="link layer")
    leaf: TierSwitches
    spine: TierSwitches | None = Field(None, description="as leaf when absent")
    core: TierSwitches | None = Field(None, description="as spine when absent")
    oversubscription: Ratio = Field("1:1", description="capacity of a leaf down:up")
    spine_oversubscription: Ratio = Field("1:1", description="capacity of a spine down:up, in three tiers")
    su_nodes: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="nodes of one scalable unit; the platform's own, else as many as a leaf has ports down",
    )
    grow_to_su: int | None = Field(
        None,
        ge=1,
        description="size spines and cores for this many scalable units from the "
        "start, so that growth up to it moves no "
        "cable",
    )
    laid_for_su: int | None = Field(
        None,
        ge=1,
        description="scalable units that spines and cores were sized for when their cables were laid; "
        "a plan that would move one of these cables is refused",
    )
    reserved: list[ReservedSlot] = Field(
        default_factory=list, description="places of nodes that are given to other devices"
    )

    @model_validator(mode="after")
    def _tiers_agree(self) -> Topology:
        if self.tiers == 2 and self.core is not None:  # noqa: PLR2004 - two tiers
            message = "tiers: 2 has no core - Expected: tiers: 3, or no core. Remove one of the two."
            raise ValueError(message)
        return self

    def spine_switches(self) -> TierSwitches:
        """Return what spines are."""
        return self.spine or self.leaf

    def core_switches(self) -> TierSwitches:
        """Return what cores are."""
        return self.core or self.spine_switches()
