"""The power graph, and the flow of load from racks up to the utility, with everything alive or one element lost."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from rackready.design.capacity import circuits, poles
from rackready.design.capacity.poles import Poles
from rackready.model.facility import PowerNode
from rackready.model.problems import Problem

Loads = dict[int, Poles]
"""Load by index of power node."""
SOURCES = frozenset({"utility", "generator"})
"""Kinds of power nodes without a feeder."""


def structure_problems(nodes: Sequence[PowerNode]) -> list[Problem]:
    """Return problems that keep a list of power nodes from being a graph without cycles."""
    known: dict[str, int] = {}
    out = [
        Problem(
            f"facility.power[{index}].name",
            f"power node {node.name} is already facility.power[{known[node.name]}].",
            "Give each its own name.",
        )
        for index, node in enumerate(nodes)
        if known.setdefault(node.name, index) != index
    ]
    for index, node in enumerate(nodes):
        for number, parent in enumerate(node.fed_by):
            if parent not in known:
                where = f"facility.power[{index}].fed_by[{number}]"
                out.append(
                    Problem.of(
                        where,
                        f"power node {parent!r} does not exist",
                        "Correct it or declare it.",
                        expected="a name in facility.power",
                    )
                )
        out += _feeders(node, f"facility.power[{index}].fed_by")
    try:
        TopologicalSorter(
            {node.name: [parent for parent in node.fed_by if parent in known] for node in nodes}
        ).prepare()
    except CycleError as error:
        circle = " <- ".join(error.args[1])
        out.append(
            Problem.of(
                "facility.power",
                f"power runs in a circle: {circle}",
                "Remove one of these from fed_by.",
                expected="each node fed from upstream",
            )
        )
    return out


def _feeders(node: PowerNode, where: str) -> Iterable[Problem]:
    """Yield feeders that are listed twice, each of which would carry a share, and feeders of a source."""
    for number, parent in enumerate(node.fed_by):
        if parent in node.fed_by[:number]:
            yield Problem.of(
                f"{where}[{number}]",
                f"power node {parent} is listed twice in fed_by of {node.name}",
                "Remove one of the two.",
                expected="once",
            )
    if node.fed_by and node.kind in SOURCES:
        yield Problem.of(
            where,
            f"{node.name} is a {node.kind}",
            "Remove it, or correct the kind.",
            expected="no fed_by",
            actual=", ".join(node.fed_by),
        )


class PowerGraph:
    """A valid list of power nodes (``structure_problems`` is empty), indexed from utility to racks."""

    def __init__(self, nodes: Sequence[PowerNode], pue: float | None = None) -> None:
        """Index the nodes.

        ``pue``: load of a source for each W of its racks, since cooling and losses draw there too; None: racks only.
        """
        by_name = {node.name: node for node in nodes}
        order = list(TopologicalSorter({node.name: node.fed_by for node in nodes}).static_order())
        self.nodes = [by_name[name] for name in order]
        self.index = {name: number for number, name in enumerate(order)}
        self.parents = [[self.index[parent] for parent in node.fed_by] for node in self.nodes]
        self.children: list[list[int]] = [[] for _ in self.nodes]
        for number, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(number)
        self.usable = [circuits.usable_w(node) for node in self.nodes]
        self.times = [(pue or 1.0) if node.kind in SOURCES else 1.0 for node in self.nodes]
        """Factor on the load of racks at each node, above 1 only at sources.

        The site does not say where chillers, pumps and losses connect between sources and racks; feeds of racks alone
        do not carry them. In proportion to the load of racks: judgement.
        """
        self._upstream: dict[tuple[str, ...], list[int]] = {}

    def seen_w(self, node: int, load: Poles) -> float:
        """Return the load that the breaker of a node sees, W.

        For three phases it is three times the worst pole; at a source it includes cooling and losses.
        """
        watts = poles.worst(load) if self.nodes[node].phases == 3 else poles.watts(load)  # noqa: PLR2004 - three phases
        return watts * self.times[node]

    def shares(self, node: int, dead: set[int]) -> list[tuple[int, float]]:
        """Return (living parent, share of a node's load)."""
        alive = [parent for parent in self.parents[node] if parent not in dead]
        if not alive:
            return []
        if self.nodes[node].sharing == "preferred":
            return [(alive[0], 1.0)]
        return [(parent, 1.0 / len(alive)) for parent in alive]

    def lost_with(self, node: int) -> set[int]:
        """Return a node and every downstream node that has no living source left."""
        dead = {node}
        waiting = list(self.children[node])
        heapq.heapify(waiting)
        while waiting:
            child = heapq.heappop(waiting)
            if child not in dead and all(parent in dead for parent in self.parents[child]):
                dead.add(child)
                for below in self.children[child]:
                    heapq.heappush(waiting, below)
        return dead

    def flow(self, at: Loads) -> list[Poles]:
        """Return the load of every node, given the direct load from racks."""
        loads = [at.get(number, poles.NONE) for number in range(len(self.nodes))]
        nobody: set[int] = set()
        for number in range(len(self.nodes) - 1, -1, -1):
            for parent, share in self.shares(number, nobody):
                loads[parent] = poles.add(loads[parent], poles.scaled(loads[number], share))
        return loads

    def change(self, base: list[Poles], asked: Loads, dead: set[int]) -> Loads:
        """Return the new load of every affected living node if ``dead`` are lost and racks change by ``asked``.

        Only affected nodes are computed, from racks upwards; ``base`` is the flow with everything alive.
        """
        delta: Loads = dict(asked)
        moved = {child for node in dead for child in self.children[node]} | dead | set(asked)
        waiting = [-number for number in moved]
        heapq.heapify(waiting)
        queued = set(moved)
        new: Loads = {}
        nobody: set[int] = set()
        while waiting:
            number = -heapq.heappop(waiting)
            load = poles.NONE if number in dead else poles.add(base[number], delta.get(number, poles.NONE))
            if number not in dead:
                new[number] = load
            for parent, difference in self._differences(number, (base[number], load), (nobody, dead)):
                delta[parent] = poles.add(delta.get(parent, poles.NONE), difference)
                if parent not in queued:
                    queued.add(parent)
                    heapq.heappush(waiting, -parent)
        return new

    def _differences(
        self, number: int, loads: tuple[Poles, Poles], dead: tuple[set[int], set[int]]
    ) -> Iterable[tuple[int, Poles]]:
        old, new = loads
        for parent, share in self.shares(number, dead[0]):
            yield parent, poles.scaled(old, -share)
        if number not in dead[1]:
            for parent, share in self.shares(number, dead[1]):
                yield parent, poles.scaled(new, share)

    def upstream_of(self, names: tuple[str, ...]) -> list[int]:
        """Return every node through which power may reach these, themselves included, in order."""
        if names not in self._upstream:
            found: set[int] = set()
            waiting = [self.index[name] for name in names]
            while waiting:
                number = waiting.pop()
                if number not in found:
                    found.add(number)
                    waiting += self.parents[number]
            self._upstream[names] = sorted(found)
        return self._upstream[names]
