"""The values of a metric over every unit of a site, packed: a hundred thousand GPUs with hundreds of metrics each stay a few bytes a value."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Any

from rackready.evidence.distribution import Strip, counted

Key = tuple[str, str, str]
"""Gate, metric, unit."""


@dataclass(slots=True)
class Pile:
    """Values of one metric. A unit is a place in the list of nodes, and what follows the node's name: "", "/gpu2" or a drive's serial number."""

    values: array[float] = field(default_factory=lambda: array("d"))
    nodes: array[int] = field(default_factory=lambda: array("I"))
    parts: array[int] = field(default_factory=lambda: array("I"))
    others: dict[str, float] = field(default_factory=dict)
    """Units that are no part of one node (links between two, runs over several), by name."""
    bounds: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Units:
    """Piles of all metrics of some nodes of a site."""

    piles: dict[Key, Pile] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def add(self, place: int, name: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add what a node's gates measured; of several values of a unit the last counts. ``place``: of the node in the site."""
        for entry in entries:
            found: dict[tuple[Key, str], float] = {}
            for metric in entry["metrics"]:
                if counted(metric):
                    found[(entry["gate"], metric["name"], metric["unit"]), metric["target"]] = float(metric["value"])
            for (key, target), value in found.items():
                self._put(key, place, name, target, value)
            self._bounds(entry, {key for key, _ in found})

    def _put(self, key: Key, place: int, name: str, target: str, value: float) -> None:
        pile = self.piles.setdefault(key, Pile())
        if not (target == name or target.startswith((f"{name}/", f"{name} "))) or "->" in target:
            pile.others[target] = value
            return
        pile.values.append(value)
        pile.nodes.append(place)
        pile.parts.append(self._place(target[len(name) :]))

    def run(self, entry: Mapping[str, Any]) -> None:
        """Add what a run over several nodes measured, all of it by name."""
        keys = set()
        for metric in entry["metrics"]:
            if counted(metric):
                keys.add(key := (str(entry["gate"]), str(metric["name"]), str(metric["unit"])))
                self.piles.setdefault(key, Pile()).others[metric["target"]] = float(metric["value"])
        self._bounds(entry, keys)

    def _bounds(self, entry: Mapping[str, Any], keys: Iterable[Key]) -> None:
        for key in keys:
            self.piles[key].bounds.update({item["label"]: float(item["bound"]) for item in entry["criteria"] if item["metric"] == key[1]})

    def take(self, more: Units) -> None:
        """Add what was piled up elsewhere, of later nodes."""
        places = array("I", (self._place(part) for part in more.parts))
        for key, pile in more.piles.items():
            own = self.piles.setdefault(key, Pile())
            own.values.extend(pile.values)
            own.nodes.extend(pile.nodes)
            own.parts.extend(places[part] for part in pile.parts)
            own.others.update(pile.others)
            own.bounds.update(pile.bounds)

    def _place(self, part: str) -> int:
        if part not in self._places:
            self._places[part] = len(self.parts)
            self.parts.append(part)
        return self._places[part]

    def strips(self, names: list[str]) -> Iterator[Strip]:
        """Yield the strip of every metric, sorted. ``names``: of all nodes, by place."""
        for key, pile in sorted(self.piles.items()):
            yield Strip(*key, Named(pile, names, self.parts), pile.bounds)


class Figures(ValuesView[float]):
    """The values of a pile."""

    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self._named = named

    def __iter__(self) -> Iterator[float]:
        """Yield them."""
        return self._named.figures()


@dataclass(slots=True, eq=False)
class Named(Mapping[str, float]):
    """A pile as names with values. Names are made when they are asked for."""

    pile: Pile
    nodes: list[str]
    parts: list[str]

    def __len__(self) -> int:
        """Count the units."""
        return len(self.pile.values) + len(self._more())

    def __iter__(self) -> Iterator[str]:
        """Yield the names of units."""
        yield from self._own()
        yield from self._more()

    def __getitem__(self, name: str) -> float:
        """Return the value of a unit; slow, for the few that are asked for by name."""
        return dict(zip(self, self.values(), strict=True))[name]

    def values(self) -> Figures:
        """Return the values in the order of the names, without making those."""
        return Figures(self)

    def figures(self) -> Iterator[float]:
        """Yield the values."""
        yield from self.pile.values
        yield from self._more().values()

    def _more(self) -> dict[str, float]:
        """Return the units that only runs measured: what stands in the nodes' own records, too, is one unit."""
        own = set(self._own()) if self.pile.others else frozenset()
        return {name: value for name, value in self.pile.others.items() if name not in own}

    def _own(self) -> Iterator[str]:
        return (f"{self.nodes[node]}{self.parts[part]}" for node, part in zip(self.pile.nodes, self.pile.parts, strict=True))
