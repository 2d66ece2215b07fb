"""What is wrong in a site file, before its location becomes a path, and parts removed before the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rackready.model.problems import Message
from rackready.model.site import Site

Loc = tuple[str | int, ...]
"""Path in a document."""
ADDRESS = ("address",)
"""``about`` of problems with single addresses: a plan finds some of them again."""
RAIL_ADDRESS = ("rail",)
"""``about`` of problems with subnets of rails, and with the addresses in them that a plan finds twice."""
NUMBER = ("number",)
"""``about`` of racks with the number of another: their addresses and places in the fabric are equal, too."""
PLACE = ("place",)
"""``about`` of racks without a place on the floor."""
SLOT = ("slot",)
"""``about`` of nodes whose place in the fabric is taken."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A mistake in a site file: its location (path in the checked document), message and hint."""

    loc: Loc
    message: str
    hint: str
    reads: tuple[Loc, ...] = ()
    """Paths of other keys that the problem depends on. It is not reported if one of them was removed."""
    about: tuple[str, ...] = ()
    """See ``Problem.about``."""
    kind: str = ""
    """Tells findings of one check at one place apart, where the keys that they read are equal."""
    rule: str = ""
    """The check that made it."""
    profile: tuple[str, str] | None = None
    """See ``Problem.profile``."""
    values: Message | None = None
    """See ``Problem.values``."""

    @classmethod
    def of(cls, loc: Loc, what: object, hint: str, *, expected: object, actual: object = "", **others: Any) -> Self:
        """Return a mistake with an expected value, and an actual one unless it is missing."""
        values = Message(what=what, expected=expected, actual=actual)
        return cls(loc, str(values), hint, values=values, **others)

    @property
    def sort(self) -> str:
        """Return check, kind, place and keys without numbers: equal in findings that differ only in their items."""
        paths = (".".join("#" if isinstance(step, int) else step for step in loc) for loc in (self.loc, *self.reads))
        return " ".join((self.rule, self.kind, *self.about[:1], *paths))


@dataclass(frozen=True, slots=True)
class Lost:
    """Items that were removed because of their shape, by the key of their list.

    Checks do not report items that may be among them.
    """

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    nameless: frozenset[str] = frozenset()
    """Lists from which an item without a readable name was removed: any name may be its own."""
    sections: frozenset[str] = frozenset()
    """Sections that were removed whole: items that they would have made are not reported as missing."""

    def of(self, family: str) -> Callable[[str], bool]:
        """Return a function that tells whether a name may belong to a removed item of this list or section."""
        if family in self.nameless or family in self.sections:
            return lambda _name: True
        return self.names.get(family, frozenset[str]()).__contains__

    def any(self, *families: str) -> bool:
        """Return whether one of these lists lost an item, or one of these sections was removed."""
        return any(family in self.nameless or family in self.sections or self.names.get(family) for family in families)


def lost_between(before: Any, after: Any, skipped: frozenset[str]) -> Lost:  # noqa: ANN401 - YAML documents
    """Return the parts of a document that pruning removed.

    ``skipped``: lists with an item that could not be expanded.
    """
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
    """Count the names of the items of all lists by the key of the list; None counts items without a name."""
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
    """The site under check, and the parts removed from it before."""

    site: Site
    lost: Lost = field(default_factory=Lost)
