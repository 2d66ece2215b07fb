"""Holding the GPUs of one node against each other: the same formula as for a fleet, each against the median and spread of the others.

A GPU falls behind when (median - x) / max(1.4826 MAD, standard error of x) exceeds the normal quantile of 0.01 / M, M the units compared in the whole
site, and the deficit exceeds half of the effect that is to be found. x is the median of r launches, whose standard error is 1.2533 sigma / sqrt(r).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist, median

from rackready.gates.judge import Judge
from rackready.model.outcome import Criterion, Op

_LEAST = 2
"""Fewer others than this have no spread."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared: a metric with its unit, the effect to be found and the noise of one launch (shares of the median), and how often it was launched."""

    metric: str
    unit: str
    effect: float
    sigma: float
    launches: int
    units: int
    """M: how many parts of the site are compared by it."""
    step: str


def compare(judge: Judge, node: str, values: Mapping[int, float], how: Comparison) -> set[int]:
    """Fail every GPU that falls behind its siblings; returns those. Nothing is said of fewer than three."""
    behind: set[int] = set()
    for gpu, value in values.items():
        others = [other for index, other in values.items() if index != gpu]
        if len(others) < _LEAST:
            continue
        judge.judged += 1
        centre, bound, inputs = _bound(others, how)
        if value < bound:
            behind.add(gpu)
            deficit = 100 * (centre - value) / centre
            judge.criterion(Criterion(metric=how.metric, op=Op.GE, bound=bound, unit=how.unit, label="siblings", source=_SOURCE, derived=True, inputs=inputs))
            judge.fail(
                f"{node} gpu{gpu}",
                f"{how.metric} behind its siblings",
                f"at least {bound:.4g} {how.unit} (median of the others {centre:.4g}; derived: {_SOURCE})",
                f"{value:.4g} {how.unit}, {deficit:.1f} % less (median of {how.launches})",
                how.step,
            )
    return behind


_SOURCE = "median of siblings less max(z max(1.4826 MAD, 1.2533 sigma / sqrt(r)), effect / 2)"


def _bound(others: list[float], how: Comparison) -> tuple[float, float, dict[str, float | str]]:
    centre = median(others)
    error = 1.2533 * how.sigma * centre / math.sqrt(how.launches)
    spread = max(1.4826 * median(abs(other - centre) for other in others), error)
    z = NormalDist().inv_cdf(1 - 0.01 / max(how.units, len(others) + 1))
    bound = centre - max(z * spread, how.effect / 2 * centre)
    return centre, bound, {"median": centre, "spread": spread, "z": z, "sigma": how.sigma, "r": how.launches, "effect": how.effect, "M": how.units}
