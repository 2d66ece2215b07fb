"""One counter that is read before and after a load."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.gates.host.reading import Limit


@dataclass(frozen=True, slots=True)
class Counter:
    """Where it is, its name (part/counter), what may be added to it under load, and what to do where more was."""

    where: str
    name: str
    limit: Limit
    step: str
