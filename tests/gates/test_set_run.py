"""Gate sets run by name: once or for hours, with load in power-on waves; a burn-in leaves a record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.drivers.remote import Answer
from rackready.gates.base import REGISTRY, Command, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import set_run
from rackready.gates.engine.load_waves import Waves, waves
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.set_run import BURN_IN, SetRun
from rackready.gates.engine.single_node import NODE_WORKERS, Pace
from rackready.gates.engine.validate import Stage
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.profile import GateSet
from rackready.model.site import Site
from tests.gates.fake import answered
from tests.gates.stage import ROOT, fingerprint_of, stage_of

LOADS, LOOKS = "node/trial/stress/loads", "node/trial/sanity/looks"
NODES = ["node01", "node02"]


class Trial(Gate):
    """It holds."""

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        return [Run(node, node, (node,), (Command("one", node, (self.id,), 5),)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts
        bad = (
            []
            if outputs["one"].stdout == "good"
            else [Finding(where=run.target, what="load", expected="good", actual="bad", next_step="Repair.")]
        )
        return Verdict(outcome=Outcome.FAIL if bad else Outcome.PASS, findings=bad, measured=[run.target])


@pytest.fixture(autouse=True)
def trials() -> Iterator[None]:
    before = dict(all_gates())
    for gate_id in (LOADS, LOOKS):
        type("TrialOfSets", (Trial,), {"id": gate_id, "__doc__": "It holds."})
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def trial_set(**more: Any) -> GateSet:
    return GateSet.model_validate(
        {"id": "trial", "description": "A trial.", "gates": [{"id": LOOKS}, {"id": LOADS}], **more}
    )


class Rack:
    """Nodes that hold, each as many rounds as it is told; every round takes three hours."""

    def __init__(self, tmp_path: Path, holds: dict[str, int] | None = None) -> None:
        self.tmp_path, self.holds = tmp_path, holds or {}
        self.loaded: list[tuple[str, float]] = []
        self.rounds: list[list[str]] = []
        self.stages: list[Stage] = []

    def answer(self, node: str, argv: Sequence[str]) -> Answer:
        if argv[0] == LOADS:
            self.loaded.append((node, time.monotonic()))
        return answered("good" if len(self.rounds) <= self.holds.get(node, 99) else "bad")

    def begin(self, nodes: Sequence[str]) -> Stage:
        self.rounds.append(list(nodes))
        self.stages.append(
            stage_of(self.tmp_path, {"Print a node's identity": fingerprint_of, "node/trial": self.answer}, nodes)
        )
        return self.stages[-1]

    def clock(self) -> float:
        return 3 * 3600.0 * len(self.rounds)

    def run(self, found: GateSet, order: Waves | None = None) -> dict[str, NodeResult]:
        return SetRun(found, order or Waves((tuple(NODES),)), self.begin, self.clock).run(NODES)


def burn_ins(rack: Rack) -> dict[str, tuple[Outcome, dict[str, float]]]:
    records = rack.stages[-1].state.recorder.store.records(gate=BURN_IN)
    return {
        record.target: (record.verdict.outcome, {metric.name: metric.value for metric in record.verdict.metrics})
        for record in records
    }


def test_a_set_without_hours_is_run_once(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    results = rack.run(trial_set())
    assert rack.rounds == [NODES]
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert burn_ins(rack) == {}


def test_a_burn_in_goes_on_until_its_hours_are_over(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    results = rack.run(trial_set(repeat_hours=24))
    assert len(rack.rounds) == 8, "eight rounds of three hours"
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert burn_ins(rack) == dict.fromkeys(NODES, (Outcome.PASS, {"hours": 24.0, "rounds": 8.0}))


def test_a_node_that_fails_a_round_leaves_and_is_measured_no_more(tmp_path: Path) -> None:
    rack = Rack(tmp_path, {"node02": 3})
    results = rack.run(trial_set(repeat_hours=24))
    assert rack.rounds == [NODES] * 4 + [["node01"]] * 4
    assert {node: result.outcome for node, result in results.items()} == {
        "node01": Outcome.PASS,
        "node02": Outcome.FAIL,
    }
    assert burn_ins(rack) == {
        "node01": (Outcome.PASS, {"hours": 24.0, "rounds": 8.0}),
        "node02": (Outcome.FAIL, {"hours": 12.0, "rounds": 4.0}),
    }
    (bad,) = rack.stages[-1].state.recorder.store.records(gate=BURN_IN, target="node02")
    assert str(bad.verdict.findings[0]) == (
        "node02: round 4 of the burn-in - Expected: pass Actual: fail: node02: load: bad (expected: good). "
        "Repair.. "
        "Repair, then run the burn-in again from its beginning."
    )


def test_when_no_node_is_left_it_ends(tmp_path: Path) -> None:
    rack = Rack(tmp_path, {"node01": 0, "node02": 1})
    rack.run(trial_set(repeat_hours=24))
    assert rack.rounds == [NODES, ["node02"]]


def test_load_comes_on_wave_by_wave_and_checks_wait_for_none(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    begun = time.monotonic()
    rack.run(trial_set(wave_gap_s=0.6), Waves((("node02",), ("node01",))))
    (first, _), (second, two) = rack.loaded
    assert (first, second) == ("node02", "node01")
    assert two - begun >= 0.6
    assert rack.stages[0].pace == Pace(NODE_WORKERS, {"node02": 0, "node01": 0.6})
    texts = [event.text for event in rack.stages[0].state.recorder.ledger.events("c1") if "wave" in event.text]
    assert texts == ["trial, round 1: wave 1 of 2", "trial, round 1: wave 2 of 2"]


def test_a_staged_set_loads_all_nodes_at_once_in_the_end(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    nodes = [f"node{number:02}" for number in range(1, 41)]
    run = SetRun(trial_set(wave_gap_s=0), Waves((tuple(nodes),)), lambda _: rack.begin(NODES), rack.clock)
    assert run._stage(nodes, 1).pace == Pace(40, dict.fromkeys(nodes, 0))


def test_a_set_is_run_with_what_the_site_says_of_its_gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch, image = "node/gpu/performance/gemm-torch", {"image": "registry.example/pytorch:25.10"}
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    site = parse_site(
        {**document, "gates": {"set": "bringup", "also": [{"id": torch, "inputs": image}]}},
        source="site.yml",
        base=ROOT,
    )
    ran: list[GateSet] = []

    def run(self: SetRun, _nodes: Sequence[str]) -> dict[str, NodeResult]:
        ran.append(self.found)
        return {}

    monkeypatch.setattr(set_run, "site_of", lambda _: site)
    monkeypatch.setattr(set_run, "stages", lambda *_: nullcontext(lambda nodes: Rack(tmp_path).begin(nodes)))
    monkeypatch.setattr(SetRun, "run", run)
    set_run.run_set(PhaseContext("sim", tmp_path, "c1"), NODES, "burnin")
    assert {entry.id: entry.inputs for entry in ran[0].gates if entry.inputs} == {torch: image}


# from the capacity plan ---------------------------------------------------------------------------------------------


def powered(usable_kw: float = 2000, **power_on: object) -> Site:
    """The simulated rack's four nodes in two racks, fed by one busway."""
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    nodes = document["racks"][0]["nodes"]
    feed = {"name": "a", "from": "busway-1", "rating_kw": 100}
    racks = [
        {"name": f"rack0{number + 1}", "feeds": [feed], "nodes": nodes[2 * number : 2 * number + 2]}
        for number in range(2)
    ]
    power = [
        {"name": "grid", "kind": "utility", "rating_kw": 9000},
        {"name": "busway-1", "kind": "busway", "fed_by": ["grid"], "rating_kw": usable_kw},
    ]
    return parse_site(
        {**document, "racks": racks, "facility": {"power": power, "power_on": power_on}}, source="site.yml", base=ROOT
    )


ALL = ["node01", "node02", "node03", "node04"]


def test_waves_are_those_of_the_capacity_plan() -> None:
    assert waves(powered(), ALL).order == (tuple(ALL),)
    found = waves(powered(max_racks=1), ALL)
    assert found.order == (("node01", "node02"), ("node03", "node04"))
    assert found.load_after(60) == {"node01": 0, "node02": 0, "node03": 60, "node04": 60}
    assert waves(powered(max_racks=1), ["node04"]).order == (("node04",),), (
        "nobody waits for racks that are not in the run"
    )


def test_what_no_wave_can_carry_is_not_loaded() -> None:
    found = waves(powered(usable_kw=25), ALL)
    assert found.order == (("node01", "node02"),)
    assert set(found.refused) == {"node03", "node04"}
    assert found.refused["node03"].startswith(
        "the capacity plan has no wave for its rack - Expected: load within every rating Actual: "
    )


def test_without_a_power_graph_nothing_is_staged_and_that_is_said() -> None:
    site = parse_site(read_yaml(ROOT / "inventories/sim/site.yml"), source="site.yml", base=ROOT)
    assert waves(site, ALL) == Waves(
        (tuple(ALL),), note="the site file has no facility.power: all nodes are loaded at once"
    )
