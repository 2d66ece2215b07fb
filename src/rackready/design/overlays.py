"""Overlays: files with differences from the site file, merged over it one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.design.expand_values import is_secret
from rackready.design.origin import Loc, path_text
from rackready.design.shape_problems import kind_of_value, no_mapping
from rackready.design.truth_values import truth_problems
from rackready.design.yaml import read_judged
from rackready.model.problems import Problem, SiteInvalidError

_ABSENT = object()


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
    return Overlay(str(path.relative_to(base) if path.is_relative_to(base) else path), document)


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
    if isinstance(below, dict) and isinstance(above, dict) and not is_secret(above):
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


def place_in_overlay(overlays: Sequence[Overlay], merged: Any, below: Any, place: Loc) -> str:  # noqa: ANN401
    """Return file and path of a value in the last overlay that sets it, as ``FILE: PATH``; "" if none does.

    ``merged``: the document over which they are merged, in which the place is; ``below``: the document before. A
    mapping that both have is set by none. A missing key belongs to the overlay where its whole item is from there.
    """
    if not place:
        return ""
    beneath, _ = _at(below, merged, place)
    for overlay in reversed(overlays):
        value, there = _at(overlay.document, merged, place)
        if value is not _ABSENT and (beneath is _ABSENT or not isinstance(value, dict)):
            return f"{overlay.name}: {path_text(there)}"
    item = place[:-1]
    if _at(below, merged, item)[0] is not _ABSENT:
        return ""
    found = place_in_overlay(overlays, merged, below, item)
    last = place[-1]
    return f"{found}[{last}]" if found and isinstance(last, int) else f"{found}.{last}" if found else ""


def _at(document: Any, merged: Any, place: Loc) -> tuple[Any, Loc]:  # noqa: ANN401 - YAML documents
    """Return what a document, one of those merged, has at a place of the merged one, and its own place for it.

    The value is _ABSENT if it has nothing there.
    """
    own: Loc = ()
    for step in place:
        if isinstance(step, int):
            if not isinstance(document, list) or not isinstance(merged, list) or step >= len(merged):
                return _ABSENT, own
            index = step
            if _named(document) and _named(merged):
                names = [item["name"] for item in document]
                index = names.index(merged[step]["name"]) if merged[step]["name"] in names else len(names)
            if index >= len(document):
                return _ABSENT, own
            document, merged, own = document[index], merged[step], (*own, index)
        elif isinstance(document, dict) and isinstance(merged, dict) and step in document:
            document, merged, own = document[step], merged.get(step), (*own, step)
        else:
            return _ABSENT, own
    return document, own


def _named(value: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value)
    )
