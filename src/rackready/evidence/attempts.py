"""Attempts of runs over several nodes: an error is tried again, both are on record, and the last one counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Run = Mapping[str, Any]


@dataclass(slots=True)
class Attempts:
    """Finds the last attempt of each run, oldest first, in memory that does not grow with outputs."""

    _last: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _count: int = 0

    def add(self, run: Run) -> None:
        """Add a run."""
        key = (str(run["gate"]), str(run["target"]), str(run.get("inputs", {}).get("run", "")))
        self._last[key] = self._count
        self._count += 1

    def counting(self, runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
        """Yield those of the same runs, in the same order, that no later attempt replaced."""
        last = set(self._last.values())
        return (dict(run) for place, run in enumerate(runs) if place in last)


def counting_runs(runs: Collection[Run]) -> list[dict[str, Any]]:
    """Return the runs that no later attempt replaced."""
    found = Attempts()
    for run in runs:
        found.add(run)
    return list(found.counting(runs))
