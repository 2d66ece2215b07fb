"""Directions from NIC to NIC held against their fleet: which pairs are worth a third partner, and which end it acquits."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rackready.gates.base import Done, Gate, GateFacts
from rackready.gates.judging.fleet import Unit, compare_in_site
from rackready.model.outcome import Outcome

_DIRECTION = re.compile(r"^(\S+) \S+ -> (\S+) \S+ \(rail (\d+)\)$")
"""Target of a direction: `node03 mlx5_4 -> node04 mlx5_4 (rail 3)`."""


def suspected(gate: Gate, facts: GateFacts, done: Sequence[Done]) -> list[Done]:
    """Return the runs, those that passed with a direction that falls behind its fleet as failed: what is to be measured again does not rest on bounds alone.

    Their own verdicts stand: the fleet judges with the evidence of the whole site, this stage only asks where it is
    worth a third partner.
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
    """Return (target, node) of slow directions whose node's NIC is right with another partner, and the partner's is not.

    A pair is right when neither of its directions falls behind. Where both ends are right with others the path between
    them is slow, and where neither was tried with another nothing tells them apart: no end is acquitted, and the
    finding names the pair.
    """
    pairs = {target: pair for target in runs if (pair := _ends(target)) is not None}
    bad = {pairs[target] for target in slow if target in pairs}
    right = {(node, rail) for first, second, rail in set(pairs.values()) - bad for node in (first, second)}
    return frozenset(
        (target, node)
        for target in slow
        if target in pairs
        for node, other in (pairs[target][:2], pairs[target][1::-1])
        if (node, pairs[target][2]) in right and (other, pairs[target][2]) not in right
    )


def _ends(target: str) -> tuple[str, str, int] | None:
    """Return the two nodes of a direction, in the order of their names, and its rail."""
    found = _DIRECTION.match(target)
    return None if found is None else (min(found[1], found[2]), max(found[1], found[2]), int(found[3]))
