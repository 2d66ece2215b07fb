"""Where to begin: racks in which several nodes have the same finding, and the nodes with the most findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Where = tuple[str, int | None]
"""Rack and unit of a node."""

MOST_ROWS = 5
"""Rows of where to begin: they fit the first screen, with what is bad below them."""
IN_ONE_RACK = 3
"""Nodes of one rack with the same finding that suggest a cause in the rack: a feed, the cooling, a switch."""
_KEPT = 64
"""Nodes that stay in memory: more than the rows, because racks take some of them."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """One kind of finding of a node, with the parts of the node that show it."""

    outcome: str
    what: str
    code: str
    next_step: str
    parts: tuple[str, ...]


@dataclass(slots=True)
class WorstNodes:
    """Keeps the nodes with the most kinds of findings, in memory that does not grow with the site."""

    nodes: list[tuple[str, Sequence[NodeFault]]] = field(default_factory=list)
    """The worst first."""
    count: int = 0
    """Nodes in all."""

    def add(self, node: str, faults: Sequence[NodeFault]) -> None:
        """Add a node with its findings, the worst first."""
        self.count += 1
        self.nodes.append((node, faults))
        if len(self.nodes) > 2 * _KEPT:
            self._cut()

    def _cut(self) -> None:
        self.nodes.sort(key=lambda item: -len(item[1]))
        del self.nodes[_KEPT:]

    def rows(self, racks: Collection[Mapping[str, Any]], where: Mapping[str, Where]) -> list[dict[str, Any]]:
        """Return the rows for nodes. Those of ``racks`` with no other finding are left out.

        Where not every bad node has a row, only nodes with several findings have one.
        """
        self._cut()
        told = {(node, rack["what"]) for rack in racks for node in rack["nodes"]}
        own = [(node, faults) for node, faults in self.nodes if any((node, fault.what) not in told for fault in faults)]
        if self.count > MOST_ROWS:
            own = [(node, faults) for node, faults in own if len(faults) > 1]
        return [_row(node, faults, where) for node, faults in own[: max(0, MOST_ROWS - len(racks))]]


def _row(node: str, faults: Sequence[NodeFault], where: Mapping[str, Where]) -> dict[str, Any]:
    rack, unit = where.get(node, ("", None))
    return {"rack": rack, "unit": unit, "node": node, "faults": faults, "next_step": faults[0].next_step}


def racks_alike(groups: Iterable[Mapping[str, Any]], racks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the racks in which several nodes have the same finding, those with the most such nodes first.

    ``groups``: as the page shows them; ``racks``: the map. A site with one rack has none: every finding is in it.
    """
    sizes = {rack["name"]: len(rack["cells"]) for rack in racks}
    if len(sizes) < 2:  # noqa: PLR2004 - one rack cannot stand out
        return []
    found = [
        {
            "rack": rack,
            "of": sizes.get(rack, len(nodes)),
            "nodes": [node["node"] for node in nodes],
            **{key: group[key] for key in ("outcome", "what", "code", "next_step")},
        }
        for group in groups
        if group["next_step"]
        for rack, nodes in group["racks"].items()
        if len(nodes) >= IN_ONE_RACK
    ]
    return sorted(found, key=lambda item: -len(item["nodes"]))[:MOST_ROWS]
