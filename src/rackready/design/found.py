"""A contradiction that a check found, before its location is turned into the path that people read."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Found:
    """Where (path into the checked document), what, and what to do."""

    loc: tuple[str | int, ...]
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked. ``pruned``: parts of wrong shape were taken out, so nothing may be said about what seems to be missing."""

    site: Site
    pruned: bool
