"""The power graph, and the flow of load up from racks to the utility: whole, and with one element lost."""

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
"""Kinds at which power begins."""


def structure_problems(nodes: Sequence[PowerNode]) -> list[Problem]:
    """Return what keeps a list of power nodes from being a graph without circles."""
    known: dict[str, int] = {}
    out = [
        Problem(
            f"facility.power[{index}].name",
            f"power node {node.name} is also facility.power[{known[node.name]}].",
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
                    Problem(
                        where,
                        f"power node {parent!r} does not exist - Expected: a name of facility.power.",
                        "Correct it or declare it.",
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
            Problem(
                "facility.power",
                f"power runs in a circle: {circle} - Expected: each node fed from upstream.",
                "Take one of these out of fed_by.",
            )
        )
    return out


def _feeders(node: PowerNode, where: str) -> Iterable[Problem]:
    """Yield feeders that are named twice, of which each would carry a share, and what feeds a source."""
    for number, parent in enumerate(node.fed_by):
        if parent in node.fed_by[:number]:
            yield Problem(
                f"{where}[{number}]",
                f"power node {parent} feeds {node.name} already - Expected: each once.",
                "Remove one of the two.",
            )
    if node.fed_by and node.kind in SOURCES:
        yield Problem(
            where,
            f"{node.name} is a {node.kind} - Expected: fed by nothing Actual: {', '.join(node.fed_by)}.",
            "Remove it, or correct the kind.",
        )


class PowerGraph:
    """A sound list of power nodes (``structure_problems`` found nothing), indexed from utility to racks."""

    def __init__(self, nodes: Sequence[PowerNode], pue: float | None = None) -> None:
        """Take the nodes. ``pue``: what a source carries for each W of its racks, since cooling and losses draw there too; None: racks alone."""
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
        """What the load of racks is multiplied with at each node. Sources alone: where between them and racks chillers, pumps and losses hang, a site
        does not say, and what feeds racks alone does not feed them. In proportion to the racks' load: judgement."""
        self._upstream: dict[tuple[str, ...], list[int]] = {}

    def seen_w(self, node: int, load: Poles) -> float:
        """Return what the breaker of a node sees of a load, W: for three phases three times the worst pole; at a source with cooling and losses."""
        watts = poles.worst(load) if self.nodes[node].phases == 3 else poles.watts(load)  # noqa: PLR2004 - three phases
        return watts * self.times[node]

    def shares(self, node: int, dead: set[int]) -> list[tuple[int, float]]:
        """Return which living parents carry which share of a node's load."""
        alive = [parent for parent in self.parents[node] if parent not in dead]
        if not alive:
            return []
        if self.nodes[node].sharing == "preferred":
            return [(alive[0], 1.0)]
        return [(parent, 1.0 / len(alive)) for parent in alive]

    def lost_with(self, node: int) -> set[int]:
        """Return a node and every one downstream that has no living source left."""
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
        """Return the load of every node, given what racks ask of it directly."""
        loads = [at.get(number, poles.NONE) for number in range(len(self.nodes))]
        nobody: set[int] = set()
        for number in range(len(self.nodes) - 1, -1, -1):
            for parent, share in self.shares(number, nobody):
                loads[parent] = poles.add(loads[parent], poles.scaled(loads[number], share))
        return loads

    def change(self, base: list[Poles], asked: Loads, dead: set[int]) -> Loads:
        """Return the new load of every living node that is touched when ``dead`` are lost and racks ask ``asked`` more (or less) of nodes.

        Only what is touched is computed, from racks upwards; ``base`` is the flow with everything alive.
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
