"""Fleet and siblings: outliers, bounds and their inputs, and how a stage uses stored evidence of other nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackready.drivers.remote import Answer
from rackready.evidence.report import build, write
from rackready.gates.base import REGISTRY, Command, FleetMetric, Gate, GateFacts, Outputs, Run
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.validate import Stage
from rackready.gates.judging.expectation import fleet_outliers, launches
from rackready.gates.judging.fleet import Comparison, Unit, compare, part_bound, repeats, standard_error
from rackready.gates.records.rejudge import Rejudge
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Finding, Metric, Outcome, Verdict
from rackready.model.phase import NodeResult
from rackready.model.profile import GateSetEntry
from rackready.paths import EnvPaths
from tests.gates.fake import answered
from tests.gates.stage import fingerprint_of, site_with, stage_of
from tests.gates.support import rack

RATE = FleetMetric("rate", effect=0.03)
DELAY = FleetMetric("delay", effect=0.1, better="lower")
SPEED = "node/trial/performance/speed"


def units(values: Sequence[float]) -> list[Unit]:
    return [Unit(f"node{number:02}", f"node{number:02}", value, "GB/s") for number, value in enumerate(values, 1)]


def comparison(values: Sequence[float], metric: FleetMetric = RATE, count: int = 7) -> Comparison:
    found = compare(metric, units(values), count)
    assert found is not None
    return found


def test_the_slow_one_is_named_and_the_bound_can_be_computed_by_hand() -> None:
    values = [100.0 + 0.1 * (number % 3) for number in range(19)] + [96.0]
    found = comparison(values)
    assert [unit.node for unit in found.outliers] == ["node20"]
    error = 1.2533 * 0.01 * median(values) / 7**0.5
    assert found.spread == pytest.approx(max(1.4826 * 0.1, error))
    assert found.z == pytest.approx(3.2905, abs=1e-4), "normal quantile of 1 - 0.01/20"
    assert found.bound == pytest.approx(median(values) - max(found.z * found.spread, 0.015 * median(values)))
    criterion = found.criterion()
    assert criterion.inputs == {
        "M": 20,
        "units": 20,
        "median": found.centre,
        "spread": found.spread,
        "z": found.z,
        "d": 0.03,
    }
    assert (criterion.op, criterion.label, criterion.derived) == ("ge", "fleet", True)


def test_a_site_that_is_measured_wave_by_wave_is_corrected_for_all_of_its_units() -> None:
    values = [100.0 + 0.1 * (number % 3) for number in range(127)] + [98.0]
    alone = compare(RATE, units(values), 7)
    whole = compare(RATE, units(values), 7, 12_500)
    assert alone is not None
    assert whole is not None
    assert ([unit.node for unit in alone.outliers], whole.outliers) == (["node128"], ())
    assert whole.criterion().inputs["M"] == 12_500
    assert whole.z == pytest.approx(4.80, abs=0.01), "normal quantile of 1 - 0.01/12,500"


def test_where_lower_is_better_the_high_one_is_named() -> None:
    found = comparison([2.0] * 19 + [3.0], DELAY)
    assert [unit.node for unit in found.outliers] == ["node20"]
    assert found.criterion().op == "le"
    assert not comparison([2.0] * 19 + [1.0], DELAY).outliers


def test_fifteen_are_no_fleet() -> None:
    assert compare(RATE, units([100.0] * 14 + [50.0]), 1) is None


def test_a_small_deficit_counts_for_nothing_however_alike_the_others_are() -> None:
    assert not comparison([100.0] * 400 + [98.6], count=100_000).outliers, "1.4 % is below half of the declared effect"
    assert comparison([100.0] * 400 + [98.4], count=100_000).outliers


@given(st.lists(st.floats(50, 150), min_size=16, max_size=60), st.integers(1, 20), st.sampled_from([RATE, DELAY]))
def test_the_bound_says_what_the_rule_says(values: list[float], count: int, metric: FleetMetric) -> None:
    found = comparison(values, metric, count)
    sign = 1 if metric.better == "higher" else -1
    below = [value for value in values if sign * (value - found.bound) < 0 and abs(value - found.bound) > 1e-6]
    seen = [unit.value for unit in found.outliers if abs(unit.value - found.bound) > 1e-6]
    assert seen == below


@given(st.lists(st.floats(50, 150), min_size=16, max_size=40))
def test_what_is_wired_in_is_the_rule_itself(values: list[float]) -> None:
    rule = fleet_outliers(values, standard_error=standard_error(RATE, median(values), 3), effect=0.03)
    assert [unit.value for unit in comparison(values, RATE, 3).outliers] == [values[place] for place in rule]


def test_a_part_stands_among_the_others_of_its_node() -> None:
    found = part_bound(RATE, [700.0] * 7, 32, count=3)
    assert round(found.bound, 1) == 680.8
    assert (found.holds(690.0), found.holds(640.0)) == (True, False)
    assert found.criterion("TFLOPS").inputs == {
        "M": 32,
        "median": 700.0,
        "spread": found.spread,
        "z": found.z,
        "d": RATE.effect,
    }
    error = standard_error(RATE, 700.0, 3)
    assert found.spread == pytest.approx(error * 1.1066, rel=1e-4), (
        "seven that agree to the digit are not believed to have no noise, nor is their median"
    )


def test_lower_may_be_better_and_a_tool_may_give_its_own_error() -> None:
    found = part_bound(FleetMetric("latency", 0.2, better="lower"), [1.96, 1.95, 1.97], 8, error=0.01)
    assert round(found.bound, 3) == 2.156
    assert (found.holds(2.1), found.holds(2.2)) == (True, False)


def test_at_least_the_parts_themselves_are_compared() -> None:
    assert part_bound(RATE, [700.0] * 7, 1).comparisons == 8


def test_how_often_one_figure_was_measured() -> None:
    known = rack(4)
    nccl = gate("node/gpu/performance/nccl-all-reduce")
    assert repeats(nccl, known.fleet, nccl.fleet[0], 1) == launches(4) == 5
    assert repeats(gate(nccl.id, {"launches": 9}), known.fleet, nccl.fleet[0], 1) == 9
    assert repeats(nccl, known.fleet, nccl.fleet[0], 8) == launches(32), (
        "with eight units a node as many launches as 32 units ask for"
    )
    assert repeats(gate("node/gpu/sanity/versions"), known.fleet, RATE, 8) == 1


# in a stage ------------------------------------------------------------------------------------------------------


class Speed(Gate):
    """Every node is as fast as it says; no bound can judge it."""

    fleet = (RATE, FleetMetric("fp8_rate", effect=0.03))
    """The second is one that these nodes do not have."""
    covers = frozenset({"node"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        return [Run(node, node, (node,), (Command("one", node, ("speed",), 5),)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts
        node = run.target
        value = float(outputs["one"].stdout)
        slow = [Finding(where=node, what="slow", expected="1", actual="0", next_step="Repair.")] if value < 10 else []
        metrics = [Metric(name="rate", target=node, value=value, unit="GB/s")]
        return Verdict(
            outcome=Outcome.FAIL if slow else Outcome.PASS,
            findings=slow,
            metrics=metrics,
            measured=[node],
            fleet_pending=not slow,
        )


@pytest.fixture(autouse=True)
def speed() -> Iterator[None]:
    before = dict(all_gates())
    type("TrialSpeed", (Speed,), {"id": SPEED, "__doc__": "Every node is as fast as it says."})
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


ALL = [f"node{number:02}" for number in range(1, 21)]


def measure(
    tmp_path: Path, nodes: Sequence[str], rates: dict[str, float], campaign: str = "c1", mtu: int = 9000, **kept: object
) -> tuple[Stage, dict[str, NodeResult]]:
    def answer(node: str, _: Sequence[str]) -> Answer:
        return answered(str(rates.get(node, 100.0)))

    replies = {"Print a node's identity": lambda node, argv: fingerprint_of(node, argv, **kept), "speed": answer}
    site = site_with(len(ALL))
    site = site.model_copy(update={"fabric": site.fabric.model_copy(update={"mtu": mtu})})
    stage = stage_of(tmp_path, replies, nodes, site, campaign)
    return stage, stage.run(list(nodes), [], [GateSetEntry(id=SPEED, max_age_hours=24)], full_set=False)


def newest(stage: Stage, node: str) -> EvidenceRecord:
    return stage.state.recorder.store.records(target=node, gate=SPEED)[-1]


def test_sixteen_identical_nodes_judge_each_other(tmp_path: Path) -> None:
    stage, results = measure(tmp_path, ALL[:16], {"node07": 90.0})
    bad = {node: result.message for node, result in results.items() if result.outcome is not Outcome.PASS}
    assert bad == {
        "node07": (
            "node07: rate falls behind its fleet - Expected: at least 96.71 GB/s (median of 16 identical units 100) "
            "Actual: 90 GB/s. "
            f"Compare temperatures, clocks and firmware with a good one, repair, then run {SPEED} again: "
            "docs/runbooks/fleet-outlier.md"
        )
    }
    good = newest(stage, "node01")
    assert (good.verdict.note, good.verdict.criteria[-1].label, good.inputs["fleet"]) == (None, "fleet", {"rate": 16})
    assert good.raw, "the completed record names the raw output that it was measured by"
    assert newest(stage, "node07").verdict.measured == []


def test_fifteen_stay_pending_and_do_not_satisfy_the_gate(tmp_path: Path) -> None:
    stage, results = measure(tmp_path, ALL[:15], {"node07": 90.0})
    assert {result.outcome for result in results.values()} == {Outcome.ERROR}
    assert results["node07"].message.startswith(f"{SPEED}: fleet pending - Expected: a bound that judges")
    assert newest(stage, "node07").verdict.fleet_pending


def test_stored_evidence_of_other_nodes_counts(tmp_path: Path) -> None:
    measure(tmp_path, ALL[:15], {})
    _, results = measure(tmp_path, ALL[15:], {"node18": 90.0}, "c2")
    assert [node for node, result in results.items() if result.outcome is Outcome.PASS] == [
        "node16",
        "node17",
        "node19",
        "node20",
    ]
    assert "median of 20 identical units" in results["node18"].message


def test_a_node_of_another_firmware_is_of_another_fleet(tmp_path: Path) -> None:
    measure(tmp_path, ALL[:15], {}, kernel="6.1.1")
    _, results = measure(tmp_path, ALL[15:], {}, "c2")
    assert {result.outcome for result in results.values()} == {Outcome.ERROR}, "5 of one kernel are no fleet"


def test_evidence_under_another_desired_state_does_not_count(tmp_path: Path) -> None:
    measure(tmp_path, ALL[:15], {})
    _, results = measure(tmp_path, ALL[15:], {}, "c2", mtu=8900)
    assert {result.outcome for result in results.values()} == {Outcome.ERROR}, (
        "15 that were measured as something else are no fleet"
    )


def test_a_stored_unit_that_falls_behind_now_is_told_and_its_record_left_alone(tmp_path: Path) -> None:
    measure(tmp_path, ALL[:15], {"node03": 80.0})
    stage, _ = measure(tmp_path, ALL[15:], {}, "c2")
    assert newest(stage, "node03").verdict.outcome is Outcome.PASS
    said_of = [event.text for event in stage.state.recorder.ledger.events("c2") if event.node == "node03"]
    assert len(said_of) == 1
    assert said_of[0].startswith(f"{SPEED}: its stored evidence falls behind now: node03: rate falls behind its fleet")


def test_what_failed_already_is_no_measure_for_others(tmp_path: Path) -> None:
    _, results = measure(tmp_path, ALL[:16], {"node07": 5.0})
    assert results["node07"].outcome is Outcome.FAIL
    assert {result.outcome for node, result in results.items() if node != "node07"} == {Outcome.ERROR}, (
        "15 remain: pending"
    )


def test_what_was_measured_before_the_nodes_last_change_does_not_count(tmp_path: Path) -> None:
    stage, _ = measure(tmp_path, ALL[:15], {})
    for node in ALL[:5]:
        stage.state.recorder.ledger.change_begins(node, "install")
    _, results = measure(tmp_path, ALL[15:], {}, "c2")
    assert {result.outcome for result in results.values()} == {Outcome.ERROR}, (
        "10 that count and 5 new ones are no fleet"
    )


def test_stored_outputs_that_are_judged_again_are_held_against_their_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate of this test is known in this process alone."""
    monkeypatch.setattr("rackready.evidence.parts.CHUNK", len(ALL))
    stage, _ = measure(tmp_path, ALL, {"node07": 90.0})
    site = stage.state.site
    before = build(site, EnvPaths(tmp_path, "sim"), "c1")
    found = json.loads(write(site, EnvPaths(tmp_path, "sim"), "c1", Rejudge()).json.read_text(encoding="utf-8"))
    assert [node["outcome"] for node in found["nodes"]] == [node["outcome"] for node in before["nodes"]]
    slow = found["nodes"][6]["gates"][0]
    assert (slow["outcome"], slow["measured"]) == ("fail", [])
    assert slow["findings"][0]["text"].startswith("node07: rate falls behind its fleet - Expected: at least 96.")
    for now, then in zip(found["nodes"], before["nodes"], strict=True):
        assert {name: now["gates"][0][name] for name in Verdict.model_fields} == {
            name: then["gates"][0][name] for name in Verdict.model_fields
        }
