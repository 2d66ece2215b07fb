"""Explains why a fabric cannot be built, how large it could be, and what would make room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from rackready.design.topology.sizing import Demand, leaf_layout, most_units, ports_down, shape
from rackready.model.problems import Problem
from rackready.model.topology import Topology

_LARGEST_RADIX = 1024
"""Upper limit of the search for a larger radix: the model's own limit."""
_TIERS = (2, 3)


def too_large(topology: Topology, demand: Demand, nodes: int) -> Problem:
    """Return the refusal of a size that the tiers cannot carry. ``nodes``: existing ones, or those to make room for."""
    tiers = topology.tiers or 3
    leaf = leaf_layout(demand)
    if leaf is None:
        return _narrow_leaf(demand)
    limit = most_units(demand, tiers)
    if limit == 0:
        return _unit_too_large(demand, tiers, leaf.per_unit)
    kind = "non-blocking tiers" if demand.ratio == demand.spine_ratio == "1:1" else f"tiers at {demand.ratio}"
    radix = demand.radix[0] if len(set(demand.radix)) == 1 else "/".join(str(value) for value in demand.radix)
    places = limit * demand.su_nodes
    return Problem.of(
        "topology",
        f"{nodes} nodes with {demand.rails} links into each plane are {nodes * demand.rails} "
        f"endpoints a plane, more than {tiers} {kind} at radix {radix} carry",
        expected=f"at most {places * demand.rails} endpoints a plane ({limit} units of {demand.su_nodes} nodes)",
        actual=f"{nodes * demand.rails} ({demand.units} units)",
        next_step=f"Options: {'; '.join(ways_out(topology, demand, nodes)) or 'a smaller fabric'}.",
    )


def _narrow_leaf(demand: Demand) -> Problem:
    down = ports_down(demand.radix[0], demand.ratio)
    return Problem.of(
        "topology.leaf",
        "ports down for all links of one node",
        expected=f"at least {demand.rails}",
        actual=f"{down} (radix {demand.radix[0]})",
        next_step="Use a larger radix, or kind: rail_optimized.",
    )


def _unit_too_large(demand: Demand, tiers: int, leafs: int) -> Problem:
    ports = demand.radix[1] if tiers == _TIERS[0] else ports_down(demand.radix[1], demand.spine_ratio)
    return Problem.of(
        "topology.su_nodes",
        f"a unit of {demand.su_nodes} nodes needs {leafs} leafs, each with a link to every spine",
        expected=f"at most {ports} leafs (ports down of a spine)",
        actual=leafs,
        next_step="Make units smaller, or use a larger radix.",
    )


def ways_out(topology: Topology, demand: Demand, nodes: int) -> Iterator[str]:
    """Yield changes to the topology that would make room, each the smallest of its kind."""
    if topology.tiers == _TIERS[0] and shape(demand, 3):
        yield "tiers: 3"
    tiers = topology.tiers or 3
    radix = _smallest_radix(demand, tiers, nodes, fixed=topology.su_nodes is not None)
    if radix:
        yield f"radix {radix} or more in every tier"
    planes = _fewest_planes(topology, demand, tiers)
    if planes:
        yield f"planes: {planes} with planes_by: rail"
    ratio = _mildest_ratio(demand, tiers, nodes)
    if ratio:
        yield f"oversubscription: {ratio[0]} with su_nodes: {ratio[1]}"


def _smallest_radix(demand: Demand, tiers: int, nodes: int, *, fixed: bool) -> int | None:
    """Return the smallest even radix that carries so many nodes.

    Units keep their size if it is fixed; otherwise they get the size that a leaf then takes.
    """
    for radix in range(min(demand.radix) // 2 * 2 + 2, _LARGEST_RADIX + 1, 2):
        sizes = {demand.su_nodes} if fixed else {demand.su_nodes, ports_down(radix, demand.ratio)}
        if any(
            shape(replace(demand, radix=(radix,) * 3, su_nodes=size, units=ceil(nodes / size)), tiers) for size in sizes
        ):
            return radix
    return None


def _fewest_planes(topology: Topology, demand: Demand, tiers: int) -> int | None:
    rails = demand.rails * (topology.planes if topology.planes_by == "rail" else 1)
    for planes in range(2, 9):
        if (
            rails % planes == 0
            and rails // planes < demand.rails
            and shape(replace(demand, rails=rails // planes), tiers)
        ):
            return planes
    return None


def _mildest_ratio(demand: Demand, tiers: int, nodes: int) -> tuple[str, int] | None:
    """Return the smallest n of n:1 at leafs that carries that many nodes, and the unit that fills such a leaf."""
    for down in range(2, 9):
        ratio = f"{down}:1"
        size = ports_down(demand.radix[0], ratio)
        if size > demand.su_nodes and shape(
            replace(demand, ratio=ratio, su_nodes=size, units=ceil(nodes / size)), tiers
        ):
            return ratio, size
    return None
