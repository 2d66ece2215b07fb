"""A contradiction that a check found, before its location is turned into the path that people read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """Where (path into the checked document), what, and what to do."""

    loc: tuple[str | int, ...]
    message: str
    hint: str
