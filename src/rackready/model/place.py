"""Places of findings: the node (or switch, or rack device) and its part as data, and as people read them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Self

_NODE = re.compile(r"(?P<node>[^ /]*)[ /]?(?P<rest>.*)", re.DOTALL)
_BESIDE = re.compile(r" ?(?:[(\[]|-> |and )")
"""Where the part ends and further words about it begin: 'mlx5_0 (rail 3)', 'mlx5_0 -> node02 mlx5_1', '[...]'."""


_BEFORE = frozenset(" /")
"""Between a node and its part."""


class Place(str):
    """A place in words, 'node03 mlx5_0 (rail 3)', that keeps its node and part. ``nodes``: further nodes.

    It is a string, so that whatever takes a place takes both this and a plain name of a node.
    """

    __slots__ = ("node", "nodes", "part")

    node: str
    part: str
    nodes: tuple[str, ...]

    def __new__(cls, node: str, part: str = "", beside: str = "", *, nodes: Collection[str] = ()) -> Self:
        """Return the place of a part of a node, or of the node. ``beside``: further words for readers."""
        place = super().__new__(cls, " ".join(word for word in (node, part, beside) if word))
        place.node, place.part, place.nodes = node, part, tuple(nodes)
        return place

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the text with the data: workers of the tests and of campaigns exchange places."""
        return _again, (str(self), self.node, self.part, self.nodes)

    @property
    def unit(self) -> str:
        """Return it as coverage and metrics name parts: 'node03/gpu2'."""
        return unit_of(self.node, self.part)

    @property
    def inside(self) -> str:
        """Return it without the node, for readers: 'gpu2', 'mlx5_0 (rail 3)'; empty for the whole node."""
        return self.removeprefix(self.node).lstrip(" /")

    @classmethod
    def read(cls, text: str) -> Place:
        """Return the place that a text names: '<node>', '<node> <part>' or '<node>/<part>', then further words.

        This is the only place that reads one, for what gives a text alone: a node's plain name, gates of other
        packages, and findings that were stored before they had a typed place.
        """
        if isinstance(text, Place):
            return text
        found = _NODE.fullmatch(text)
        node, rest = (found["node"], found["rest"]) if found else (text, "")
        beside = _BESIDE.search(rest)
        return _again(text, node, rest[: beside.start()] if beside else rest, ())


def stored(finding: Mapping[str, Any]) -> Place:
    """Return the place of a finding in a document; one of before there was ``node`` gives words alone."""
    where = str(finding["where"])
    if "node" not in finding:
        return Place.read(where)
    return _again(where, str(finding["node"]), str(finding["part"]), tuple(finding.get("nodes", ())))


def unit_of(node: str, part: str) -> str:
    """Return a node's part as coverage and metrics name it: 'node03/gpu2', and the node for an empty part."""
    return "/".join([node, *part.split()])


def part_of(target: str, node: str) -> str | None:
    """Return the part of a node that a metric's target or a part of coverage names, "" for the node itself.

    None when it is not the node's own: it is about another node, or about a run between several.
    """
    if target == node:
        return ""
    beside = target[len(node) : len(node) + 1]
    return target[len(node) + 1 :] if target.startswith(node) and beside in _BEFORE and "->" not in target else None


def _again(text: str, node: str, part: str, nodes: tuple[str, ...]) -> Place:
    place = str.__new__(Place, text)
    place.node, place.part, place.nodes = node, part, nodes
    return place
