"""The values of metrics over every unit of a site, packed into a few bytes each, for a hundred thousand GPUs."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rackready.evidence.bounds import ShownBound
from rackready.evidence.distribution import Strip, counted, kind_of
from rackready.model.place import part_of

Key = tuple[str, str, str]
"""Gate, metric, unit."""
Bounds = dict[tuple[str, str], ShownBound]
"""By label and operator."""


@dataclass(slots=True)
class Pile:
    """Values of one metric.

    A unit is a place in the list of nodes, and a suffix to the node's name: "", "/gpu2" or a drive's serial number.
    """

    values: array[float] = field(default_factory=lambda: array("d"))
    nodes: array[int] = field(default_factory=lambda: array("I"))
    parts: array[int] = field(default_factory=lambda: array("I"))
    others: dict[str, float] = field(default_factory=dict)
    """Units outside one node (links between two, runs over several), by name."""
    beyond: array[float] = field(default_factory=lambda: array("d"))
    """Values beyond a bound of their own record: a site with several models has a bound for each."""
    others_beyond: set[str] = field(default_factory=set)
    bounds: Bounds = field(default_factory=dict)
    """By label and operator."""

    def other(self, name: str, value: float, *, beyond: bool) -> None:
        """Put a unit outside one node, in the place of its earlier value."""
        self.others[name] = value
        (self.others_beyond.add if beyond else self.others_beyond.discard)(name)

    def bind(self, bounds: Iterable[ShownBound]) -> None:
        """Add bounds of this metric."""
        _merge(self.bounds, bounds)


@dataclass(slots=True)
class Units:
    """Piles of all metrics of some nodes of a site."""

    piles: dict[Key, Pile] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def add(self, place: int, name: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add a node's metrics. Of several values of a unit the last counts. ``place``: of the node in the site."""
        for entry in entries:
            found = dict(_measured(entry))
            bounds = _own_bounds(entry, {key for key, _ in found})
            for (key, target), value in found.items():
                self._put(key, place, name, target, value, beyond=_beyond(bounds[key], value))
            self._bind(bounds)

    def _put(self, key: Key, place: int, name: str, target: str, value: float, *, beyond: bool) -> None:
        pile = self.piles.setdefault(key, Pile())
        if part_of(target, name) is None:
            pile.other(target, value, beyond=beyond)
            return
        pile.values.append(value)
        if beyond:
            pile.beyond.append(value)
        pile.nodes.append(place)
        pile.parts.append(self._place(target[len(name) :]))

    def run(self, entry: Mapping[str, Any]) -> None:
        """Add the metrics of a run over several nodes, all by name."""
        found = list(_measured(entry))
        bounds = _own_bounds(entry, {key for (key, _), _ in found})
        for (key, target), value in found:
            self.piles.setdefault(key, Pile()).other(target, value, beyond=_beyond(bounds[key], value))
        self._bind(bounds)

    def _bind(self, bounds: Mapping[Key, Bounds]) -> None:
        for key, own in bounds.items():
            self.piles[key].bind(own.values())

    def take(self, more: Units) -> None:
        """Add the piles of later nodes."""
        places = array("I", (self._place(part) for part in more.parts))
        for key, pile in more.piles.items():
            own = self.piles.setdefault(key, Pile())
            own.values.extend(pile.values)
            own.nodes.extend(pile.nodes)
            own.parts.extend(places[part] for part in pile.parts)
            own.beyond.extend(pile.beyond)
            for name, value in pile.others.items():
                own.other(name, value, beyond=name in pile.others_beyond)
            own.bind(pile.bounds.values())

    def _place(self, part: str) -> int:
        if part not in self._places:
            self._places[part] = len(self.parts)
            self.parts.append(part)
        return self._places[part]

    def strips(self, names: list[str]) -> Iterator[Strip]:
        """Yield the strip of every metric, sorted. ``names``: of all nodes, by place."""
        kinds = [kind_of(part) for part in self.parts]
        for key, pile in sorted(self.piles.items()):
            named = Named(pile, names, self.parts)
            yield Strip(*key, named, list(pile.bounds.values()), partial(named.kinds, kinds), named.beyond())


def _merge(into: Bounds, bounds: Iterable[ShownBound]) -> None:
    for bound in bounds:
        known = into.setdefault((bound.label, bound.op), bound)
        if known is not bound:
            known.take(bound)


def _own_bounds(entry: Mapping[str, Any], keys: Iterable[Key]) -> dict[Key, Bounds]:
    """Return the bounds of one record, by metric. A bound that the record derived for each unit is a range."""
    out: dict[Key, Bounds] = {key: {} for key in keys}
    for key, own in out.items():
        _merge(own, (ShownBound.of(item) for item in entry["criteria"] if item["metric"] == key[1]))
    return out


def _beyond(own: Bounds, value: float) -> bool:
    return any(bound.broken_by(value) for bound in own.values())


def _measured(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[Key, str], float]]:
    """Yield a record's values with a distribution, by metric and unit. Values that must equal a bound have none."""
    given = {item["metric"] for item in entry["criteria"] if item["op"] == "eq"}
    for metric in entry["metrics"]:
        if counted(metric) and metric["name"] not in given:
            yield (
                ((str(entry["gate"]), str(metric["name"]), str(metric["unit"])), str(metric["target"])),
                float(metric["value"]),
            )


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
    """A pile as names with values. Names are made on demand."""

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
        """Return the value of a unit. It is slow, and meant for few units."""
        return dict(zip(self, self.values(), strict=True))[name]

    def values(self) -> Figures:
        """Return the values in the order of the names, without making names."""
        return Figures(self)

    def figures(self) -> Iterator[float]:
        """Yield the values."""
        yield from self.pile.values
        yield from self._more().values()

    def kinds(self, of_parts: list[str]) -> Iterator[Hashable]:
        """Yield the kind of each unit in the order of the names. ``of_parts``: the kinds of parts."""
        yield from (of_parts[part] for part in self.pile.parts)
        yield from (kind_of(name) for name in self._more())

    def beyond(self) -> list[float]:
        """Return the values beyond a bound of their own record."""
        more = self._more() if self.pile.others_beyond else {}
        return [*self.pile.beyond, *(value for name, value in more.items() if name in self.pile.others_beyond)]

    def _more(self) -> dict[str, float]:
        """Return the units that only runs measured. A unit in a node's own records, too, is one unit."""
        own = set(self._own()) if self.pile.others else frozenset()
        return {name: value for name, value in self.pile.others.items() if name not in own}

    def _own(self) -> Iterator[str]:
        return (
            f"{self.nodes[node]}{self.parts[part]}" for node, part in zip(self.pile.nodes, self.pile.parts, strict=True)
        )
