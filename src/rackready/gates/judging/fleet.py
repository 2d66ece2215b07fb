"""Comparison of units: identical ones of a site (its fleet), and the parts of one node (siblings). Pure functions.

A unit falls behind when its distance from the median is above z(0.01 / M) times the spread AND above half of the
declared effect, where the spread is the larger of 1.4826 x the median absolute deviation and the standard error of one
figure. `expectation.fleet_outliers` decides; this module expresses the same as one number, the bound, that a reader can
compare the figure with.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, median

from rackready.gates.base import FleetMetric, Gate
from rackready.gates.judging.expectation import MIN_FLEET, fleet_outliers, launches
from rackready.model.outcome import Criterion, Op

_RISK = 0.01
"""Chance of one false alarm among all compared units."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean (square root of pi / 2)."""
_MAD = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
_AMONG = {"fleet": ("identical units", ""), "siblings": ("the other parts of the node", " sqrt(1 + 1.57/others)")}
"""Label -> whose median it is, and the factor of the spread."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One figure of a node: of the node itself, a part of it, or a run that it took part in (``target``)."""

    node: str
    target: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric over identical units. ``bound``: a unit must not fall below it (above it, if lower is better).

    If the unit is a run over several nodes, ``units`` and ``outliers`` contain it once per node, except outliers that
    the gate acquits.
    """

    metric: FleetMetric
    units: tuple[Unit, ...]
    count: int
    """Number of compared units, each counted once."""
    comparisons: int
    """M."""
    centre: float
    spread: float
    z: float
    bound: float
    outliers: tuple[Unit, ...]

    def criterion(self) -> Criterion:
        """Return the bound with its inputs."""
        inputs: dict[str, float | str] = {
            "M": self.comparisons,
            "units": self.count,
            "median": self.centre,
            "spread": self.spread,
            "z": self.z,
            "d": self.metric.effect,
        }
        return _criterion(self.metric, self.bound, self.units[0].unit, "fleet", inputs)


def _criterion(metric: FleetMetric, bound: float, unit: str, label: str, inputs: dict[str, float | str]) -> Criterion:
    op, sign = (Op.GE, "-") if metric.better == "higher" else (Op.LE, "+")
    group, factor = _AMONG[label]
    spread = f"max(1.4826 MAD, standard error){factor}"
    source = (
        f"derived: median of {group} {sign} max(z spread, d/2 median), spread = {spread}, z = normal quantile of 1 - "
        "0.01/M"
    )
    return Criterion(
        metric=metric.name, op=op, bound=bound, unit=unit, label=label, source=source, derived=True, inputs=inputs
    )


def repeats(gate: Gate, fleet: int, metric: FleetMetric, per_node: int) -> int:
    """Return the number of launches whose median is one figure of a gate.

    It is the gate's input `launches` or, if that is not set, what the number of units and the effect require.
    ``fleet``: nodes of the site. ``per_node``: units of one node (its GPUs, or 1). Without that input: 1.
    """
    if "launches" not in type(gate.inputs).model_fields:
        return 1
    declared = getattr(gate.inputs, "launches", None)
    return (
        declared if isinstance(declared, int) else launches(fleet * per_node, sigma=metric.sigma, effect=metric.effect)
    )


def standard_error(metric: FleetMetric, centre: float, count: int) -> float:
    """Return the standard error of a median of ``count`` launches, in the metric's unit."""
    return (_MEDIAN if count > 1 else 1.0) * metric.sigma * abs(centre) / math.sqrt(count)


def compare(metric: FleetMetric, units: Sequence[Unit], count: int, comparisons: int = 0) -> Comparison | None:
    """Compare units with their median; None for fewer than 16 units or a median that is not positive.

    ``comparisons``: all comparisons of the site, M, at least the number of these units. A site is measured wave by
    wave, and every unit is compared once.
    """
    values = [unit.value for unit in units]
    if len(values) < MIN_FLEET or median(values) <= 0:
        return None
    centre = median(values)
    error = standard_error(metric, centre, count)
    total = max(len(values), comparisons)
    spread, z = max(_MAD * median(abs(value - centre) for value in values), error), _z(total)
    bound = _bound(metric, centre, spread, z)
    # Mirrored about the median, "too high" is "too low".
    seen = values if metric.better == "higher" else [2 * centre - value for value in values]
    behind_these = fleet_outliers(seen, standard_error=error, effect=metric.effect)
    outliers = [
        units[place] for place in behind_these if total == len(values) or behind(metric, units[place].value, bound)
    ]
    return Comparison(metric, tuple(units), len(units), total, centre, spread, z, bound, tuple(outliers))


