"""How often a trend cries wolf, and which falls it finds: seeded nights of normal noise, judged as evidence is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rackready.gates.base import FleetMetric
from rackready.gates.trend.judged import NEEDED, RECENT, TrendOutcome, TrendRow, judged
from rackready.gates.trend.past import FigureKey, FigurePast, Pasts, Reading

GATE = "node/gpu/performance/gemm"
DECLARED = {(GATE, "gemm_fp16"): FleetMetric("gemm_fp16", 0.03)}
CONDITIONS = [(("driver", "580.95.05"),), (("driver", "580.105.08"),)]
Level = Callable[[int], float]


def nights(levels: list[Level], count: int, cv: float, seed: int, *, changed: int = 1 << 20) -> list[FigurePast]:
    """Return figures of one GPU each. ``levels``: the true value by night; ``changed``: night of another driver."""
    noise = random.Random(seed)  # noqa: S311 - noise of a simulation
    out = []
    for number, level in enumerate(levels):
        past = FigurePast(FigureKey(GATE, "gemm_fp16", "TFLOPS", f"node{number:03d}/gpu0"), (f"node{number:03d}",))
        for night in range(count):
            value = level(night) * (1 + cv * noise.gauss(0, 1))
            past.put(Reading(night * 86400.0, value, int(night >= changed)))
        out.append(past)
    return out


def rows(figures: list[FigurePast]) -> list[TrendRow]:
    pasts = Pasts({past.key: past for past in figures}, list(CONDITIONS))
    return judged(pasts, DECLARED, {past.nodes[0]: "hgx_h100" for past in figures})


def steady(_night: int) -> float:
    return 700.0


def falling(share: float, over: int, after: int = 0) -> Level:
    """Return a level that falls by a share, evenly over some nights, after some steady ones."""
    return lambda night: 700.0 * (1 - share * min(max(night - after, 0) / (over - 1), 1.0))


@pytest.mark.parametrize(("units", "cv"), [(1, 0.02), (8, 0.02), (8, 0.05), (1, 0.005)])
@pytest.mark.parametrize("count", [NEEDED + RECENT, 20, 60])
def test_false_alarms_are_as_rare_as_promised(units: int, cv: float, count: int) -> None:
    trials = 300
    alarms = 0
    for seed in range(trials):
        found = rows(nights([steady] * units, count, cv, seed))
        alarms += any(row.outcome is TrendOutcome.REGRESSION for row in found)
    # Promised: 1 in 100 nights. 8 of 300 would come by chance at that rate in 1 of 100 runs of this test.
    assert alarms <= 7


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.4])
@pytest.mark.parametrize("over", [30, 60, 180])
@pytest.mark.parametrize("units", [1, 8])
def test_a_slow_fall_is_found(share: float, over: int, units: int) -> None:
    """One figure falls while the others hold: within five nights of its end it is a regression, in every seed."""
    for seed in range(5):
        first, *others = rows(nights([falling(share, over), *[steady] * (units - 1)], over + 5, 0.005, seed))
        assert first.outcome is TrendOutcome.REGRESSION, seed
        assert {row.outcome for row in others} <= {TrendOutcome.STEADY}


@pytest.mark.parametrize(("share", "cv"), [(0.2, 0.02), (0.4, 0.02), (0.4, 0.03)])
@pytest.mark.parametrize("over", [30, 60, 180])
def test_a_slow_fall_is_found_in_noise(share: float, cv: float, over: int) -> None:
    found = [rows(nights([falling(share, over)], over + 5, cv, seed))[0].outcome for seed in range(10)]
    assert found.count(TrendOutcome.REGRESSION) >= 9


@pytest.mark.parametrize("over", [60, 180])
def test_a_slow_fall_among_a_fleet_is_a_regression(over: int) -> None:
    first, *others = rows(nights([falling(0.4, over), *[steady] * 63], over, 0.01, 7))
    assert (first.outcome, str(first.fleet)) == (TrendOutcome.REGRESSION, "behind")
    assert {row.outcome for row in others} == {TrendOutcome.STEADY}


@pytest.mark.parametrize("seed", [1, 3, 9])
def test_one_behind_its_fleet_that_also_fell_is_a_regression(seed: int) -> None:
    """Where the fleet speaks against it, a fall too small for the rule of all figures is judged alone."""
    others = [steady] * 63
    fell = rows(nights([falling(0.075, 20, after=20), *others], 40, 0.02, seed))[0]
    always = rows(nights([lambda _: 640.0, *others], 40, 0.02, seed))[0]
    assert (fell.outcome, fell.past.of) == (TrendOutcome.REGRESSION, "first readings")
    assert always.outcome is TrendOutcome.BEHIND_FLEET


def test_a_fall_after_steady_months_is_found() -> None:
    found = rows(nights([falling(0.1, 60, after=120)], 180, 0.005, 1))[0]
    assert found.outcome is TrendOutcome.REGRESSION


@pytest.mark.parametrize("factor", [0.93, 1.07])
def test_a_step_by_a_change_of_driver_is_a_new_past_and_no_regression(factor: float) -> None:
    (row,) = rows(nights([lambda night: 700.0 * (factor if night >= 40 else 1.0)], 80, 0.005, 2, changed=40))
    assert row.outcome is TrendOutcome.STEADY
    assert row.step is not None
    assert row.step.after / row.step.before == pytest.approx(factor, abs=0.005)


def test_a_fall_after_a_change_of_driver_is_found() -> None:
    fall = falling(0.1, 40, after=40)
    (row,) = rows(nights([lambda night: fall(night) * (1.07 if night >= 40 else 1.0)], 80, 0.005, 2, changed=40))
    assert row.outcome is TrendOutcome.REGRESSION
