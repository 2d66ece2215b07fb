"""Number and spread of the switches of each tier. Pure counting: no switch is named here.

Rules (derived from the published DGX SuperPOD tables, which the tests hold row by row): a leaf of radix k gives k/2
ports down and k/2 up (at 1:1); a tier above is rounded up to a count over which every switch below spreads its uplinks
evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from rackready.model.topology import split_ratio


@dataclass(frozen=True, slots=True)
class Demand:
    """Required capacity of a fabric, in one plane."""

    radix: tuple[int, int, int]
    """Ports of a leaf, a spine, a core."""
    rails: int
    """Links of one node into this plane."""
    su_nodes: int
    units: int
    """Scalable units that spines and cores are sized for."""
    rail_optimized: bool = True
    ratio: str = "1:1"
    spine_ratio: str = "1:1"


@dataclass(frozen=True, slots=True)
class LeafLayout:
    """Layout of one unit's links on leafs, the same in every unit."""

    per_unit: int
    """Leafs of a unit."""
    per_rail: int
    """Leafs that share one rail of a unit (rail-optimized), else 0."""
    nodes: int
    """Nodes on one leaf."""
    down: int
    """Ports down in use on a leaf of a full unit."""
    up: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A fabric that carries its demand: counts of one plane, and the spread of trunks."""

    tiers: int
    units: int
    leaf: LeafLayout
    units_per_pod: int
    pod_spines: tuple[int, ...]
    """Spines of each pod."""
    spine_down: int
    """Ports down of a spine; its uplinks follow them."""
    spine_up: int
    groups: int
    """Core groups: a spine of a full pod reaches all cores of one group."""
    group_cores: int

    @property
    def leafs(self) -> int:
        """Return the leafs of the units that the fabric is sized for."""
        return self.units * self.leaf.per_unit

    @property
    def spines(self) -> int:
        """Return the spines of all pods."""
        return sum(self.pod_spines)

    @property
    def cores(self) -> int:
        """Return the cores of all groups."""
        return self.groups * self.group_cores


def divisors(number: int) -> list[int]:
    """Return all divisors, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def ports_down(radix: int, ratio: str) -> int:
    """Return the most ports down that leave enough uplinks: radix x down / (down + up), rounded down."""
    down, up = split_ratio(ratio)
    return radix * down // (down + up)


def uplinks(down_ports: int, ratio: str) -> int:
    """Return the uplinks that this many ports down need: down_ports x up / down, rounded up."""
    down, up = split_ratio(ratio)
    return ceil(down_ports * up / down)


def leaf_layout(demand: Demand) -> LeafLayout | None:
    """Return the layout of a unit on leafs; None if a leaf of a fat tree has fewer ports down than a node has links."""
    most = ports_down(demand.radix[0], demand.ratio)
    if demand.rail_optimized:
        per_rail = ceil(demand.su_nodes / most)
        nodes = ceil(demand.su_nodes / per_rail)
        return LeafLayout(per_rail * demand.rails, per_rail, nodes, nodes, uplinks(nodes, demand.ratio))
    if most < demand.rails:
        return None
    per_unit = ceil(demand.su_nodes / (most // demand.rails))
    nodes = ceil(demand.su_nodes / per_unit)
    return LeafLayout(per_unit, 0, nodes, nodes * demand.rails, uplinks(nodes * demand.rails, demand.ratio))


def most_units(demand: Demand, tiers: int) -> int:
    """Return how many units that many tiers carry.

    Every leaf needs a link to every spine (of its pod), every pod one to every core.
    """
    leaf = leaf_layout(demand)
    if leaf is None:
        return 0
    if tiers == 2:  # noqa: PLR2004 - two tiers
        return demand.radix[1] // leaf.per_unit
    return demand.radix[2] * (ports_down(demand.radix[1], demand.spine_ratio) // leaf.per_unit)


def shape(demand: Demand, tiers: int) -> Shape | None:
    """Return the smallest fabric of that many tiers; None if there is none (see ``most_units``)."""
    leaf = leaf_layout(demand)
    if leaf is None or demand.units > most_units(demand, tiers):
        return None
    return _two_tiers(demand, leaf) if tiers == 2 else _three_tiers(demand, leaf)  # noqa: PLR2004 - two tiers


def _two_tiers(demand: Demand, leaf: LeafLayout) -> Shape:
    ports = demand.radix[1]
    spines = _spines(divisors(leaf.up), leaf, demand.units * leaf.per_unit, ports)
    return Shape(2, demand.units, leaf, demand.units, (spines,), ports, 0, 0, 0)


def _spines(candidates: list[int], leaf: LeafLayout, leafs: int, ports: int) -> int:
    """Return the fewest spines with equal links from every leaf to each, within the ports down of a spine."""
    return next(count for count in candidates if leafs * (leaf.up // count) <= ports)


def _three_tiers(demand: Demand, leaf: LeafLayout) -> Shape:
    ports = ports_down(demand.radix[1], demand.spine_ratio)
    per_pod = min(ports // leaf.per_unit, demand.units)
    full = _spines(divisors(leaf.up), leaf, per_pod * leaf.per_unit, ports)
    down = per_pod * leaf.per_unit * (leaf.up // full)
    up = uplinks(down, demand.spine_ratio)
    pods, rest = divmod(demand.units, per_pod)
    groups, cores = _cores(full, up, pods + bool(rest), demand.radix[2])
    spines = (full,) * pods
    if rest:
        # A partial pod takes fewer spines, as long as their uplinks still reach every core evenly.
        fitting = [count for count in divisors(full) if _even(count, groups, cores, up)]
        spines += (_spines(fitting, leaf, rest * leaf.per_unit, down),)
    return Shape(3, demand.units, leaf, per_pod, spines, down, up, groups, cores)


def _cores(spines: int, up: int, pods: int, ports: int) -> tuple[int, int]:
    """Return (groups, cores of a group).

    Fewest cores in all, then as many as possible for each spine, so that one lost core costs each spine least.
    """
    fitting = [
        (groups * cores, -cores, groups)
        for groups in divisors(spines)
        for cores in divisors(up)
        if pods * (spines // groups) * (up // cores) <= ports
    ]
    total, _, groups = min(fitting)
    return groups, total // groups


def _even(spines: int, groups: int, cores: int, up: int) -> bool:
    """Return whether this many spines of a pod reach every core of every group by the same number of links."""
    if spines % groups == 0:
        return True
    return groups % spines == 0 and up % (groups // spines * cores) == 0