def compare_in_site(gate: Gate, metric: FleetMetric, units: Sequence[Unit], nodes: int) -> Comparison | None:
    """Compare identical units of a site with their median; None if they are not a fleet.

    ``nodes``: nodes of the site; each counts with as many units as the node here that has most. The figure of a run
    over several nodes is one unit. Only runs with the same number of nodes are identical: the most frequent number
    counts.
    """
    ends: dict[tuple[str, str], list[Unit]] = defaultdict(list)
    for unit in units:
        ends[unit.target, unit.node].append(unit)
    runs: dict[str, list[Unit]] = defaultdict(list)
    for (target, _), same in ends.items():  # a node that measured twice is not a second node of the run
        runs[target].append(_worst(metric, same)[0])
    sizes = Counter(map(len, runs.values()))
    size = max(sizes, key=lambda one: (sizes[one], one), default=1)
    alike = [_worst(metric, members) for members in runs.values() if len(members) == size]
    per_node = max(Counter(unit.node for members in alike for unit in members).values(), default=1)
    found = compare(
        metric,
        [members[0] for members in alike],
        repeats(gate, nodes, metric, per_node),
        math.ceil(nodes * per_node / size),
    )
    if found is None:
        return None
    behind = {unit.target for unit in found.outliers}
    everyone = [unit for members in alike for unit in members]
    innocent = (
        gate.acquitted({members[0].target: [unit.node for unit in members] for members in alike}, behind)
        if behind
        else frozenset()
    )
    outliers = [unit for unit in everyone if unit.target in behind and (unit.target, unit.node) not in innocent]
    return replace(found, units=tuple(everyone), outliers=tuple(outliers))


def _worst(metric: FleetMetric, members: list[Unit]) -> list[Unit]:
    """Return a run's units with one figure: the worst, if a node has its figure from another day."""
    values = {unit.value for unit in members}
    if len(values) == 1:
        return members
    figure = min(values) if metric.better == "higher" else max(values)
    return [replace(unit, value=figure) for unit in members]


@lru_cache(maxsize=128)
def _z(comparisons: int) -> float:
    return NormalDist().inv_cdf(1 - _RISK / comparisons)


def _bound(metric: FleetMetric, centre: float, spread: float, z: float) -> float:
    distance = max(z * spread, metric.effect / 2 * centre)
    return centre - distance if metric.better == "higher" else centre + distance


@dataclass(frozen=True, slots=True)
class PartBound:
    """Bound of one part of a node among the others: their median, the assumed spread, z, and the bound."""

    metric: FleetMetric
    centre: float
    spread: float
    z: float
    bound: float
    comparisons: int

    def holds(self, value: float) -> bool:
        """Return whether a figure is on the good side of the bound."""
        return not behind(self.metric, value, self.bound)

    def criterion(self, unit: str, **more: float | str) -> Criterion:
        """Return the bound with its inputs."""
        inputs: dict[str, float | str] = {
            "M": self.comparisons,
            "median": self.centre,
            "spread": self.spread,
            "z": self.z,
            "d": self.metric.effect,
        }
        return _criterion(self.metric, self.bound, unit, "siblings", inputs | more)


def part_bound(
    metric: FleetMetric, others: Sequence[float], comparisons: int, *, count: int = 1, error: float | None = None
) -> PartBound:
    """Return the bound that the other parts of a node give one part.

    ``comparisons``: parts compared this way in the whole site, M. ``count``: number of launches whose median is one
    figure; its standard error follows from the metric's sigma, unless ``error`` gives it in the metric's unit (for a
    tool whose figures have a step).

    The median of a few others is itself uncertain: a figure's distance from it has the variance of the figure times 1 +
    (pi / 2) / n (that of a median of n is pi / 2n). In a fleet of 16 and more the part is among them and the term
    hardly counts.
    """
    centre = median(others)
    one = max(
        _MAD * median(abs(other - centre) for other in others),
        standard_error(metric, centre, count) if error is None else error,
    )
    spread = one * math.sqrt(1 + _MEDIAN**2 / len(others))
    total = max(comparisons, len(others) + 1)
    z = _z(total)
    return PartBound(metric, centre, spread, z, _bound(metric, centre, spread, z), total)


def behind(metric: FleetMetric, value: float, bound: float) -> bool:
    """Return whether a figure is on the wrong side of its bound."""
    return value < bound if metric.better == "higher" else value > bound
