"""How an InfiniBand fabric is managed: its subnet manager, and where it runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rackready.model.base import Model, Names

SubnetManager = Literal["opensm", "ufm", "external"]
RoutingEngine = Literal["minhop", "updn", "dnup", "ftree", "lash", "dor", "torus-2QoS", "nue", "dfsssp", "sssp"]
"""Engines of upstream opensm (linux-rdma/opensm, osm_opensm.c). opensm starts with an unknown name, too, and then
routes by minhop with only a line in its log."""


class InfiniBand(Model):
    """Subnet management of an InfiniBand fabric."""

    subnet_manager: SubnetManager = Field(
        description="opensm: rackready runs opensm on `nodes`; external: somebody else runs one, and rackready checks "
        "that it answers; ufm: NVIDIA UFM"
    )
    nodes: list[Names] = Field(
        default_factory=list,
        description="nodes that run opensm, the master first; the others stand by, in this order of priority",
    )
    routing_engine: RoutingEngine = Field(
        "updn", description="routing of opensm; updn is free of deadlocks in every topology, ftree needs a fat tree"
    )

    @model_validator(mode="after")
    def _opensm_needs_nodes(self) -> InfiniBand:
        if (self.subnet_manager == "opensm") != bool(self.nodes):
            message = "subnet_manager: opensm, and only opensm, needs nodes"
            raise ValueError(message)
        return self
