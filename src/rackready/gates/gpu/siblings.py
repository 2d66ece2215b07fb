"""Comparison of the GPUs of one node with each other.

The formula is that of a fleet (gates/judging/fleet.py): each GPU against the median and spread of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackready.gates.base import FleetMetric
from rackready.gates.judging.finding_kinds import FailKind
from rackready.gates.judging.fleet import part_bound
from rackready.gates.judging.judge import Judge
from rackready.model.place import Place

_LEAST_OTHERS = 2
"""Fewer siblings than this have no spread."""


BEHIND_SIBLINGS = FailKind(
    "behind-siblings",
    "{metric} behind its siblings",
    meaning="This part is slower than the others of its kind in the same node, by more than their spread.",
    next_step="{step}",
)

FINDINGS = (BEHIND_SIBLINGS,)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric to compare.

    ``effect``: the smallest deficit to find; ``sigma``: the noise of one launch; both as shares of the median.
    """

    metric: str
    unit: str
    effect: float
    sigma: float
    launches: int
    units: int
    """M: how many parts of the site are compared by this metric."""
    step: str


def compare(judge: Judge, node: str, values: Mapping[int, float], how: Comparison) -> set[int]:
    """Fail every GPU that is slower than its siblings, and return those. Fewer than three are not compared."""
    behind: set[int] = set()
    metric = FleetMetric(how.metric, how.effect, how.sigma)
    for gpu, value in values.items():
        others = [other for index, other in values.items() if index != gpu]
        if len(others) < _LEAST_OTHERS:
            continue
        judge.judged += 1
        found = part_bound(metric, others, how.units, count=how.launches)
        if not found.holds(value):
            behind.add(gpu)
            deficit = 100 * (found.centre - value) / found.centre
            criterion = found.criterion(how.unit, sigma=how.sigma, r=how.launches)
            judge.criterion(criterion)
            judge.fail(
                Place(node, f"gpu{gpu}"),
                BEHIND_SIBLINGS,
                f"at least {found.bound:.4g} {how.unit} (median of the others {found.centre:.4g}; {criterion.source})",
                f"{value:.4g} {how.unit}, {deficit:.1f} % less (median of {how.launches})",
                metric=how.metric,
                step=how.step,
            )
    return behind
