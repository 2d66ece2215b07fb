"""Removes invalid parts from a document so that the rest can be checked, and keeps the data paths right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from rackready.design.origin import Loc
from rackready.model.site import Site

IndexMap = dict[Loc, list[int]]
"""For each list (by its path with original indices): the original index of every remaining item."""

_TAGS = frozenset({"slurm", "kubernetes", "file", "plugin", "several"})
"""Kinds of a handover, which pydantic adds after the key ``handover``; it adds ``file`` after a receiver of alerts."""


def _clean(loc: Sequence[str | int], document: Any) -> Loc:  # noqa: ANN401 - a YAML document
    """Drop steps that pydantic adds to a location but the document does not have (union tags)."""
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
    """Return the path in the file for a path in the pruned document."""
    out: list[str | int] = []
    for step in loc:
        if isinstance(step, int) and tuple(out) in index_map:
            out.append(index_map[tuple(out)][step])
        else:
            out.append(step)
    return tuple(out)


def explicit(loc: Sequence[str | int], index_map: IndexMap) -> Loc:
    """Return the place in the explicit document of a path that pydantic reports for the pruned one."""
    found = original(loc, index_map)
    before = ("", "", *found)
    return tuple(
        step
        for at, step in enumerate(found)
        if not (before[at + 1] == "handover" and step in _TAGS) and not (before[at] == "webhooks" and step == "file")
    )


STAND_INS: dict[str, Any] = {
    "schema": "rackready/site/v1",
    "name": "stand-in",
    "access": {"private_key": "/stand-in"},
    "software": {"set": "stand-in", "mirror": {"url": "https://stand-in.invalid", "suite": "/", "key": "/stand-in"}},
    "fabric": {"kind": "roce"},
    "racks": [{"name": "stand-in"}],
    "gates": {"set": "stand-in"},
    "handover": {"kind": "file", "path": "/stand-in"},
    "campaign": {},
}
"""Replacement for an invalid section while the rest is checked.

Problems of a stand-in, or of differences from it, are not reported.
"""

SPARED = frozenset({"facility", "networks", "topology", "cable_stock"})
"""Optional sections: an invalid one is removed whole."""

NUMBERS = frozenset({"index", "slot", "su", "su_slot"})
"""Keys with a derived default: an item without one of them would be another item."""


@dataclass(slots=True)
class Pruned:
    """Parts removed so far."""

    index_map: IndexMap = field(default_factory=dict)
    keys: set[Loc] = field(default_factory=set)
    """Optional keys, by their original paths: the item around each is still there."""
    sections: set[str] = field(default_factory=set)
    """Sections replaced by a stand-in."""

    def doubtful(self, loc: Loc, reads: Iterable[Loc] = ()) -> bool:
        """Return whether a problem may only follow from a removed part.

        ``loc``: its original place; ``reads``: original places of other keys that it depends on. A removed ``kind``
        decides what else its part must have, so nothing else in that part is reported.
        """
        if any(key[-1] == "kind" and loc[: len(key) - 1] == key[:-1] for key in self.keys):
            return True
        return any(
            (place[:1] and place[0] in self.sections) or any(place[: len(key)] == key for key in self.keys)
            for place in (loc, *reads)
        )


def _item(clean: Loc, positions: Sequence[int]) -> Loc:
    """Return the list item to remove: the innermost one, but a part of the handover as a whole."""
    return clean[: positions[0 if clean[:2] == ("handover", "parts") else -1] + 1]


_OF_A_SECTION = 2
"""Steps to a key of a section."""


def prune(document: dict[str, Any], locs: list[Any], kinds: list[str], so_far: Pruned) -> dict[str, Any] | None:
    """Return the document without the invalid parts, recorded in ``so_far``; None if one of them is indispensable.

    An unknown or optional key is removed; for anything else the nearest list item around it, else the section (a
    stand-in takes its place), else the key itself (its default takes over).
    """
    out = dict(document)
    doomed: set[Loc] = set()
    for loc, kind in zip(locs, kinds, strict=True):
        clean = _clean(loc, document)
        positions = [place for place, step in enumerate(clean) if isinstance(step, int)]
        absent = _may_be_absent(clean)
        if kind == "extra_forbidden":
            doomed.add(clean)
        elif absent and (not positions or len(absent) > positions[-1] + 1):
            doomed.add(absent)
            so_far.keys.add(original(absent, so_far.index_map))
        elif positions and clean[:2] != ("handover", "join"):
            doomed.add(_item(clean, positions))
        elif clean and clean[0] in SPARED:
            doomed.add(clean[:1])
        elif kind != "missing" and len(clean) > 1 and clean[0] != "handover":
            doomed.add(clean)
            so_far.keys.add(clean)
        elif clean and clean[0] in STAND_INS:
            _stand_in(out, clean, so_far)
        else:
            return None
    new_map = dict(so_far.index_map)
    for loc in sorted(
        doomed,
        key=lambda item: tuple(
            (isinstance(step, int), step if isinstance(step, int) else 0, str(step)) for step in item
        ),
        reverse=True,
    ):
        _remove(out, loc, new_map)
    so_far.index_map = new_map
    return out


def _stand_in(out: dict[str, Any], loc: Loc, so_far: Pruned) -> None:
    """Put a stand-in in place of a section, or of a missing key in it."""
    section = str(loc[0])
    stand, own = deepcopy(STAND_INS[section]), out.get(section)
    if len(loc) == _OF_A_SECTION and isinstance(own, dict) and loc[1] in stand:
        out[section] = {**own, loc[1]: stand[loc[1]]}
        so_far.keys.add(loc)
    else:
        out[section] = stand
        so_far.sections.add(section)


def _may_be_absent(loc: Loc) -> Loc:
    """Return the longest prefix of a path that is an optional key (its default is None); empty if there is none."""
    found: Loc = ()
    kind: Any = Site
    for place, step in enumerate(loc):
        if isinstance(step, int):
            kind = next(iter(get_args(kind)), None)
            continue
        fields = {info.alias or name: info for name, info in getattr(kind, "model_fields", {}).items()}
        info = fields.get(step)
        if info is None:
            return found
        if info.default is None and step not in NUMBERS:
            found = loc[: place + 1]
        kind = _plain(info.annotation)
    return found


def _plain(annotation: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type of a field without its None and its annotations."""
    kinds = (
        [kind for kind in get_args(annotation) if kind is not NoneType]
        if get_origin(annotation) in {Union, UnionType}
        else [annotation]
    )
    return get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]


def _remove(document: dict[str, Any], loc: Loc, index_map: IndexMap) -> None:
    """Remove one part from a document that shares data with the original: copy only what lies on the path."""
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
    if isinstance(last, int) and isinstance(here, list):  # not a mapping's key that is a number
        parent = original(loc[:-1], index_map)
        left = list(index_map.get(parent, range(length)))
        del left[last]
        index_map[parent] = left
