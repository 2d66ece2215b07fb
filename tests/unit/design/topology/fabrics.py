"""Small makers of topologies and nodes for the tests beside this file."""

from __future__ import annotations

from typing import Any

from rackready.design.topology.build import build_at
from rackready.design.topology.types import EndpointNode, FabricPlan
from rackready.model.topology import Topology


def topology(**fields: Any) -> Topology:
    return Topology.model_validate({"leaf": {"model": "any"}} | fields)


def nodes(count: int, su: int, rails: int = 8, rate: int = 400) -> list[EndpointNode]:
    """Return so many nodes, so many to a unit."""
    return [
        EndpointNode(f"gpu-{number:05d}", number // su + 1, tuple(range(1, rails + 1)), rate) for number in range(count)
    ]


def fabric(count: int, su: int, radix: int, rails: int = 8, **fields: Any) -> FabricPlan:
    """Return the fabric of so many nodes in units of ``su``, on switches of one radix in every tier."""
    return build_at((radix,) * 3, topology(su_nodes=su, **fields), nodes(count, su, rails))
