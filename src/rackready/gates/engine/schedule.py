"""Which runs go side by side: those that claim nothing in common, as many as the limit allows."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import Run


def batches(runs: Sequence[Run], limit: int) -> list[list[Run]]:
    """Return the runs in batches; within one no claim occurs twice and every node is in runs with one partner only."""
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
    """Runs share a batch when they claim other parts, and either the same nodes (two rails of one pair) or none in common."""
    if one.claims & other.claims:
        return False
    common = set(one.nodes) & set(other.nodes)
    return not common or set(one.nodes) == set(other.nodes)
