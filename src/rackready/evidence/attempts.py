"""Attempts of runs over several nodes: an error is tried again, both are on record, and the last one counts.

Only an error is tried again (gates/engine/runner.py), so nothing replaces a pass or a fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.model.outcome import Outcome

Run = Mapping[str, Any]
_Key = tuple[str, str, str, tuple[str, ...]]
"""Gate, target, run and nodes: runs of a cluster or rack in several waves differ only in their nodes."""


@dataclass(slots=True)
class Attempts:
    """Finds the attempts that count of runs, added oldest first, in memory that does not grow with outputs."""

    _errors: dict[_Key, int] = field(default_factory=dict)
    _replaced: set[int] = field(default_factory=set)
    _count: int = 0

    def add(self, run: Run) -> None:
        """Add a run."""
        inputs, nodes = run.get("inputs", {}), tuple(sorted(run["nodes"]))
        key = (str(run["gate"]), str(run["target"]), str(inputs.get("run", "")), nodes)
        if (error := self._errors.pop(key, None)) is not None:
            self._replaced.add(error)
        if run["outcome"] == Outcome.ERROR.value:
            self._errors[key] = self._count
        self._count += 1

    def counting(self, runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
        """Yield those of the same runs, in the same order, that no later attempt replaced."""
        return (dict(run) for place, run in enumerate(runs) if place not in self._replaced)


def counting_runs(runs: Collection[Run]) -> list[dict[str, Any]]:
    """Return the runs that no later attempt replaced."""
    found = Attempts()
    for run in runs:
        found.add(run)
    return list(found.counting(runs))
