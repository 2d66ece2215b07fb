"""Trends: eras, the comparison with the own past and with the fleet, and what is too little for a judgement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rackready.gates.base import FleetMetric
from rackready.gates.trend.judged import TrendOutcome, TrendRow, judged
from rackready.gates.trend.past import Pasts
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Criterion, Metric, Op, Outcome, Verdict
from tests.unit.handover.evidence import fingerprint, record

GATE = "node/gpu/performance/gemm"
DECLARED = {(GATE, "gemm_fp16"): FleetMetric("gemm_fp16", 0.03)}
BEGAN = datetime(2026, 12, 1, 2, 0, tzinfo=UTC)
NAMES = frozenset(f"node{number:02d}" for number in range(1, 21))
PLATFORMS = dict.fromkeys(NAMES, "hgx_h100")


def measured(  # noqa: PLR0913 - a record and what it is about
    night: int,
    value: float,
    *,
    node: str = "node01",
    part: str = "gpu0",
    metric: str = "gemm_fp16",
    unit: str = "TFLOPS",
    inputs: dict[str, object] | None = None,
    bounds: Sequence[tuple[Op, float]] = (),
    **changes: Any,
) -> EvidenceRecord:
    at = BEGAN + timedelta(days=night)
    criteria = [
        Criterion(metric=metric, op=op, bound=bound, unit=unit, label="floor", source="test") for op, bound in bounds
    ]
    figure = Metric(name=metric, target=f"{node}/{part}", value=value, unit=unit)
    return record(GATE).model_copy(
        update={
            "id": f"{night}-{node}-{part}",
            "target": node,
            "nodes": [node],
            "inputs": {"title": "GEMM", "attempt": 1, "size": 8192} | (inputs or {}),
            "fingerprints": [fingerprint(node=node, **changes)],
            "verdict": Verdict(outcome=Outcome.PASS, metrics=[figure], criteria=criteria),
            "started": at,
            "finished": at,
        }
    )


def rows(records: Sequence[EvidenceRecord]) -> list[TrendRow]:
    return judged(Pasts.of(records, NAMES), DECLARED, PLATFORMS)


def only(records: Sequence[EvidenceRecord]) -> TrendRow:
    (found,) = rows(records)
    return found


def nights(values: Sequence[float], **more: Any) -> list[EvidenceRecord]:
    return [measured(night, value, **more) for night, value in enumerate(values)]


STEADY = [700.0, 702, 699, 701, 700, 698, 701, 699, 700, 702, 698]


def test_a_figure_that_fell_for_nights_is_a_regression() -> None:
    row = only(nights([*STEADY, 660, 661, 659]))
    assert (row.outcome, row.now, row.past.centre, row.declared) == (TrendOutcome.REGRESSION, 660, 700, True)
    assert str(row.fleet) == "too few units: 1 of 16"


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ((700, 701, 699), TrendOutcome.STEADY),
        ((600, 700, 701), TrendOutcome.STEADY),  # one bad night
        ((600, 701, 600), TrendOutcome.REGRESSION),  # two of three
        ((690, 690, 690), TrendOutcome.STEADY),  # less than half of the declared effect, 1.5 %
        ((740, 741, 742), TrendOutcome.STEADY),  # better
    ],
)
def test_three_nights_decide(last: Sequence[float], outcome: TrendOutcome) -> None:
    assert only(nights([*STEADY, *last])).outcome is outcome


def test_a_noisy_past_asks_for_more() -> None:
    noisy = [700.0, 650, 740, 690, 760, 640, 720, 670, 730, 690, 750]
    assert only(nights([*noisy, 660, 661, 659])).outcome is TrendOutcome.STEADY


def test_too_few_readings_are_counted() -> None:
    row = only(nights([*STEADY[:10], 600, 600, 600]))
    assert (row.outcome, str(row.past)) == (TrendOutcome.FEW, "too few readings: 13 of 14")


def test_a_new_driver_begins_a_new_past_and_is_said() -> None:
    before = nights(STEADY)
    after = [measured(night, 660, driver="580.200.01") for night in range(11, 16)]
    row = only([*before, *after])
    assert row.step is not None
    assert (row.step.what, row.step.before, row.step.after) == ("driver 580.173.02 -> 580.200.01", 700, 660)
    assert str(row.past) == "too few readings: 5 of 14"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": ["G9", "G1"]}, "another part"),
        ({"vbios": ["97", "97"]}, "VBIOS 96 -> 97"),
        ({"inputs": {"size": 4096}}, "size 8192 -> 4096"),
        ({"kernel": "6.2.0", "nic_firmware": ["29"]}, "kernel 6.1.0 -> 6.2.0; NIC firmware 28 -> 29"),
        ({"gpus": ["G0", "G9"]}, ""),  # another GPU of the node
        ({"boot_id": "b2"}, ""),
        ({"inputs": {"attempt": 2, "launches": 9}}, ""),
    ],
)
def test_what_begins_a_new_past(change: dict[str, Any], words: str) -> None:
    row = only([*nights(STEADY), measured(12, 700, **change)])
    assert (row.step.what if row.step is not None else "") == words


def fleet(now: Sequence[float]) -> list[EvidenceRecord]:
    """Return fourteen nights of as many nodes, whose last three nights have these values."""
    return [
        measured(night, 700.0 if night < 11 else value, node=f"node{number + 1:02d}")
        for number, value in enumerate(now)
        for night in range(14)
    ]


def test_a_fall_of_one_node_is_its_own() -> None:
    found = {row.key.target: row for row in rows(fleet([660.0] + [700.0] * 15))}
    assert found["node01/gpu0"].outcome is TrendOutcome.REGRESSION
    assert (str(found["node01/gpu0"].fleet), found["node01/gpu0"].fleet.centre) == ("behind", 700)
    assert {row.outcome for name, row in found.items() if name != "node01/gpu0"} == {TrendOutcome.STEADY}


def test_a_fall_of_all_is_told_apart() -> None:
    assert {row.outcome for row in rows(fleet([660.0] * 16))} == {TrendOutcome.WITH_FLEET}


def test_one_that_was_always_slower_is_behind_its_fleet_only() -> None:
    slow = [measured(night, 660.0) for night in range(14)]
    others = [one for one in fleet([700.0] * 17) if one.target != "node01"]
    found = {row.key.target: row.outcome for row in rows([*slow, *others])}
    assert found["node01/gpu0"] is TrendOutcome.BEHIND_FLEET


def test_units_of_another_model_or_software_are_no_fleet() -> None:
    records = fleet([660.0] + [700.0] * 15)
    other = judged(Pasts.of(records, NAMES), DECLARED, {**PLATFORMS, "node02": "hgx_b200"})
    assert {str(row.fleet) for row in other if row.key.target == "node01/gpu0"} == {"too few units: 15 of 16"}


@pytest.mark.parametrize(
    ("op", "last", "outcome"),
    [
        (Op.LE, 66.0, TrendOutcome.REGRESSION),
        (Op.LE, 55.0, TrendOutcome.STEADY),
        (Op.GE, 55.0, TrendOutcome.REGRESSION),
        (Op.GE, 66.0, TrendOutcome.STEADY),
        (Op.LE, 62.0, TrendOutcome.STEADY),  # less than half of the assumed effect of 10 %
    ],
)
def test_a_figure_that_its_gate_does_not_compare_goes_by_its_bounds(op: Op, last: float, outcome: TrendOutcome) -> None:
    values = [60.0] * 11 + [last] * 3
    row = only(nights(values, metric="temperature", unit="degC", bounds=[(op, 85.0)]))
    assert (row.outcome, row.declared) == (outcome, False)


def test_beside_a_floor_a_ceiling_is_no_goal() -> None:
    row = only(nights([60.0] * 11 + [50.0] * 3, metric="rate", unit="GB/s", bounds=[(Op.LE, 90.0), (Op.GE, 40.0)]))
    assert (row.better, row.outcome) == ("higher", TrendOutcome.REGRESSION)


def test_what_has_no_good_side_is_not_judged() -> None:
    row = only(nights([60.0] * 14, metric="temperature", unit="degC"))
    assert str(row.past) == "not judged: neither its gate nor a bound says which side is worse"
    assert row.outcome is TrendOutcome.NOT_JUDGED


def test_values_without_a_positive_median_are_not_judged() -> None:
    row = only(nights([0.0] * 14, metric="rate", unit="GB/s", bounds=[(Op.GE, 0.0)]))
    assert str(row.past) == "not judged: its median is not positive"


def test_counts_and_values_that_must_equal_one_have_no_trend() -> None:
    assert rows(nights([8.0], metric="links", unit="1")) == []
    assert rows(nights([8.0], metric="speed", unit="GT/s", bounds=[(Op.EQ, 8.0)])) == []


def test_conclusions_repeat_figures_and_do_not_count() -> None:
    again = measured(3, 100)
    told = again.model_copy(update={"inputs": {"conclusion_of": ["x"]}})
    completed = measured(4, 701).model_copy(update={"id": "later"})
    assert len(only([*nights(STEADY), told, completed]).readings) == 11


def test_nodes_that_left_the_site_are_left_out() -> None:
    assert rows([measured(1, 700, node="gone")]) == []
