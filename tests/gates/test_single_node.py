"""Single-node gates: read-only ones run in parallel, bounded; results and records keep the order of the set."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from rackready.drivers.remote import Answer
from rackready.gates.base import REGISTRY, Command, Gate, GateFacts, Outputs, Run
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.single_node import SIDE_BY_SIDE, in_levels, reads_only
from rackready.gates.engine.stage_state import StageState
from rackready.gates.engine.validate import Stage
from rackready.ledger.store import Ledger
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.profile import GateSetEntry
from tests.gates.fake import answered
from tests.gates.stage import fingerprint_of, stage_of
from tests.gates.support import rack

CHECKS = [f"node/trial/sanity/check{number}" for number in range(9)]
ALONE = "node/trial/sanity/alone"
LOADS = "node/trial/stress/loads"


class Trial(Gate):
    """A check."""

    claims: ClassVar[frozenset[str]] = frozenset()

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        return [Run(node, node, (node,), (Command("one", node, (self.id,), 5),), claims=self.claims) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts
        good = outputs["one"].stdout == "good"
        bad = [
            Finding(where=run.target, what="word", expected="good", actual=outputs["one"].stdout, next_step="Repair.")
        ]
        return Verdict(
            outcome=Outcome.PASS if good else Outcome.FAIL, findings=[] if good else bad, measured=[run.target]
        )


@pytest.fixture(autouse=True)
def trials() -> Iterator[None]:
    before = dict(all_gates())
    for gate_id in [*CHECKS, LOADS]:
        type("OneTrial", (Trial,), {"id": gate_id, "__doc__": f"{gate_id} is good."})
    type("AloneTrial", (Trial,), {"id": ALONE, "claims": frozenset({"node"}), "__doc__": "Claims its node."})
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


class Meter:
    """Answers 'good' and counts parallel commands; the first waits until ``wanted`` have started, or gives up."""

    def __init__(self, wanted: int = 1, bad: Mapping[str, str] | None = None, patience_s: float = 3) -> None:
        self.wanted, self.bad, self.patience_s = wanted, bad or {}, patience_s
        self.now, self.most = 0, 0
        self.seen: list[str] = []
        self.beside: dict[str, int] = {}
        self.enough = threading.Condition()

    def __call__(self, _: str, argv: Sequence[str]) -> Answer:
        with self.enough:
            self.now += 1
            self.most = max(self.most, self.now)
            self.seen.append(argv[0])
            self.enough.notify_all()
            self.enough.wait_for(lambda: self.most >= self.wanted, timeout=self.patience_s)
            self.beside[argv[0]] = self.now
            self.now -= 1
        return answered(self.bad.get(argv[0], "good"))


def entries(ids: Sequence[str]) -> list[GateSetEntry]:
    return [GateSetEntry(id=item) for item in ids]


def played(tmp_path: Path, meter: Meter, ids: Sequence[str]) -> tuple[Stage, dict[str, Outcome]]:
    stage = stage_of(tmp_path, {"Print a node's identity": fingerprint_of, "node/trial": meter}, ["node01"])
    results = stage.run(["node01"], [], entries(ids), full_set=False)
    return stage, {name: Outcome(word) for name, word in results["node01"].data["gates"].items()}


def records(state: StageState) -> list[str]:
    return [record.gate for record in state.recorder.store.records(target="node01")]


def test_checks_run_side_by_side_and_never_more_than_the_limit(tmp_path: Path) -> None:
    meter = Meter(wanted=SIDE_BY_SIDE + 1, patience_s=0.5)
    stage, outcomes = played(tmp_path, meter, CHECKS)
    assert set(outcomes.values()) == {Outcome.PASS}
    assert meter.most == SIDE_BY_SIDE
    assert records(stage.state) == CHECKS, "recorded in the order of the set, whichever ended first"


def test_progress_is_told_in_the_order_of_the_set(tmp_path: Path) -> None:
    stage, _ = played(tmp_path, Meter(wanted=SIDE_BY_SIDE, bad={CHECKS[1]: "bad"}), CHECKS[:3])
    ledger: Ledger = stage.state.recorder.ledger
    assert [event.text for event in ledger.events("c1")] == [
        f"{CHECKS[0]} begins: {CHECKS[0]} is good. (gate 1 of 3)",
        f"{CHECKS[0]} pass",
        f"{CHECKS[1]} begins: {CHECKS[1]} is good. (gate 2 of 3)",
        f"{CHECKS[1]} fail: node01: word - Expected: good Actual: bad. Repair.",
        f"{CHECKS[2]} begins: {CHECKS[2]} is good. (gate 3 of 3)",
        f"{CHECKS[2]} pass",
    ]


def test_a_gate_with_a_claim_has_the_node_for_itself(tmp_path: Path) -> None:
    meter = Meter(wanted=2)
    played(tmp_path, meter, [*CHECKS[:4], ALONE, *CHECKS[4:]])
    assert meter.most > 1
    assert meter.beside[ALONE] == 1
    assert meter.seen.index(ALONE) == 4, "after all that stand before it, before all behind it"


def test_levels_go_in_order_and_nobody_stresses_what_failed(tmp_path: Path) -> None:
    _, outcomes = played(tmp_path, Meter(bad={CHECKS[1]: "bad"}), [LOADS, *CHECKS[:3]])
    assert outcomes == {
        LOADS: Outcome.NOT_RUN,
        CHECKS[0]: Outcome.PASS,
        CHECKS[1]: Outcome.FAIL,
        CHECKS[2]: Outcome.PASS,
    }


def test_a_set_in_any_order_is_run_by_levels() -> None:
    ids = [
        "node/gpu/validation/dcgm-r3",
        "node/gpu/sanity/versions",
        "node/gpu/performance/nccl-all-reduce",
        "node/gpu/sanity/inventory",
    ]
    assert [[one.id for one in level] for level in in_levels([gate(item) for item in ids])] == [
        [ids[1], ids[3]],
        [ids[0]],
        [ids[2]],
    ]


@pytest.mark.parametrize(
    ("gate_id", "reads"),
    [
        ("node/gpu/sanity/inventory", True),
        (ALONE, False),
        ("node/gpu/validation/dcgm-r1", False),
        ("pair/fabric/performance/ib-write-bw", False),
    ],
)
def test_what_merely_reads(gate_id: str, reads: bool) -> None:  # noqa: FBT001
    assert reads_only(gate(gate_id), rack(), "node01") is reads
