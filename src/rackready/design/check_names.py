"""Shared checks: references to unknown names, and names or values that are given twice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from rackready.design.names import listed
from rackready.design.site_flaws import Flaw
from rackready.model.base import expand_names
from rackready.model.site import Site
from rackready.profiles import loader

Loc = tuple[str | int, ...]
Gone = Callable[[str], bool]
"""Tells whether a name may belong to a part that was removed before the check."""


def _never(_name: str) -> bool:
    return False


def known_platforms(site: Site) -> list[str]:
    """Return the ids of the server profiles that the site's nodes use, in their order; unknown ones are left out."""
    return sorted({node.platform for node in site.nodes()} & set(loader.known("platform")))


def unknown(wanted: str | None, known: Collection[str], loc: Loc, noun: str, gone: Gone = _never) -> list[Flaw]:
    """Return a problem if a name is not among the known ones, which are listed in their order.

    None, and names that may have been removed, are no problem.
    """
    if wanted is None or wanted in known or gone(wanted):
        return []
    return [Flaw.of(loc, f"no {noun} is called {wanted}", "Correct the name.", expected=f"one of {listed(known)}")]


def members(
    texts: Sequence[str], known: Collection[str], loc: Loc, noun: str, gone: Gone = _never
) -> tuple[list[str], list[Flaw]]:
    """Return the names that host lists expand to: those that exist, and problems for the others."""
    names: list[str] = []
    out: list[Flaw] = []
    for place, text in enumerate(texts):
        wanted = expand_names(text)
        names += [name for name in wanted if name in known]
        missing = [name for name in wanted if name not in known and not gone(name)]
        if missing:
            what = f"{noun} is" if len(missing) == 1 else f"{noun}s are"
            out.append(Flaw((*loc, place), f"no {what} called {listed(missing)}.", "Correct the name or the range."))
    return names, out


def twice(values: Iterable[tuple[object, Loc, str]], noun: str) -> list[Flaw]:
    """Return problems for values (value, place, owner) that occur twice; None is ignored."""
    first: dict[object, str] = {}
    out = []
    for value, loc, owner in values:
        if value is None:
            continue
        before = first.setdefault(value, owner)
        if before != owner:
            out.append(Flaw(loc, f"{noun} {value} is already used by {before}.", f"Give {owner} its own."))
    return out


def names_twice(names: Iterable[str], section: str, noun: str) -> list[Flaw]:
    """Return problems for names that one list gives twice."""
    seen: set[str] = set()
    out = []
    for place, name in enumerate(names):
        if name in seen:
            out.append(Flaw((section, place, "name"), f"{noun} {name} is given twice.", "Give each its own name."))
        seen.add(name)
    return out
