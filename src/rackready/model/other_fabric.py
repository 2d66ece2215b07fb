"""Fabrics beside the compute fabric as people describe them: in-band, storage and out-of-band. What follows from them is computed by ``design``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rackready.model.base import Model, Name, Names, ProfileId
from rackready.model.profile import Cage

OtherRole = Literal["in_band", "storage", "oob"]
"""Network of a fabric beside the compute fabric. ``oob`` also joins management ports of switches and devices."""
PAIR = 2


class OtherFabric(Model):
    """One fabric beside the compute fabric, whose leafs stand in network racks and serve the ports of other racks.

    Every place follows from numbers: rack number ``n`` belongs to the leafs of group ``(n - 1) / racks_per_leaf``, so
    that a rack that is added moves no cable of a node.
    """

    name: Name = Field(
        description="name of the fabric, with which the names of its switches begin: in-band gives in-band-leaf-001"
    )
    role: OtherRole = Field(description="network that it carries")
    leaf: ProfileId = Field(description="switch model of its leafs: a profile of profiles/switch")
    racks: list[Names] = Field(
        default_factory=list,
        description="racks whose ports it serves; all racks that no other fabric of its role names when empty",
    )
    racks_per_leaf: int = Field(
        ge=1, le=512, description="consecutive rack numbers that share a leaf; fixed once cables are laid"
    )
    leafs: int = Field(
        1,
        ge=1,
        le=4,
        description="leafs over which the ports of a node are dealt in turn; 2 for bonds over two switches",
    )
    rate: Literal[1, 10, 25, 100, 200, 400, 800] | None = Field(
        None,
        description="Gb/s of links to nodes and devices, where their ports run slower than they could; "
        "the rate of the fastest port when absent",
    )
    uplinks: int = Field(0, ge=0, le=64, description="links of one leaf upwards, to spine or uplink_to")
    spine: ProfileId | None = Field(
        None,
        description="switch model of its spines; none: its leafs are joined by "
        "peer_links or uplink_to only, or not at all",
    )
    spines: int = Field(
        0, ge=0, le=64, description="number of its spines; every leaf has uplinks / spines links to each"
    )
    uplink_to: Name | None = Field(
        None,
        description="another of these fabrics whose spines (else whose leafs for the same racks) take the uplinks; "
        "out-of-band into in-band",
    )
    peer_links: int = Field(0, ge=0, le=8, description="links between the two leafs of a pair (MLAG peer link)")
    downlinks: int = Field(
        0,
        ge=0,
        le=128,
        description="ports of each of its spines (of each leaf where it has none) that "
        "are kept free for uplinks of other "
        "fabrics",
    )

    @model_validator(mode="after")
    def _uplinks_lead_somewhere(self) -> OtherFabric:
        wrong = ""
        if (self.spine is None) != (self.spines == 0):
            wrong = (
                "spine and spines go together - Expected: both or neither "
                f"Actual: {'spine' if self.spine else 'spines'} alone"
            )
        elif self.spine is not None and self.uplink_to is not None:
            wrong = "uplinks go to spines or to another fabric - Expected: spine or uplink_to Actual: both"
        elif bool(self.uplinks) != (self.spine is not None or self.uplink_to is not None):
            wrong = "uplinks - Expected: uplinks with spine or uplink_to, and none without Actual: one of them alone"
        elif self.spines and self.uplinks % self.spines:
            wrong = (
                f"uplinks: {self.uplinks} over {self.spines} spines - Expected: a number that {self.spines} divides "
                f"Actual: {self.uplinks}"
            )
        elif self.peer_links and self.leafs != PAIR:
            wrong = f"peer_links - Expected: leafs: 2 Actual: leafs: {self.leafs}"
        if wrong:
            raise ValueError(wrong)
        return self


class DevicePort(Model):
    """One port of a device of the site file on the in-band or storage network; its management port is ``management``."""

    name: str = Field(min_length=1, description="as its label names it, e.g. eth1")
    network: Literal["in_band", "storage"] = Field(description="network that it belongs to")
    rate: Literal[1, 10, 25, 100, 200, 400, 800] = Field(description="Gb/s per direction")
    cage: Cage = Field(description="what plugs into it")
