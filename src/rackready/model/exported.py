"""A document for another program, each of its values with its origin: plain data, before it becomes text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sourced:
    """One value of a document. ``path``: the keys above it; ``value``: plain data; ``source``: where it comes from."""

    path: tuple[str, ...]
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file: a name, what it is for, and one or more documents."""

    name: str
    purpose: tuple[str, ...]
    documents: tuple[tuple[Sourced, ...], ...]


@dataclass(frozen=True, slots=True)
class Export:
    """All files of an export, and what an operator must know beside them."""

    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...] = ()
