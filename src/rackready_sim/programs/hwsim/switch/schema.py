"""Settings that NVUE accepts, with value checks; ``grammar`` has the tree.

A setting is a tuple of words, as typed after ``nv set``. A leaf with one value replaces the old value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from . import grammar
from .grammar import Value

Setting = tuple[str, ...]
Tree = dict[str, Any]

_INTERFACE = re.compile(r"^(swp\d+(s\d+)?|eth0|lo|vlan\d+|bond\w+|mgmt)$")
_NUMBERED = re.compile(r"^([a-z]+(?:\d+s)?)(\d+)$")
"""A name that NVUE puts into ranges: swp1, vlan901, and sub-ports, of which only the last number counts (swp1s0-1)."""
_LISTED = re.compile(r"^((?:[a-z]+(?:\d+s)?)?)(\d+)(?:-([a-z]*)(\d+))?$")


class SchemaError(Exception):
    """A word that NVUE does not know, or a value that it rejects; the text is NVUE's."""


def check(words: Setting, *, partial: bool = False) -> None:
    """Refuse words that are not in the tree. ``partial`` accepts any inner node (for ``nv unset`` and ``nv show``)."""
    node: Any = grammar.tree()
    for at, word in enumerate(words):
        if isinstance(node, Value):
            if at != len(words) - 1 or not node.check(word):
                raise SchemaError(
                    f"Error: '{word}' is not a valid value for '{' '.join(words[:at])}': {node.expects} is expected."
                )
            return
        if word in node:
            node = node[word]
        elif "*" in node:
            _check_name(words, at)
            node = node["*"]
        else:
            known = ", ".join(f"'{name}'" for name in sorted(node))
            raise SchemaError(
                f"Error: Invalid Command: '{word}' is not one of [{known}]"
                if known
                else f"Error: Invalid Command: unexpected '{word}'"
            )
    if isinstance(node, Value) and not partial:
        raise SchemaError(f"Error: Incomplete Command: '{' '.join(words)}' needs {node.expects}")


def _check_name(words: Setting, at: int) -> None:
    if at == 1 and words[0] == "interface" and not _INTERFACE.match(words[1]):
        raise SchemaError(f"Error: '{words[1]}' is not a valid interface name")
    if words[at - 1] == "vlan" and not grammar.VLAN.check(words[at]):
        raise SchemaError(f"Error: '{words[at]}' is not a valid VLAN: {grammar.VLAN.expects} is expected.")
    if expects := grammar.name_flaw(words, at):
        raise SchemaError(f"Error: '{words[at]}' is not valid for '{' '.join(words[:at])}': {expects} is expected.")


def single_valued(words: Setting) -> bool:
    """Return whether the last word is the value of a leaf."""
    node: Any = grammar.tree()
    for word in words[:-1]:
        node = node.get(word, node.get("*"))
    return isinstance(node, Value)


def expand(words: Setting) -> list[Setting]:
    """Return the single settings of a line with a list or range: interfaces, VLANs, traffic classes, neighbours."""
    found: list[Setting] = [()]
    for at, word in enumerate(words):
        listed = (at == 1 and words[0] == "interface") or (at > 0 and words[at - 1] in {"vlan", "traffic-class"})
        listed = listed or (at == len(_NEIGHBOUR) and _is_neighbour(words))
        names = _names(word) if listed else [word]
        found = [(*head, name) for head in found for name in names]
    return found


def _names(text: str) -> list[str]:
    names: list[str] = []
    stem = ""
    for part in text.split(","):
        match = _LISTED.match(part)
        if match is None:
            names.append(part)
            continue
        stem = match[1] or stem
        last = int(match[4] or match[2])
        names += [f"{stem}{number}" for number in range(int(match[2]), last + 1)]
    return names


_NEIGHBOUR = ("vrf", "*", "router", "bgp", "neighbor")


def _is_neighbour(words: Setting) -> bool:
    """Whether the word after ``vrf NAME router bgp neighbor`` names ports. Addresses are never joined."""
    at = len(_NEIGHBOUR)
    return len(words) > at and (words[0], "*", *words[2:at]) == _NEIGHBOUR and words[at].startswith("swp")


def put(settings: Iterable[Setting], words: Setting) -> set[Setting]:
    """Return the settings with one more; a single-valued leaf replaces its value."""
    kept = set(settings)
    if single_valued(words):
        kept = {item for item in kept if item[:-1] != words[:-1] or len(item) != len(words)}
    return kept | {words}


def drop(settings: Iterable[Setting], words: Setting) -> set[Setting]:
    """Return the settings without a branch."""
    return {item for item in settings if item[: len(words)] != words}


def compress(settings: Iterable[Setting]) -> list[str]:
    """Return ``nv set`` lines; like NVUE, put interfaces, VLANs and neighbours with equal settings on one line.

    A VLAN with a VNI has no line of its own: ``vlan 20 vni 20`` alone (a capture of 5.15).
    """
    groups: dict[tuple[Setting, Setting], list[str]] = {}
    every = sorted(settings)
    mapped = {words[:_VNI] for words in every if words[:1] == ("bridge",) and words[_VNI : _VNI + 1] == ("vni",)}
    for words in every:
        if words in mapped:
            continue
        place = _place(words)
        key = (words, ()) if place is None else (words[:place], words[place + 1 :])
        groups.setdefault(key, []).append("" if place is None else words[place])
    lines = [
        f"nv set {' '.join(_quote(word) for word in (*head, *(_joined(names)), *tail))}"
        for (head, tail), names in groups.items()
    ]
    return sorted(lines)


_VNI = 5
"""Position of `vni` in ``bridge domain D vlan N vni M``."""


def _place(words: Setting) -> int | None:
    """Return where a setting has a name that NVUE joins with others."""
    if words[0] == "interface":
        return 1
    if _is_neighbour(words):
        return len(_NEIGHBOUR)
    return len(words) - 1 if len(words) > 1 and words[-2] == "vlan" else None


def _joined(names: list[str]) -> list[str]:
    """Return names as one list. The stem stands at its first run: ``swp1-2,32`` (captures of 5.15)."""
    if names == [""]:
        return []
    numbers: dict[str, list[int]] = {}
    for name in names:
        match = _NUMBERED.match(name) or re.match(r"^()(\d+)$", name)
        if match is None:
            return [",".join(sorted(names))]
        numbers.setdefault(match[1], []).append(int(match[2]))
    return [",".join(f"{stem}{','.join(_runs(sorted(found)))}" for stem, found in sorted(numbers.items()))]


def _runs(numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'" if re.search(r"[^\w.,:/=+-]", word) else word


def tree(settings: Iterable[Setting]) -> Tree:
    """Return settings as a nested document."""
    root: Tree = {}
    for words in sorted(settings):
        leaf = single_valued(words)
        node = root
        for word in words[: -1 if not leaf else -2]:
            node = node.setdefault(word, {})
        if leaf:
            node[words[-2]] = int(words[-1]) if words[-1].isdigit() else words[-1]
        else:
            node.setdefault(words[-1], {})
    return root


def settings_of(document: Tree, head: Setting = ()) -> set[Setting]:
    """Return the settings of a nested document."""
    found: set[Setting] = set()
    for key, value in document.items():
        words = (*head, str(key))
        if isinstance(value, dict):
            found |= settings_of(value, words) or {words}
        else:
            found.add((*words, str(value)))
    return found
