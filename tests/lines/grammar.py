"""The configuration of a simulated switch: a tree of lines, and rules for what may be typed in which section."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]
"""Line -> the lines below it."""


class RefusedError(Exception):
    """The switch refuses a line; the text is what it prints."""


@dataclass(frozen=True)
class Rule:
    """One line that a section takes.

    ``key``: the part of it that names the setting: another line with the same key replaces it. ``opens``: the section
    that it enters. ``hidden``: whether the line is the default, which a running configuration does not show.
    ``negative``: whether ``no LINE`` is a setting of its own, and shown. ``check`` raises RefusedError.
    """

    pattern: str
    key: str = ""
    opens: str = ""
    hidden: Callable[[str], bool] = lambda _line: False
    negative: bool = False
    check: Callable[[str], None] = lambda _line: None

    def key_of(self, line: str) -> str | None:
        """Return the key of a line, or None if the rule is not about it."""
        match = re.match(self.key or rf"{self.pattern}$", line)
        return match[0] if match else None


Grammar = Mapping[str, Sequence[Rule]]
"""Section -> its rules; "" is the top."""


@dataclass
class Config:
    """A configuration under a grammar, with the place at which lines are typed."""

    grammar: Grammar
    tree: Tree = field(default_factory=dict)
    path: list[tuple[str, str]] = field(default_factory=list)
    """Headers entered, with their sections."""

    def copy(self) -> Config:
        """Return a copy, at the top."""
        return Config(self.grammar, deepcopy(self.tree))

    def node(self, path: Sequence[str] | None = None) -> Tree:
        """Return the lines at a place."""
        here = self.tree
        for header in [header for header, _ in self.path] if path is None else path:
            here = here.setdefault(header, {})
        return here

    def type(self, line: str) -> None:
        """Take a line. A line of the top is also taken below it. Raises RefusedError."""
        while True:
            section = self.path[-1][1] if self.path else ""
            if self._typed(section, line):
                return
            if not self.path:
                raise RefusedError("% Invalid input")
            self.path.pop()

    def _typed(self, section: str, line: str) -> bool:
        verb, _, rest = line.partition(" ")
        for rule in self.grammar[section]:
            if re.fullmatch(rule.pattern, line):
                rule.check(line)
                self._set(rule, line)
                return True
            if verb in {"no", "default"} and (key := rule.key_of(rest)) is not None:
                self._remove(rule, key)
                if verb == "no" and rule.negative:
                    self.node()[line] = {}
                return True
        return False

    def _set(self, rule: Rule, line: str) -> None:
        here = self.node()
        if rule.opens:
            here.setdefault(line, {})
            self.path.append((line, rule.opens))
            return
        key = rule.key_of(line)
        place = next((old for old in here if rule.key_of(old.removeprefix("no ")) == key), None)
        if rule.hidden(line):
            self._remove(rule, str(key))
        elif place is None:
            here[line] = {}
        elif place != line:
            lines = [(line, {}) if old == place else (old, below) for old, below in here.items()]
            here.clear()
            here.update(lines)

    def _remove(self, rule: Rule, key: str) -> None:
        here = self.node()
        for old in [old for old in here if rule.key_of(old.removeprefix("no ")) == key]:
            del here[old]

    def lines(self, indent: int) -> Iterator[str]:
        """Give the lines of the tree, indented."""
        yield from _lines(self.tree, indent, 0)


def _lines(tree: Tree, indent: int, depth: int) -> Iterator[str]:
    for line, below in tree.items():
        yield " " * indent * depth + line
        yield from _lines(below, indent, depth + 1)
