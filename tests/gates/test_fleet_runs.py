"""Runs over several nodes compared with each other: a run is one unit, whose figure is that of all of its nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rackready.drivers.remote import Answer
from rackready.gates.base import REGISTRY, Command, FleetMetric, Gate, GateFacts, Outputs, Run
from rackready.gates.engine.fleet_stage import units_of
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.validate import Stage
from rackready.gates.fabric.collectives import GATES
from rackready.gates.judging.fleet import Unit, compare_in_site
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Metric, Outcome, Verdict
from rackready.model.phase import NodeResult
from rackready.model.profile import GateSetEntry
from tests.gates.fake import answered
from tests.gates.stage import fingerprint_of, site_with, stage_of

RATE = FleetMetric("busbw", effect=0.03, of="run")
PAIR = "pair/trial/performance/rate"
ALL = [f"node{number:02}" for number in range(1, 41)]


def runs(values: Sequence[float], size: int = 2, first: int = 0) -> list[Unit]:
    """Units of as many runs as there are values, each over ``size`` nodes."""
    return [
        Unit(f"node{first + size * place + member:03}", f"run{first + place}", value, "GB/s")
        for place, value in enumerate(values)
        for member in range(size)
    ]


def test_a_run_counts_once_and_falls_back_with_all_of_its_nodes() -> None:
    found = compare_in_site(gate(GATES[0].id), RATE, runs([100.0] * 15 + [90.0]), 32)
    assert found is not None
    assert found.count == 16
    assert found.criterion().inputs["units"] == 16
    assert found.criterion().inputs["M"] == 16, "32 nodes make 16 pairs"
    assert [(unit.node, unit.target) for unit in found.outliers] == [("node030", "run15"), ("node031", "run15")]
    assert {unit.node for unit in found.units} == {f"node{number:03}" for number in range(32)}


@pytest.mark.parametrize("stored", [0, 1])
def test_a_run_that_one_of_its_nodes_has_from_another_day_is_judged_by_the_worse_figure(stored: int) -> None:
    """node030 was measured again with node031, whose record of before stands."""
    units = runs([100.0] * 16)
    units[30 + stored] = dataclasses.replace(units[30 + stored], value=90.0)
    found = compare_in_site(gate(GATES[0].id), RATE, units, 32)
    assert found is not None
    assert [(unit.node, unit.value) for unit in found.outliers] == [("node030", 90.0), ("node031", 90.0)]


def test_sixteen_nodes_of_one_run_are_no_fleet() -> None:
    assert compare_in_site(gate(GATES[0].id), RATE, runs([100.0], size=16), 16) is None
    assert compare_in_site(gate(GATES[0].id), RATE, runs([100.0] * 15), 30) is None


def test_runs_of_another_size_are_of_another_fleet() -> None:
    found = compare_in_site(gate(GATES[0].id), RATE, runs([100.0] * 16) + runs([50.0, 50.0], size=3, first=100), 40)
    assert found is not None
    assert (found.count, found.outliers) == (16, ())
    assert not any(unit.node >= "node100" for unit in found.units), "what it is not compared with stays pending"


def test_a_metric_of_runs_takes_no_figure_of_a_node_and_the_other_way_round() -> None:
    metrics = [
        Metric(name="busbw", target=target, value=1.0, unit="GB/s")
        for target in ("node01", "node01/gpu0", "node01+node02", "rack01")
    ]
    verdict = Verdict(outcome=Outcome.PASS, metrics=metrics)
    assert [unit.target for unit in units_of(RATE, "node01", verdict)] == ["node01+node02", "rack01"]
    assert [unit.target for unit in units_of(FleetMetric("busbw", effect=0.03), "node01", verdict)] == [
        "node01",
        "node01/gpu0",
    ]


@pytest.mark.parametrize("kind", GATES, ids=lambda kind: kind.id)
def test_every_collective_over_several_nodes_has_a_fleet(kind: type[Gate]) -> None:
    assert kind.fleet == (RATE,)


# in a stage ------------------------------------------------------------------------------------------------------


class Rate(Gate):
    """Two nodes together are as fast as the first one says; no bound can judge it."""

    fleet = (RATE,)
    covers = frozenset({"node"})
    min_nodes = 2

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        return [
            Run(f"{one}+{two}", f"{one}+{two}", (one, two), (Command("one", one, ("rate",), 5),)) for one, two in pairs
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts
        metrics = [Metric(name="busbw", target=run.target, value=float(outputs["one"].stdout), unit="GB/s")]
        return Verdict(outcome=Outcome.PASS, metrics=metrics, measured=list(run.nodes), fleet_pending=True)


@pytest.fixture(autouse=True)
def trial() -> Iterator[None]:
    before = dict(all_gates())
    type("TrialRate", (Rate,), {"id": PAIR, "__doc__": "Two nodes together are as fast as the first one says."})
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def measure(
    tmp_path: Path, nodes: Sequence[str], rates: dict[str, float], campaign: str = "c1"
) -> tuple[Stage, dict[str, NodeResult]]:
    def answer(node: str, _: Sequence[str]) -> Answer:
        return answered(str(rates.get(node, 100.0)))

    stage = stage_of(
        tmp_path, {"Print a node's identity": fingerprint_of, "rate": answer}, nodes, site_with(len(ALL)), campaign
    )
    return stage, stage.run(list(nodes), [], [GateSetEntry(id=PAIR, max_age_hours=24)], full_set=False)


def newest(stage: Stage, node: str) -> EvidenceRecord:
    return stage.state.recorder.store.records(target=node, gate=PAIR)[-1]


def test_sixteen_pairs_judge_each_other(tmp_path: Path) -> None:
    stage, results = measure(tmp_path, ALL[:32], {"node07": 90.0})
    bad = {node: result.message for node, result in results.items() if result.outcome is not Outcome.PASS}
    words = (
        "node07+node08: busbw falls behind its fleet - Expected: at least 96.71 GB/s (median of 16 identical units "
        "100) Actual: 90 GB/s. "
        "This figure does not show which node is slow: compare the rails' shares and the figures of its pairs with "
        "those of a good run, repair, "
        f"then run {PAIR} again: docs/runbooks/fleet-outlier.md"
    )
    assert bad == {"node07": words, "node08": words}
    good = newest(stage, "node01")
    assert (good.verdict.note, good.verdict.criteria[-1].label, good.inputs["fleet"]) == (None, "fleet", {"busbw": 16})
    assert newest(stage, "node08").verdict.measured == [], "a slow run proves nothing of its nodes"


def test_fifteen_pairs_stay_pending(tmp_path: Path) -> None:
    stage, results = measure(tmp_path, ALL[:30], {})
    assert {result.outcome for result in results.values()} == {Outcome.ERROR}
    assert newest(stage, "node01").verdict.fleet_pending


def test_pairs_that_were_measured_before_count(tmp_path: Path) -> None:
    measure(tmp_path, ALL[:30], {})
    stage, results = measure(tmp_path, ALL[30:], {"node39": 90.0}, "c2")
    assert sorted(node for node, result in results.items() if result.outcome is Outcome.FAIL) == ["node39", "node40"]
    assert {results[node].outcome for node in ALL[30:38]} == {Outcome.PASS}
    assert newest(stage, "node01").verdict.fleet_pending, "its own record is not touched: its next stage completes it"
