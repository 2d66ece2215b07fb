"""Entries of an overlay about nodes that the site file does not have, such as those under a name from before."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from rackready.design.origin import Loc


@dataclass(frozen=True, slots=True)
class Stray:
    """One entry: its place in the overlay, and the names of its node and rack."""

    loc: Loc
    node: str
    rack: str


def added_by(documents: Iterable[Any]) -> frozenset[tuple[str, str]]:
    """Return rack and name of the nodes that overlays add: entries with a platform."""
    found: set[tuple[str, str]] = set()
    for document in documents:
        for rack in _items(document, "racks"):
            found |= {(rack["name"], node["name"]) for node in _items(rack, "nodes") if "platform" in node}
    return frozenset(found)


def without_strays(
    below: Any,  # noqa: ANN401 - YAML documents
    document: Any,  # noqa: ANN401
    added: Collection[tuple[str, str]] = (),
) -> tuple[Any, list[Stray]]:
    """Return an overlay without entries about nodes that the document below it lacks, and those entries.

    An entry with a platform is no stray: it adds a node. Any other could not become one, but for a node that another
    overlay adds (``added``: rack and name). Nothing is said of a rack whose nodes have no names: other checks are.
    """
    racks, given = _items(below, "racks"), _items(document, "racks")
    known = {rack["name"]: {node["name"] for node in _items(rack, "nodes")} for rack in racks}
    unclear = {rack["name"] for rack in racks if rack.get("nodes") and not _items(rack, "nodes")}
    if not racks or not given:
        return document, []
    kept, strays = [], list[Stray]()
    for r, rack in enumerate(given):
        nodes = _items(rack, "nodes")
        there = known.get(rack["name"], set()) | {name for where, name in added if where == rack["name"]}
        lost = [n for n, node in enumerate(nodes) if node["name"] not in there and "platform" not in node]
        lost = [] if rack["name"] in unclear else lost
        strays += [Stray(("racks", r, "nodes", n), nodes[n]["name"], rack["name"]) for n in lost]
        if not lost:
            kept.append(rack)
        elif rack["name"] in known or len(lost) < len(nodes) or rack.keys() > {"name", "nodes"}:
            kept.append(_with(rack, "nodes", [node for n, node in enumerate(nodes) if n not in lost]))
    if not strays:
        return document, []
    return _with(document, "racks", kept), strays


def _with(value: dict[str, Any], key: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a mapping with that list, without it if it is empty: it would then replace the list below."""
    return {name: items if name == key else item for name, item in value.items() if name != key or items}


def _items(value: Any, key: str) -> list[dict[str, Any]]:  # noqa: ANN401 - a YAML document
    """Return a list of named mappings; an empty one where it is anything else, which other checks report."""
    found = value.get(key) if isinstance(value, dict) else None
    named = isinstance(found, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in found)
    return found if isinstance(found, list) and named else []
