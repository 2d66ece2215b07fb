"""Plain YAML values that YAML 1.1 (PyYAML, Ansible) and YAML 1.2 (yq, Go, editors) read differently."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from rackready.design.origin import Loc
from rackready.model.problems import Problem
from rackready.model.wanted import path_text

_TAG = "tag:yaml.org,2002:"
_JUDGED = frozenset({"bool", "int", "float", "str"})
"""Without dates (2027-03-01): in YAML 1.2 they are text, and a date field reads that text as the same date."""

_DECIMAL = re.compile(r"^[-+]?[0-9]+$")
_BASED = re.compile(r"^(0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
"""Numbers of the core schema of YAML 1.2.2 (10.3.2). Both versions read infinity, nan, null, true and false alike."""

_COUNT = re.compile(r"^(0|[1-9][0-9]*)$", re.ASCII)
"""A number that every version of YAML reads alike: most numbers of a site."""

_LONGEST = 40
"""Longest text checked as a number: no field takes a longer one, and Python reads no number of thousands of digits."""


def readings(document: yaml.Node | None, *, text_too: bool) -> list[Problem]:
    """Return a problem for each plain value or key with two readings and each duplicate key, with its data path.

    ``text_too``: also report values that YAML 1.1 reads as text (1e3, 08, 0o17). Files that rackready wrote with PyYAML
    hold such text without quotes.
    """
    return list(_walk(document, (), set(), text_too=text_too)) if document is not None else []


def _walk(node: yaml.Node, loc: Loc, seen: set[int], *, text_too: bool) -> Iterator[Problem]:
    if isinstance(node, yaml.ScalarNode):
        yield from _of_scalar(node, loc, "", text_too=text_too)
    elif id(node) not in seen:
        seen.add(id(node))  # shared values of aliases are checked once
        if isinstance(node, yaml.SequenceNode):
            for place, item in enumerate(node.value):
                yield from _walk(item, (*loc, place), seen, text_too=text_too)
        else:
            yield from _of_mapping(node, loc, seen, text_too=text_too)


def _of_mapping(node: yaml.Node, loc: Loc, seen: set[int], *, text_too: bool) -> Iterator[Problem]:
    lines: dict[tuple[str, str], int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.tag == f"{_TAG}merge":
            yield from _walk(value, loc, seen, text_too=text_too)
            continue
        here, line = (*loc, key.value), key.start_mark.line + 1
        before = lines.get((key.tag, key.value))
        if before is not None:
            yield Problem.of(
                path_text(here),
                f"key {key.value!r} is given twice",
                "Remove one of the two lines.",
                expected="once",
                actual=f"lines {before} and {line}",
            )
        lines[key.tag, key.value] = line
        yield from _of_scalar(key, here, "the key ", text_too=text_too)
        yield from _walk(value, here, seen, text_too=text_too)


def _of_scalar(node: yaml.ScalarNode, loc: Loc, what: str, *, text_too: bool) -> Iterator[Problem]:
    """Yield the problem of a plain value, and replace the value with its text, which the other checks then use."""
    kind = node.tag.removeprefix(_TAG)
    if node.style is not None or kind not in _JUDGED or len(node.value) > _LONGEST:
        return
    if kind == "int" and _COUNT.match(node.value):
        return
    old, new = _older(kind, node.value), _newer(kind, node.value)
    if (type(old), old) == (type(new), new) or (isinstance(old, str) and not text_too):
        return
    yield Problem.of(
        path_text(loc),
        f"{what}{node.value} is {_described(old)} in YAML 1.1 and {_described(new)} in YAML 1.2",
        _fix(node.value, old, new),
        expected="a value that reads the same in both",
        actual=node.value,
    )
    node.tag = f"{_TAG}str"


def _older(kind: str, text: str) -> Any:  # noqa: ANN401 - a truth value, a number or text
    """Return how PyYAML (YAML 1.1) reads a plain value; the text itself if it is not a valid number after all (0b_)."""
    try:
        return yaml.load(text, Loader=yaml.SafeLoader) if kind != "str" else text
    except ValueError:
        return text


def _newer(kind: str, text: str) -> Any:  # noqa: ANN401 - a truth value, a number or text
    """Return how the core schema of YAML 1.2 reads it."""
    if kind == "bool":
        return text.lower() == "true" if text.lower() in {"true", "false"} else text
    if _DECIMAL.match(text):
        return int(text)
    if _BASED.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    return _older(kind, text) if text.lower().lstrip("+-") in {".inf", ".nan"} else text


def _described(value: Any) -> str:  # noqa: ANN401 - a truth value, a number or text
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"the text {value!r}"
        if isinstance(value, str)
        else f"the number {value:g}"
        if isinstance(value, float)
        else f"the number {value}"
    )


def _fix(text: str, old: Any, new: Any) -> str:  # noqa: ANN401 - truth values, numbers or texts
    quoted = f'"{text}" in quotes'
    if isinstance(old, bool):
        return f"Write {str(old).lower()}, or {quoted} if it is text."
    number = old if isinstance(new, str) else new
    if ":" in text or isinstance(number, str):
        return f"Write {quoted}."
    return f"Write {number:.12g} for the number, or {quoted} if it is text."


def has_two_readings(text: str) -> bool:
    """Return whether text that YAML 1.1 reads as text is something else in YAML 1.2."""
    return len(text) <= _LONGEST and not isinstance(_newer("str", text), str)
