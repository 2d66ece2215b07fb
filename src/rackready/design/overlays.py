"""Overlays: files with differences from the site file, merged over it one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.design.expand_values import is_secret
from rackready.design.origin import Loc
from rackready.design.shape_problems import no_mapping
from rackready.design.strays import Stray, added_by, without_strays
from rackready.design.truth_values import truth_problems
from rackready.design.yaml import read_judged
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.wanted import kind_of_value, path_text
from rackready.paths import shown

_ABSENT = object()
RENAME = "Rename the entry as the node is called there, or remove it and import again."


@dataclass(frozen=True, slots=True)
class Overlay:
    """A document of differences, None for an empty file, and the name of its file."""

    name: str
    document: dict[str, Any] | None


def read_overlay(path: Path, base: Path) -> Overlay:
    """Return an overlay. ``base``: its name is the path from there.

    Raises SiteInvalidError if it cannot be merged exactly as written, so that no part of it is lost silently.
    """
    document, doubtful = read_judged(path, written_by_us=True)
    if document is not None and not isinstance(document, dict):
        step = "Write the differences from the site file, key by key."
        raise SiteInvalidError(str(path), [no_mapping("", kind_of_value(document), step)])
    problems = [*doubtful, *truth_problems(document)]
    problems += [
        Problem(where, f"{name} is given twice.", "List it once.") for where, name in _duplicate_names(document, "")
    ]
    if problems:
        raise SiteInvalidError(str(path), problems)
    return Overlay(shown(path, base), document)


def _duplicate_names(value: Any, where: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a YAML document
    """Yield (path of the list, name) of every name that several items of a list have.

    A merge by name would keep only the last of them.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _duplicate_names(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        if _named(value):
            yield from ((where, name) for name, count in Counter(item["name"] for item in value).items() if count > 1)
        for place, item in enumerate(value):
            yield from _duplicate_names(item, f"{where}[{place}]")


def merge(below: Any, above: Any) -> Any:  # noqa: ANN401 - YAML documents
    """Merge an overlay over a document. None as the whole overlay changes nothing.

    Mappings merge by key, lists of named mappings by ``name``; other values and places of secrets are replaced.
    """
    return below if above is None else _merged(below, above)


def _merged(below: Any, above: Any) -> Any:  # noqa: ANN401 - YAML documents
    if _both_mappings(below, above):
        return {
            key: _merged(below[key], above[key]) if key in below and key in above else above.get(key, below.get(key))
            for key in (*below, *(k for k in above if k not in below))
        }
    if _named(below) and _named(above):
        over = {item["name"]: item for item in above}
        known = {item["name"] for item in below}
        return [_merged(item, over[item["name"]]) if item["name"] in over else item for item in below] + [
            item for item in above if item["name"] not in known
        ]
    return above


class Layers:
    """The overlays of one site file, each with the document over which it was merged."""

    def __init__(self, overlays: Iterable[Overlay] = ()) -> None:
        self._added = added_by(overlay.document for overlay in overlays)
        self.problems: list[Problem] = []
        """Entries about nodes that are not there. They are left out, so that nothing else is said about them."""
        self._layers: list[tuple[Overlay, Any]] = []
        self._indexes: dict[int, dict[str, int]] = {}

    def merge(self, below: Any, overlay: Overlay) -> Any:  # noqa: ANN401 - YAML documents
        """Merge an overlay over a document, and remember both."""
        self._layers.append((overlay, below))
        kept, strays = without_strays(below, overlay.document, self._added)
        if strays:
            self.problems.append(_stray_problem(overlay, strays))
        return merge(below, kept)

    def place(self, place: Loc) -> str:
        """Return where the last overlay that decides a value of the merged document does so, as ``FILE: PATH``.

        "" if none does. A mapping or list that was merged belongs to none, as does the name by which an item was found.
        What replaced something belongs to its overlay, with the keys that it lacks.
        """
        for overlay, below in reversed(self._layers):
            there = self._decided(below, overlay.document, place)
            if there is not None:
                return f"{overlay.name}: {path_text(there)}"
        return ""

    def _decided(self, below: Any, above: Any, place: Loc) -> Loc | None:  # noqa: ANN401 - YAML documents
        """Return the place in an overlay of what it decides, None if it does not. Steps as ``merge`` does."""
        own: Loc = ()
        found_by_name = False
        for done, step in enumerate(place):
            if _both_mappings(below, above):
                if step not in above or (found_by_name and step == "name"):
                    return None
                below, above, found_by_name = below.get(step, _ABSENT), above[step], False
            elif isinstance(step, int) and _named(below) and _named(above):
                if step < len(below):
                    index = self._index(above).get(below[step]["name"])
                else:
                    new = [at for name, at in self._index(above).items() if name not in self._index(below)]
                    index = new[step - len(below)] if step - len(below) < len(new) else None
                if index is None:
                    return None
                below, above, found_by_name = below[step] if step < len(below) else _ABSENT, above[index], True
                step = index  # noqa: PLW2901 - the overlay's own place
            else:
                return (*own, *place[done:]) if done else None
            own = (*own, step)
        merged = _both_mappings(below, above) or (_named(below) and _named(above))
        return None if merged or not place else own

    def _index(self, items: list[dict[str, Any]]) -> dict[str, int]:
        """Return name -> index of a list that a document here holds."""
        if id(items) not in self._indexes:
            self._indexes[id(items)] = {item["name"]: at for at, item in enumerate(items)}
        return self._indexes[id(items)]


def _stray_problem(overlay: Overlay, strays: list[Stray]) -> Problem:
    first, more = strays[0], len(strays) - 1
    are = f"and {more} more are" if more else "is"
    path = path_text(first.loc)
    return Problem(
        path,
        f"node {first.node} of rack {first.rack} {are} not in site.yml.",
        RENAME,
        item=first.node,
        overlay=f"{overlay.name}: {path}",
    )


def _both_mappings(below: Any, above: Any) -> bool:  # noqa: ANN401 - YAML documents
    """Return whether two values merge by key."""
    return isinstance(below, dict) and isinstance(above, dict) and not is_secret(above)


def _named(value: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value)
    )
