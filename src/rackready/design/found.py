"""A contradiction that a check found, before its location is turned into the path that people read; and what was taken out before the check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Found:
    """Where (path into the checked document), what, and what to do."""

    loc: tuple[str | int, ...]
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Items that were taken out since their shape is wrong, by the key of their list: nothing is said about what may stand among them."""

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    nameless: frozenset[str] = frozenset()
    """Lists of which an item without a readable name was taken out: any name may be its own."""
    sections: frozenset[str] = frozenset()
    """Sections that were taken out whole: nothing is said of what they would have made."""

    def of(self, family: str) -> Callable[[str], bool]:
        """Return what says of a name whether it may be that of an item of this list, or of anything in this section, that was taken out."""
        if family in self.nameless or family in self.sections:
            return lambda _name: True
        return self.names.get(family, frozenset[str]()).__contains__

    def any(self, *families: str) -> bool:
        """Say whether something was taken out of one of these lists, or one of these sections was."""
        return any(family in self.nameless or family in self.sections or self.names.get(family) for family in families)


def lost_between(before: Any, after: Any, skipped: frozenset[str]) -> Lost:  # noqa: ANN401 - YAML documents
    """Return what a document had before it was pruned and has no more. ``skipped``: lists of which an item could not even be written out."""
    had, left = _lists(before, {}), _lists(after, {})
    names: dict[str, frozenset[str]] = {}
    nameless = set(skipped)
    for family, items in had.items():
        gone = items - left.get(family, Counter())
        names[family] = frozenset(name for name in gone if name is not None)
        nameless |= {family} if None in gone else set()
    return Lost(
        names,
        frozenset(nameless),
        frozenset(before.keys() - after.keys())
        if isinstance(before, dict) and isinstance(after, dict)
        else frozenset(),
    )


def _lists(value: Any, into: dict[str, Counter[str | None]], key: str = "") -> dict[str, Counter[str | None]]:  # noqa: ANN401 - a YAML document
    """Count the names of all lists' items by the key of the list; None: an item that has none."""
    for name, item in _inside(value, key):
        if isinstance(value, list):
            own = item.get("name") if isinstance(item, dict) else item
            into.setdefault(key, Counter())[own if isinstance(own, str) else None] += 1
        _lists(item, into, name)
    return into


def _inside(value: Any, key: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a YAML document
    if isinstance(value, dict):
        yield from ((str(name), item) for name, item in value.items())
    elif isinstance(value, list):
        yield from ((key, item) for item in value)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked, and what was taken out of it before."""

    site: Site
    lost: Lost = field(default_factory=Lost)
