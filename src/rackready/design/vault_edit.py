"""Changes of one value in a YAML text, and of nothing else: comments, order and quotes stay as people wrote them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from rackready.design.secret_vault import Loader

Render = Callable[[int], str]
"""Returns the text of a value, given the column of its key."""


class EditError(ValueError):
    """The text is of a form in which a value cannot be changed. Its words never quote the text."""


def insert_before(text: str, keys: Sequence[str], name: str, render: Render) -> str:
    """Return a text with a new key before an existing one, in the same mapping. Raises EditError."""
    mapping, key, _ = _entry(text, keys)
    column, at = key.start_mark.column, key.start_mark.index
    value = render(column)
    end = ", " if mapping.flow_style else ("" if value.endswith("\n") else "\n") + " " * column
    wanted = _parsed(text)
    _parent(wanted, keys)[name] = _value(value)
    return _checked(f"{text[:at]}{name}: {value}{end}{text[at:]}", wanted)


def promote(text: str, keys: Sequence[str], name: str) -> str:
    """Return a text in which a key has the value of another one, which is gone. Raises EditError."""
    _, key, value = _entry(text, keys)
    _, other, fresh = _entry(text, [*keys[:-1], name])
    wanted = _parsed(text)
    parent = _parent(wanted, keys)
    parent[keys[-1]] = parent.pop(name)
    new = text[fresh.start_mark.index : fresh.end_mark.index].rstrip()
    old = text[value.start_mark.index : value.end_mark.index]
    after = text[value.end_mark.index :]
    gap = old[len(old.rstrip()) :] or ("" if after[:1] in {"", "\n", " ", ",", "}"} else "\n")
    if other.start_mark.index > key.start_mark.index:
        message = f"{name} no longer stands before {keys[-1]}"
        raise EditError(message)
    head = text[: other.start_mark.index] + text[key.start_mark.index : value.start_mark.index]
    return _checked(head + new + gap + after, wanted)


def _checked(text: str, wanted: dict[str, Any]) -> str:
    if _parsed(text) != wanted:
        message = "its form does not allow to change one value alone"
        raise EditError(message)
    return text


def _value(rendered: str) -> Any:  # noqa: ANN401 - a YAML value
    return _parsed(f"x: {rendered}")["x"]


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = yaml.load(text, Loader=Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        found = None  # the error is not chained: it quotes the text
    if not isinstance(found, dict):
        message = "it cannot be parsed after the change"
        raise EditError(message)
    return copy.deepcopy(found)


def _parent(document: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    found: Any = document
    for key in keys[:-1]:
        found = found[key]
    if not isinstance(found, dict):
        message = f"{'.'.join(keys)} is in a list"
        raise EditError(message)
    return found


def _entry(text: str, keys: Sequence[str]) -> tuple[yaml.MappingNode, yaml.Node, yaml.Node]:
    """Return the innermost mapping, and key and value in it."""
    node: Any = yaml.compose(text, Loader=Loader)
    for at, name in enumerate(keys):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        pair = next(((key, value) for key, value in pairs if key.value == name), None)
        if pair is None:
            message = f"{'.'.join(keys[: at + 1])} is not a key of a mapping"
            raise EditError(message)
        if at == len(keys) - 1:
            return node, *pair
        node = pair[1]
    message = "no key"
    raise EditError(message)
