"""What several checks share: references that lead nowhere, and names or values that are given twice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from rackready.design.found import Found
from rackready.design.names import listed
from rackready.model.base import expand_names

Loc = tuple[str | int, ...]
Gone = Callable[[str], bool]
"""Says of a name whether it may be that of something that was taken out before the check."""


def _never(_name: str) -> bool:
    return False


def unknown(wanted: str | None, known: Collection[str], loc: Loc, noun: str, gone: Gone = _never) -> list[Found]:
    """Return what to say of a name that must be one of those known (in the order in which they are listed); nothing for None, or for one that is gone."""
    if wanted is None or wanted in known or gone(wanted):
        return []
    return [Found(loc, f"no {noun} is called {wanted} - Expected: one of {listed(known)}.", "Correct the name.")]


def members(
    texts: Sequence[str], known: Collection[str], loc: Loc, noun: str, gone: Gone = _never
) -> tuple[list[str], list[Found]]:
    """Return the names that host lists stand for, those that exist, and what to say of the others."""
    names: list[str] = []
    out: list[Found] = []
    for place, text in enumerate(texts):
        wanted = expand_names(text)
        names += [name for name in wanted if name in known]
        missing = [name for name in wanted if name not in known and not gone(name)]
        if missing:
            what = f"{noun} is" if len(missing) == 1 else f"{noun}s are"
            out.append(Found((*loc, place), f"no {what} called {listed(missing)}.", "Correct the name or the range."))
    return names, out


def twice(values: Iterable[tuple[object, Loc, str]], noun: str) -> list[Found]:
    """Return what to say of values (value, place, owner) that were given before; None is no value."""
    first: dict[object, str] = {}
    out = []
    for value, loc, owner in values:
        if value is None:
            continue
        before = first.setdefault(value, owner)
        if before != owner:
            out.append(Found(loc, f"{noun} {value} is also that of {before}.", f"Give {owner} its own."))
    return out


def names_twice(names: Iterable[str], section: str, noun: str) -> list[Found]:
    """Return what to say of names of one list that are given twice."""
    seen: set[str] = set()
    out = []
    for place, name in enumerate(names):
        if name in seen:
            out.append(Found((section, place, "name"), f"{noun} {name} is given twice.", "Give each its own name."))
        seen.add(name)
    return out
