"""YAML of exported documents: above each value a comment with its origin. No time: the same site, the same text."""

from __future__ import annotations

import textwrap
from typing import Any

import yaml

from rackready.design.yaml import dump_yaml
from rackready.model.exported import ExportedFile, Sourced

MARK = "# Written by `rackready export"
"""Beginning of the first line of our files."""
_WIDTH = 110


def text_of(file: ExportedFile, command: str) -> str:
    """Return the text of a file. ``command``: the call that writes it again."""
    head = [f"{MARK} {command}`. Do not edit: run it again.", *(f"# {line}" for line in file.purpose)]
    documents = ["\n".join(_lines(document)) for document in file.documents]
    return "\n".join(head) + "\n" + "\n---\n".join(documents) + "\n"


def plain(document: tuple[Sourced, ...]) -> dict[str, Any]:
    """Return a document as plain data."""
    out: dict[str, Any] = {}
    for item in document:
        place = out
        for key in item.path[:-1]:
            place = place.setdefault(key, {})
        place[item.path[-1]] = item.value
    return out


def _lines(document: tuple[Sourced, ...]) -> list[str]:
    """Return the lines of a document. Values below one key must stand side by side."""
    out: list[str] = []
    open_keys: tuple[str, ...] = ()
    for item in document:
        above = item.path[:-1]
        same = next((at for at, pair in enumerate(zip(open_keys, above, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(open_keys), len(above)) if same is None else same
        out += [f"{'  ' * depth}{key}:" for depth, key in enumerate(above) if depth >= shared]
        open_keys = above
        indent = "  " * len(above)
        if item.source:
            out += [
                f"{indent}# {line}"
                for line in textwrap.wrap(item.source, _WIDTH, break_long_words=False, break_on_hyphens=False)
            ]
        out += [f"{indent}{line}" for line in _value(item.path[-1], item.value)]
    return out


def _value(key: str, value: Any) -> list[str]:  # noqa: ANN401 - plain data
    if isinstance(value, str) and "\n" in value:
        return [f"{key}: |", *(f"  {line}" for line in value.rstrip("\n").splitlines())]
    return dump_yaml({key: value}).rstrip("\n").splitlines()


def documents(text: str) -> list[Any]:
    """Return the documents of a file, as another program reads them."""
    return list(yaml.safe_load_all(text))
