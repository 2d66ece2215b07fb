"""The fabric as a graph, made from its cables alone: parallel cables are one edge with their number as capacity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter

from rackready.design.topology.types import EndpointLink, TrunkLink

Adjacency = dict[str, dict[str, int]]
"""Switch -> neighbour -> number of cables between them."""


def upward(trunks: Iterable[TrunkLink]) -> Adjacency:
    """Return lower switch -> upper switch -> cables."""
    out: Adjacency = defaultdict(dict)
    for lower, _, upper, _ in trunks:
        row = out[lower]
        row[upper] = row.get(upper, 0) + 1
    return dict(out)


def downward(up: Mapping[str, Mapping[str, int]]) -> Adjacency:
    """Return upper switch -> lower switch -> cables."""
    out: Adjacency = defaultdict(dict)
    for lower, row in up.items():
        for upper, count in row.items():
            out[upper][lower] = count
    return dict(out)


def attached(endpoints: Iterable[EndpointLink]) -> Counter[str]:
    """Return leaf -> endpoints on it."""
    return Counter(map(itemgetter(3), endpoints))


def classes(colours: Mapping[str, object], up: Adjacency, down: Adjacency) -> dict[str, int]:
    """Return the coarsest equitable partition that refines ``colours``: vertex -> class.

    Vertices of one class have the same capacity into every other class. Contracting such classes keeps the value of
    every max-flow whose sides are unions of classes (Grohe, Kersting, Mladenov, Selman: "Dimension Reduction via Colour
    Refinement", 2014: the linear program keeps its optimum), so that the flow over 100,000 endpoints is computed on a
    handful of vertices. It stays exact for a miscabled fabric: classes split.
    """
    current = _numbered(colours)
    while True:
        finer = _numbered(
            {
                name: (colour, _seen(up.get(name), current), _seen(down.get(name), current))
                for name, colour in current.items()
            }
        )
        if len(set(finer.values())) == len(set(current.values())):
            return finer
        current = finer


def _seen(row: Mapping[str, int] | None, colours: Mapping[str, int]) -> frozenset[tuple[int, int]]:
    if not row:
        return frozenset()
    if len(widths := set(row.values())) == 1:
        # The usual case, counted without a Python loop: as many cables to each.
        width = widths.pop()
        return frozenset((colour, count * width) for colour, count in Counter(map(colours.__getitem__, row)).items())
    total: dict[int, int] = defaultdict(int)
    for name, count in row.items():
        total[colours[name]] += count
    return frozenset(total.items())


def _numbered(colours: Mapping[str, object]) -> dict[str, int]:
    numbers: dict[object, int] = {}
    return {name: numbers.setdefault(colour, len(numbers)) for name, colour in colours.items()}


def contracted(up: Adjacency, groups: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Return the capacity between each pair of classes, in cables."""
    out: dict[tuple[int, int], int] = defaultdict(int)
    for lower, row in up.items():
        own = groups[lower]
        for upper, count in row.items():
            out[own, groups[upper]] += count
    return dict(out)


def max_flow(
    sending: Mapping[int, int], receiving: Mapping[int, int], capacities: Mapping[tuple[int, int], int]
) -> int:
    """Return the most endpoints of one side that can send to the other at once, in links.

    ``sending`` and ``receiving``: class of leafs to endpoints on them; ``capacities``: between classes, the same in
    both directions.
    """
    import networkx as nx  # noqa: PLC0415 - a quarter of a second, which only a fabric that is proved pays
    from networkx.algorithms.flow import preflow_push  # noqa: PLC0415 - the same

    graph: nx.DiGraph[object] = nx.DiGraph()
    graph.add_nodes_from(("from", "to"))
    graph.add_edges_from((("from", group, {"capacity": ends}) for group, ends in sending.items()))
    graph.add_edges_from(((group, "to", {"capacity": ends}) for group, ends in receiving.items()))
    for (one, other), capacity in capacities.items():
        graph.add_edge(one, other, capacity=capacity)
        graph.add_edge(other, one, capacity=capacity)
    return int(nx.maximum_flow_value(graph, "from", "to", flow_func=preflow_push))
