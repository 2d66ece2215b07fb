"""A counter that is read before and after a load."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.gates.host.reading import Limit


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter: its place, name (part/counter), largest rise under load, and next step if it rose more."""

    where: str
    name: str
    limit: Limit
    step: str
