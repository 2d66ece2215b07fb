"""In-band, storage and out-of-band fabrics of the site file. ``design`` computes their switches and links."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rackready.model.base import Model, Name, Names, ProfileId
from rackready.model.profile import Cage

OtherRole = Literal["in_band", "storage", "oob"]
"""Network of a fabric beside the compute fabric. ``oob`` also connects management ports of switches and devices."""
PAIR = 2


class OtherFabric(Model):
    """One fabric beside the compute fabric. Its leafs are in network racks and serve the ports of other racks.

    Rack number ``n`` belongs to the leafs of group ``(n - 1) / racks_per_leaf``, so an added rack moves no cable of a
    node.
    """

    name: Name = Field(
        description="name of the fabric and prefix of its switches' names: in-band gives in-band-leaf-001"
    )
    role: OtherRole = Field(description="network of the fabric")
    leaf: ProfileId = Field(description="switch model of its leafs: id of a switch profile")
    racks: list[Names] = Field(
        default_factory=list,
        description="racks that it serves; empty: all racks that no other fabric of its role names",
    )
    racks_per_leaf: int = Field(
        ge=1, le=512, description="consecutive rack numbers that share a leaf; fixed once cables are laid"
    )
    leafs: int = Field(
        1,
        ge=1,
        le=4,
        description="leafs that share the ports of a node in turn; 2 for bonds over two switches",
    )
    rate: Literal[1, 10, 25, 100, 200, 400, 800] | None = Field(
        None,
        description="rate of links to nodes and devices, Gb/s, when below the fastest port's; "
        "default: the rate of the fastest port",
    )
    uplinks: int = Field(0, ge=0, le=64, description="uplinks of one leaf, to spine or uplink_to")
    spine: ProfileId | None = Field(
        None,
        description="switch model of its spines; none: its leafs are connected by "
        "peer_links or uplink_to only, or not at all",
    )
    spines: int = Field(
        0, ge=0, le=64, description="number of its spines; each leaf has uplinks / spines links to each of them"
    )
    uplink_to: Name | None = Field(
        None,
        description="another of these fabrics whose spines (else the leafs of the same racks) take the uplinks; "
        "e.g. out-of-band into in-band",
    )
    peer_links: int = Field(0, ge=0, le=8, description="links between the two leafs of a pair (MLAG peer link)")
    downlinks: int = Field(
        0,
        ge=0,
        le=128,
        description="ports of each spine (of each leaf without spines) reserved for uplinks of other fabrics",
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
    """One port of a device on the in-band or storage network. The management port is ``management``."""

    name: str = Field(min_length=1, description="label of the port, e.g. eth1")
    network: Literal["in_band", "storage"] = Field(description="network of the port")
    rate: Literal[1, 10, 25, 100, 200, 400, 800] = Field(description="Gb/s per direction")
    cage: Cage = Field(description="connector of the port")
