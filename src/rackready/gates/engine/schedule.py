"""Batches of runs that go in parallel: runs without common claims, up to a limit."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import Run


def batches(runs: Sequence[Run], limit: int) -> list[list[Run]]:
    """Return the runs in batches. In a batch no claim occurs twice, and a node has only one partner."""
    out: list[list[Run]] = []
    room: list[list[Run]] = []
    for run in runs:
        batch = next((batch for batch in room if all(_fit(run, other) for other in batch)), None)
        if batch is None:
            batch = []
            out.append(batch)
            room.append(batch)
        batch.append(run)
        if len(batch) >= limit:
            room = [other for other in room if other is not batch]
    return out


def _fit(one: Run, other: Run) -> bool:
    """Return whether two runs fit in a batch: no common claim, and the same nodes (rails of a pair) or none."""
    if one.claims & other.claims:
        return False
    common = set(one.nodes) & set(other.nodes)
    return not common or set(one.nodes) == set(other.nodes)
