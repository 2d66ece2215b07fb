"""A whole running configuration of Cisco NX-OS with lines set and taken away: what is not ours stays as it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rackready.drivers.switch import cli_tree as tree
from rackready.drivers.switch.cli_tree import Path

_VLANS = re.compile(r"^vlan (\d[\d,-]*)$")


@dataclass
class _Node:
    """One line as the switch printed it (None: the top), and the lines below it."""

    raw: str | None
    below: list[_Node] = field(default_factory=list)

    @property
    def line(self) -> str:
        return (self.raw or "").strip()

    def child(self, line: str) -> _Node | None:
        return next((node for node in self.below if node.line == line), None)


def edited(text: str, paths: Iterable[Path], key: Callable[[Path], Path]) -> str:
    """Return a configuration with these commands applied; ``key`` names the setting of a line.

    A line with another value of its setting is replaced in its place, a new feature follows the others, anything else
    new comes last in its section.
    """
    top = _parsed(text)
    for path in paths:
        if tree.removes(path):
            _remove(top, tree.target(path))
        else:
            _set(top, path, key)
    return "\n".join([*_lines(top), ""])


def _parsed(text: str) -> _Node:
    top = _Node(None)
    above: list[tuple[int, _Node]] = [(-1, top)]
    for raw in text.splitlines():
        depth = len(raw) - len(raw.lstrip()) if raw.strip() else 0
        while above[-1][0] >= depth:
            above.pop()
        node = _Node(raw)
        above[-1][1].below.append(node)
        if raw.strip():
            above.append((depth, node))
        else:
            above = above[:1]
    return top


def _lines(node: _Node) -> list[str]:
    own = [] if node.raw is None else [node.raw]
    return own + [line for one in node.below for line in _lines(one)]


def _set(top: _Node, path: Path, key: Callable[[Path], Path]) -> None:
    here = top
    for depth, line in enumerate(path):
        there = here.child(line)
        if there is None:
            there = _Node("  " * depth + line)
            setting = key(path[: depth + 1])
            old = next((node for node in here.below if key((*path[:depth], node.line)) == setting), None)
            place = here.below.index(old) if old is not None else _end(here, line)
            here.below[place : place + (old is not None)] = [there]
        here = there


def _end(here: _Node, line: str) -> int:
    if here.raw is not None or not line.startswith("feature "):
        return len(here.below)
    heads = [at for at, node in enumerate(here.below) if node.line.startswith(("feature ", "version ", "hostname "))]
    return heads[-1] + 1 if heads else len(here.below)


def _remove(top: _Node, path: Path) -> None:
    here: _Node | None = top
    for line in path[:-1]:
        here = here.child(line) if here is not None else None
    if here is None:
        return
    here.below = [node for node in here.below if node.line != path[-1]]
    if len(path) == 1 and (match := re.fullmatch(r"vlan (\d+)", path[0])):
        for node in here.below:
            _without(node, int(match[1]))


def _without(node: _Node, vlan: int) -> None:
    """Take a VLAN out of a header that lists several."""
    if not (match := _VLANS.match(node.line)) or not set(match[1]) & {",", "-"}:
        return
    spans = [part.partition("-") for part in match[1].split(",")]
    left = [one for low, _, high in spans for one in range(int(low), int(high or low) + 1) if one != vlan]
    node.raw = f"vlan {','.join(str(one) for one in left)}"
