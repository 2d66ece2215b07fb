"""Whether figures got worse: each against its own past, and against identical units. Pure functions.

All comparisons are those of gates/judging/fleet.py, with its risk and its effect: robust, since medians ignore single
bad nights. The own past is seen twice. All earlier readings are the sharpest reference for a sudden fall, but a slow
one moves their median and widens their spread until it hides in them; the first readings of the era stay. The spread
is the larger of that of the reference and that from one night to the next. Both together rarely come out small by
chance: tests/gates/test_trend_rates.py counts false alarms, and falls that are found. What is ours alone is in the
constants below (docs/howto/benchmarks-on-a-schedule.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median

from rackready.evidence.distribution import kind_of
from rackready.gates.base import FleetMetric
from rackready.gates.judging.expectation import MIN_FLEET
from rackready.gates.judging.fleet import Comparison, PartBound, Unit, behind, compare, part_bound, standard_error
from rackready.gates.trend.past import Conditions, FigureKey, FigurePast, Pasts, Reading, changed, common
from rackready.model.outcome import Op

RECENT = 3
"""Readings whose median is the present value. Judgement: one bad night is no trend, two of three are."""
NEEDED = 11
"""Readings of the same era before them, and the first ones that stay a reference. Judgement: with 7 the spread came out
too small by chance so often that false alarms were ten times as many as promised; with 11 they are as promised."""
_NIGHTLY = 1.4826 / math.sqrt(2)
"""Standard deviation over the median difference of neighbours, for independent normal readings."""
FIRST, EARLIER = "first readings", "earlier readings"
EFFECT = 0.10
"""Effect that is looked for where the gate declares none. Judgement: the largest that any gate declares."""


class TrendOutcome(StrEnum):
    """What a figure shows. Only a regression is bad here; a gate has judged every value when it was measured."""

    REGRESSION = "regression"
    WITH_FLEET = "worse, as its fleet"
    BEHIND_FLEET = "behind its fleet"
    STEADY = "steady"
    FEW = "too few readings"
    NOT_JUDGED = "not judged"


class Compared(StrEnum):
    """Result of one comparison."""

    HOLDS = "holds"
    BEHIND = "behind"
    FEW = "too few"
    UNJUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Against:
    """One comparison. ``why``: what is missing for it; ``centre`` and ``bound`` are None without one."""

    result: Compared
    why: str = ""
    centre: float | None = None
    bound: float | None = None
    of: str = ""
    """Which readings of the own past ``centre`` and ``bound`` are from."""

    def __str__(self) -> str:
        """Return it in words."""
        return self.why or self.result.value


_UNJUDGED = Against(Compared.UNJUDGED, "not judged: neither its gate nor a bound says which side is worse")
_NOT_POSITIVE = "not judged: its median is not positive"


@dataclass(frozen=True, slots=True)
class StepChange:
    """A change of conditions that began the present era: the medians before and after it."""

    at: float
    what: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class TrendRow:
    """One figure. ``now``: the median of its latest readings; ``declared``: whether the gate declares an effect."""

    key: FigureKey
    nodes: tuple[str, ...]
    readings: tuple[Reading, ...]
    now: float
    outcome: TrendOutcome
    past: Against
    fleet: Against
    declared: bool
    better: str
    step: StepChange | None = None


@dataclass(frozen=True, slots=True)
class _Present:
    """The present era of a figure."""

    past: FigurePast
    era: list[Reading]
    metric: FleetMetric | None
    declared: bool
    step: StepChange | None
    conditions: Conditions

    @property
    def now(self) -> float:
        return median(reading.value for reading in self.era[-RECENT:])


def judged(
    pasts: Pasts, declared: Mapping[tuple[str, str], FleetMetric], platforms: Mapping[str, str]
) -> list[TrendRow]:
    """Return a row for each figure, by gate, metric and unit.

    ``declared``: (gate, metric) -> as the gate compares it. ``platforms``: node -> its server model.
    """
    found = [_present(pasts, past, declared) for _, past in sorted(pasts.figures.items())]
    fleets = _fleets(found, platforms)
    count: dict[tuple[str, str], int] = defaultdict(int)
    for item in found:
        count[item.past.key.gate, item.past.key.metric] += 1
    rows = []
    for item in found:
        key = item.past.key
        fleet = fleets.get(key, _UNJUDGED)
        own = _own(item, count[key.gate, key.metric], alone=fleet.result is Compared.BEHIND)
        rows.append(_row(item, own, fleet))
    return rows


def _present(pasts: Pasts, past: FigurePast, declared: Mapping[tuple[str, str], FleetMetric]) -> _Present:
    *before, era = past.eras()
    step = None
    if before:
        last = before[-1]
        what = changed(pasts.conditions[last[-1].conditions], pasts.conditions[era[0].conditions])
        step = StepChange(era[0].at, what, _middle(last), _middle(era))
    own = declared.get((past.key.gate, past.key.metric))
    return _Present(past, era, own or _assumed(past), own is not None, step, pasts.conditions[era[-1].conditions])


def _assumed(past: FigurePast) -> FleetMetric | None:
    """Return how a figure is compared that its gate does not compare: by the side of its bounds."""
    if past.side not in {Op.GE, Op.LE}:
        return None
    return FleetMetric(past.key.metric, EFFECT, better="higher" if past.side is Op.GE else "lower")


def _own(item: _Present, comparisons: int, *, alone: bool) -> Against:
    """Compare the present value with the past of its era.

    ``alone``: it is behind its fleet, so the question whether it was always slower is asked of it alone.
    """
    if item.metric is None:
        return _UNJUDGED
    earlier = [reading.value for reading in item.era[:-RECENT]]
    if len(earlier) < NEEDED:
        return Against(Compared.FEW, f"too few readings: {len(item.era)} of {NEEDED + RECENT}")
    first = earlier[:NEEDED]
    if min(median(earlier), median(first)) <= 0:
        return Against(Compared.UNJUDGED, _NOT_POSITIVE)
    return (
        _behind(item, item.metric, earlier, 2 * comparisons, EARLIER)
        or _behind(item, item.metric, first, 0 if alone else 2 * comparisons, FIRST)
        or _bounded(Compared.HOLDS, _bound(item, item.metric, earlier, 2 * comparisons), EARLIER)
    )


def _behind(item: _Present, metric: FleetMetric, past: Sequence[float], comparisons: int, of: str) -> Against | None:
    found = _bound(item, metric, past, comparisons)
    return _bounded(Compared.BEHIND, found, of) if behind(metric, item.now, found.bound) else None


def _bound(item: _Present, metric: FleetMetric, past: Sequence[float], comparisons: int) -> PartBound:
    """Return the bound that readings of the past give the present value."""
    error = max(standard_error(metric, median(past), RECENT), _nightly([reading.value for reading in item.era]))
    return part_bound(metric, past, comparisons, error=error)


def _bounded(result: Compared, found: PartBound, of: str) -> Against:
    return Against(result, "", found.centre, found.bound, of)


def _nightly(values: Sequence[float]) -> float:
    """Return the spread of readings by how much neighbours differ: slow changes do not widen it."""
    return _NIGHTLY * median(abs(after - before) for before, after in pairwise(values))


def _fleets(found: Sequence[_Present], platforms: Mapping[str, str]) -> dict[FigureKey, Against]:
    """Compare the present values of identical units."""
    alike: dict[object, list[_Present]] = defaultdict(list)
    for item in found:
        if item.metric is not None:
            alike[_kind(item, platforms)].append(item)
    out: dict[FigureKey, Against] = {}
    for members in alike.values():
        out |= _fleet(members)
    return out


def _kind(item: _Present, platforms: Mapping[str, str]) -> object:
    key, nodes = item.past.key, item.past.nodes
    unit = kind_of(key.target.removeprefix(nodes[0])) if len(nodes) == 1 else f"{len(nodes)} nodes"
    models = tuple(sorted({platforms[node] for node in nodes}))
    return key.gate, key.metric, key.unit, unit, models, common(item.conditions)


def _fleet(members: Sequence[_Present]) -> dict[FigureKey, Against]:
    metric = members[0].metric
    units = [Unit(item.past.nodes[0], item.past.key.target, item.now, item.past.key.unit) for item in members]
    found: Comparison | None = compare(metric, units, RECENT) if metric is not None else None
    if found is None:
        few = Against(Compared.FEW, f"too few units: {len(units)} of {MIN_FLEET}")
        none = few if len(units) < MIN_FLEET else Against(Compared.UNJUDGED, _NOT_POSITIVE)
        return {item.past.key: none for item in members}
    bad = {unit.target for unit in found.outliers}
    return {
        item.past.key: Against(
            Compared.BEHIND if item.past.key.target in bad else Compared.HOLDS, "", found.centre, found.bound
        )
        for item in members
    }


def _row(item: _Present, own: Against, fleet: Against) -> TrendRow:
    row = TrendRow(
        item.past.key,
        item.past.nodes,
        tuple(item.era),
        item.now,
        TrendOutcome.STEADY,
        own,
        fleet,
        declared=item.declared,
        better=item.metric.better if item.metric is not None else "",
        step=item.step,
    )
    return replace(row, outcome=_outcome(own, fleet))


def _outcome(own: Against, fleet: Against) -> TrendOutcome:
    """Return the outcome. Without a fleet the own past decides alone."""
    if own.result is Compared.BEHIND:
        return TrendOutcome.WITH_FLEET if fleet.result is Compared.HOLDS else TrendOutcome.REGRESSION
    if fleet.result is Compared.BEHIND:
        return TrendOutcome.BEHIND_FLEET
    return _BY_PAST[own.result]


_BY_PAST = {
    Compared.HOLDS: TrendOutcome.STEADY,
    Compared.FEW: TrendOutcome.FEW,
    Compared.UNJUDGED: TrendOutcome.NOT_JUDGED,
}


def _middle(era: Sequence[Reading]) -> float:
    return median(reading.value for reading in era)
