"""Names every switch and gives every cable its two ports. The same topology gives the same names and ports.

Stable under growth: a leaf's name and its ports down follow from unit, rail and place alone, so nodes are never
recabled. Ports up follow from the spread of trunks; ``growth`` reports when a new unit changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackready.design.topology.sizing import Demand, Shape
from rackready.design.topology.types import EndpointLink, EndpointNode, TopoSwitch, TrunkLink
from rackready.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane to be wired."""

    number: int
    shape: Shape
    topology: Topology
    rails: tuple[int, ...]
    """Rails in the plane, ascending."""
    radix: tuple[int, int, int]
    populated: int
    """Units with nodes: leafs of later units (``grow_to_su``) are not built yet."""
    demand: Demand
    """The shape that it was sized for."""

    @property
    def prefix(self) -> str:
        """Return the prefix of names in this plane."""
        return f"p{self.number}-" if self.topology.planes > 1 else ""

    @property
    def optimized(self) -> bool:
        """Return whether a leaf carries only one rail."""
        return self.topology.kind == "rail_optimized"

    def pods(self) -> int:
        """Return how many pods have a unit."""
        return -(-self.populated // self.shape.units_per_pod)

    def leaf_name(self, unit: int, position: int) -> str:
        """Return the name of a leaf by its unit (from 1) and position in it (from 0)."""
        if not self.optimized:
            return f"{self.prefix}leaf-su{unit:03d}-{position + 1:02d}"
        rail, part = divmod(position, self.shape.leaf.per_rail)
        stem = f"{self.prefix}leaf-su{unit:03d}-r{self.rails[rail]}"
        return stem if self.shape.leaf.per_rail == 1 else f"{stem}-{part + 1}"

    def spine_name(self, pod: int, position: int) -> str:
        """Return the name of a spine by its pod (from 1) and position in it (from 0)."""
        if self.shape.tiers == 2:  # noqa: PLR2004 - two tiers
            return f"{self.prefix}spine-{position + 1:03d}"
        return f"{self.prefix}spine-pod{pod:03d}-{position + 1:03d}"

    def core_name(self, position: int) -> str:
        """Return the name of a core by its position (from 0)."""
        return f"{self.prefix}core-{position + 1:04d}"


def switches(plane: Plane) -> Iterator[TopoSwitch]:
    """Yield the plane's switches: leafs, spines, cores."""
    tiers = (plane.topology.leaf, plane.topology.spine_switches(), plane.topology.core_switches())
    shape, per_unit = plane.shape, plane.shape.leaf.per_unit
    for unit in range(1, plane.populated + 1):
        pod = (unit - 1) // shape.units_per_pod + 1
        for position in range(per_unit):
            rail = plane.rails[position // shape.leaf.per_rail] if plane.optimized else 0
            index = (unit - 1) * per_unit + position + 1
            yield TopoSwitch(
                plane.leaf_name(unit, position),
                "leaf",
                plane.number,
                pod,
                index,
                tiers[0].model,
                plane.radix[0],
                unit,
                rail,
            )
    for pod in range(1, plane.pods() + 1):
        for position in range(shape.pod_spines[pod - 1]):
            # A pod never has more spines than a leaf has uplinks, so numbers of pods never overlap.
            index = (pod - 1) * shape.leaf.up + position + 1
            yield TopoSwitch(
                plane.spine_name(pod, position), "spine", plane.number, pod, index, tiers[1].model, plane.radix[1]
            )
    for position in range(shape.cores):
        yield TopoSwitch(
            plane.core_name(position), "core", plane.number, 0, position + 1, tiers[2].model, plane.radix[2]
        )


def endpoints(plane: Plane, nodes: Sequence[EndpointNode]) -> Iterator[EndpointLink]:
    """Yield the cables of nodes with assigned slots."""
    leaf, count, number, optimized = plane.shape.leaf, len(plane.rails), plane.number, plane.optimized
    names = [
        [plane.leaf_name(unit, position) for position in range(leaf.per_unit)] for unit in range(1, plane.populated + 1)
    ]
    places = {rail: place for place, rail in enumerate(plane.rails)}
    for node in nodes:
        own = names[node.su - 1]
        block, within = divmod(node.slot - 1, leaf.nodes)
        for rail in node.rails:
            place = places.get(rail)
            if place is None:
                continue
            if optimized:
                yield EndpointLink(node.name, rail, number, own[place * leaf.per_rail + block], within + 1)
            else:
                yield EndpointLink(node.name, rail, number, own[block], within * count + place + 1)


def leaf_trunks(plane: Plane) -> Iterator[TrunkLink]:
    """Yield the cables between leafs and spines: every leaf has the same number to every spine of its pod."""
    shape, per_unit = plane.shape, plane.shape.leaf.per_unit
    for unit in range(1, plane.populated + 1):
        pod, place = divmod(unit - 1, shape.units_per_pod)
        spines = [plane.spine_name(pod + 1, position) for position in range(shape.pod_spines[pod])]
        width = shape.leaf.up // len(spines)
        for position in range(per_unit):
            lower, first = plane.leaf_name(unit, position), (place * per_unit + position) * width + 1
            up = shape.leaf.down + 1
            for number, upper in enumerate(spines):
                for link in range(width):
                    yield TrunkLink(lower, up + number * width + link, upper, first + link)


def core_trunks(plane: Plane) -> Iterator[TrunkLink]:
    """Yield the cables between spines and cores: every spine has the same number to every core of its groups."""
    shape = plane.shape
    if not shape.cores:
        return
    cores = [plane.core_name(position) for position in range(shape.cores)]
    # Ports that every pod has on a core, as many as a full pod needs, so that a pod that is added or filled moves no
    # cables of other pods.
    block = shape.pod_spines[0] // shape.groups * (shape.spine_up // shape.group_cores)
    for pod in range(1, plane.pods() + 1):
        for position in range(shape.pod_spines[pod - 1]):
            lower = plane.spine_name(pod, position)
            reached, place = _reached(shape, shape.pod_spines[pod - 1], position)
            width = shape.spine_up // len(reached)
            first = (pod - 1) * block + place * width + 1
            for number, core in enumerate(reached):
                for link in range(width):
                    yield TrunkLink(lower, shape.spine_down + 1 + number * width + link, cores[core], first + link)


def _reached(shape: Shape, spines: int, position: int) -> tuple[range, int]:
    """Return the cores that a spine of such a pod reaches, and its place among the spines with the same cores."""
    if spines >= shape.groups:
        share = spines // shape.groups
        group, place = divmod(position, share)
        return range(group * shape.group_cores, (group + 1) * shape.group_cores), place
    span = shape.groups // spines * shape.group_cores
    return range(position * span, (position + 1) * span), 0


def counts(planes: Mapping[int, Plane]) -> dict[str, int]:
    """Return the counts of switches and trunks of all planes, by the rules alone."""
    total = dict.fromkeys(("leaf", "spine", "core", "leaf_spine_cables", "spine_core_cables"), 0)
    for plane in planes.values():
        shape = plane.shape
        spines = sum(shape.pod_spines[: plane.pods()])
        leafs = plane.populated * shape.leaf.per_unit
        total["leaf"] += leafs
        total["spine"] += spines
        total["core"] += shape.cores
        total["leaf_spine_cables"] += leafs * shape.leaf.up
        total["spine_core_cables"] += spines * shape.spine_up
    return total
