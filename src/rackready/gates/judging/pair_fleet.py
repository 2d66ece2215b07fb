"""NIC-to-NIC directions compared with their fleet: pairs that need a third partner, and ends that it acquits."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rackready.gates.base import FinishedRun, Gate, GateFacts
from rackready.gates.judging.fleet import Unit, compare_in_site
from rackready.model.outcome import Outcome

_DIRECTION = re.compile(r"^(\S+) \S+ -> (\S+) \S+ \(rail (\d+)\)$")
"""Target of a direction: `node03 mlx5_4 -> node04 mlx5_4 (rail 3)`."""


def suspected(gate: Gate, facts: GateFacts, done: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return the runs, with passes that have a direction behind its fleet marked as failed, to measure them again.

    The recorded verdicts do not change: the fleet judges later, with the evidence of the whole site. This only selects
    the pairs that need a third partner.
    """
    (metric,) = gate.fleet
    passed = [item for item in done if item.verdict.outcome is Outcome.PASS]
    figures = [(item, one) for item in passed for one in item.verdict.metrics if one.name == metric.name]
    found = compare_in_site(
        gate,
        metric,
        [Unit(node, one.target, one.value, one.unit) for item, one in figures for node in item.run.nodes],
        facts.fleet,
    )
    behind = set() if found is None else {unit.target for unit in found.outliers}
    slow = {item.run.id for item, one in figures if one.target in behind}
    return [
        replace(item, verdict=item.verdict.model_copy(update={"outcome": Outcome.FAIL}))
        if item.run.id in slow
        else item
        for item in done
    ]


def acquitted(runs: Mapping[str, Collection[str]], slow: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return (target, node) of slow directions whose node's NIC is good with another partner, and the partner's is not.

    A pair is good if neither of its directions falls behind. If both ends are good with others, the path between them
    is slow; if neither was tried with another, they cannot be told apart. In both cases no end is acquitted, and the
    finding names the pair.
    """
    pairs = {target: pair for target in runs if (pair := _ends(target)) is not None}
    bad = {pairs[target] for target in slow if target in pairs}
    good = {(node, rail) for first, second, rail in set(pairs.values()) - bad for node in (first, second)}
    return frozenset(
        (target, node)
        for target in slow
        if target in pairs
        for node, other in (pairs[target][:2], pairs[target][1::-1])
        if (node, pairs[target][2]) in good and (other, pairs[target][2]) not in good
    )


def _ends(target: str) -> tuple[str, str, int] | None:
    """Return the two nodes of a direction, sorted by name, and its rail."""
    found = _DIRECTION.match(target)
    return None if found is None else (min(found[1], found[2]), max(found[1], found[2]), int(found[3]))
