"""Takes offending parts out of a document so that the rest can still be checked, and keeps the data paths true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rackready.design.origin import Loc, path_text

IndexMap = dict[Loc, list[int]]
"""For each list (by its path with original indices): the original index of every item that is left."""

_TAGS = frozenset({"slurm", "file"})


def _clean(loc: Sequence[str | int], document: Any) -> Loc:  # noqa: ANN401 - a YAML document
    """Drop what pydantic puts into a location without it being in the document (union tags)."""
    out: list[str | int] = []
    here = document
    for step in loc:
        if isinstance(step, str) and step in _TAGS and isinstance(here, dict) and here.get("kind") == step:
            continue
        out.append(step)
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            here = None
    return tuple(out)


def original(loc: Sequence[str | int], index_map: IndexMap) -> Loc:
    """Translate a path into the pruned document to the path in the file that the person wrote."""
    out: list[str | int] = []
    for step in loc:
        if isinstance(step, int) and tuple(out) in index_map:
            out.append(index_map[tuple(out)][step])
        else:
            out.append(step)
    return tuple(out)


def explicit(loc: Sequence[str | int], index_map: IndexMap) -> Loc:
    """Return the place in the explicit document of a path that pydantic gave for the pruned one."""
    return tuple(step for step in original(loc, index_map) if step not in _TAGS)


def data_path(loc: Sequence[str | int], index_map: IndexMap) -> str:
    """Return a path as people read it: ``racks[2].nodes[7].bmc.address``."""
    return path_text(explicit(loc, index_map))


STAND_INS: dict[str, dict[str, Any]] = {
    "access": {"private_key": "/stand-in"},
    "handover": {"kind": "file", "path": "/stand-in"},
    "campaign": {},
}
"""What a section that cannot be used is replaced with while the rest is checked. Nothing is said about a stand-in."""

SPARED = frozenset({"facility", "networks", "topology", "cable_stock"})
"""Sections that may be left out: one that cannot be used is taken out whole."""


def prune(document: dict[str, Any], locs: list[Any], kinds: list[str], index_map: IndexMap) -> tuple[dict[str, Any], IndexMap] | None:
    """Return the document without the offending parts and the new index map; None when what offends cannot be spared.

    An unknown key is removed; of anything else the nearest list item around it, else the section (a stand-in takes its
    place), else the key itself (its default takes over).
    """
    out = dict(document)
    doomed: set[Loc] = set()
    for loc, kind in zip(locs, kinds, strict=True):
        clean = _clean(loc, document)
        positions = [place for place, step in enumerate(clean) if isinstance(step, int)]
        if kind == "extra_forbidden":
            doomed.add(clean)
        elif positions:
            doomed.add(clean[: positions[-1] + 1])
        elif clean and clean[0] in SPARED:
            doomed.add(clean[:1])
        elif clean and clean[0] in STAND_INS:
            out[str(clean[0])] = dict(STAND_INS[str(clean[0])])
        elif kind != "missing" and len(clean) > 1:
            doomed.add(clean)
        else:
            return None
    new_map = dict(index_map)
    for loc in sorted(doomed, key=lambda item: tuple((isinstance(step, int), step if isinstance(step, int) else 0, str(step)) for step in item), reverse=True):
        _remove(out, loc, new_map)
    return out, new_map


def _remove(document: dict[str, Any], loc: Loc, index_map: IndexMap) -> None:
    """Take one part out of a document that shares everything with the original: only what lies on the way is copied."""
    here: Any = document
    try:
        for step in loc[:-1]:
            child = here[step]
            here[step] = list(child) if isinstance(child, list) else dict(child) if isinstance(child, dict) else child
            here = here[step]
        length = len(here)
        del here[loc[-1]]
    except (KeyError, IndexError, TypeError):
        return
    last = loc[-1]
    if isinstance(last, int):
        parent = original(loc[:-1], index_map)
        left = list(index_map.get(parent, range(length)))
        del left[last]
        index_map[parent] = left
