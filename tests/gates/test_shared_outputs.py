"""Gates of one node that only read share the outputs of the commands that they have in common, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest

from rackready.drivers.process import Interrupted
from rackready.drivers.remote import Answer
from rackready.gates.base import REGISTRY, Command, Gate, GateFacts, Outputs, Run
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.shared_outputs import Readings, shareable
from rackready.gates.engine.validate import Stage
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.profile import GateSetEntry
from tests.gates.fake import answered
from tests.gates.stage import fingerprint_of, stage_of

READERS = [f"node/trial/sanity/reader{number}" for number in range(3)]
TWICE = "node/trial/sanity/twice"
CLAIMS = "node/trial/sanity/claims"


class Reader(Gate):
    """Reads one report."""

    asks: ClassVar[tuple[str, ...]] = ("one",)
    claims: ClassVar[frozenset[str]] = frozenset()

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        commands = [Command(key, "", ("report",), 5, stage=stage) for stage, key in enumerate(self.asks)]
        return [
            Run(node, node, (node,), tuple(_on(node, one) for one in commands), claims=self.claims) for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts
        words = [outputs[key].stdout for key in self.asks]
        outcome = Outcome.ERROR if "broken" in words else Outcome.PASS
        found = (
            [Finding(where=run.target, what="report", expected="words", actual="broken", next_step="Look.")]
            if outcome is Outcome.ERROR
            else []
        )
        return Verdict(outcome=outcome, findings=found, measured=[run.target], note=" ".join(words))


def _on(node: str, command: Command) -> Command:
    return Command(command.key, node, command.argv, command.timeout_s, stage=command.stage)


@pytest.fixture(autouse=True)
def readers() -> Iterator[None]:
    before = dict(all_gates())
    for gate_id in READERS:
        type("OneReader", (Reader,), {"id": gate_id, "__doc__": "Reads."})
    type("Twice", (Reader,), {"id": TWICE, "asks": ("one", "two"), "__doc__": "Reads twice."})
    type("Claims", (Reader,), {"id": CLAIMS, "claims": frozenset({"node"}), "__doc__": "Has the node for itself."})
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


class Reports:
    """Numbers the reports that a node is asked for; those in ``broken`` are broken."""

    def __init__(self, broken: Sequence[int] = ()) -> None:
        self.broken, self.asked = broken, list[str]()

    def __call__(self, node: str, argv: Sequence[str]) -> Answer:
        del argv
        self.asked.append(node)
        return answered("broken" if len(self.asked) in self.broken else f"report {len(self.asked)}")


def stage(tmp_path: Path, reports: Reports, ids: Sequence[str], nodes: Sequence[str] = ("node01",)) -> Stage:
    made = stage_of(tmp_path, {"Print a node's identity": fingerprint_of, "report": reports}, list(nodes))
    made.run(list(nodes), [], [GateSetEntry(id=item) for item in ids], full_set=False)
    return made


def notes(made: Stage, node: str = "node01") -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for record in made.state.recorder.store.records(target=node):
        found.setdefault(record.gate, []).append(record.verdict.note)
    return found


def test_a_command_of_several_gates_is_run_once_and_each_records_its_output(tmp_path: Path) -> None:
    reports = Reports()
    made = stage(tmp_path, reports, READERS)
    assert (reports.asked, notes(made)) == (["node01"], {name: ["report 1"] for name in READERS})
    raw = {
        output.stdout_sha256 for record in made.state.recorder.store.records(target="node01") for output in record.raw
    }
    assert [made.state.recorder.store.raw(digest) for digest in raw] == ["report 1"]


def test_every_node_is_asked_itself(tmp_path: Path) -> None:
    reports = Reports()
    stage(tmp_path, reports, READERS, ["node01", "node02"])
    assert sorted(reports.asked) == ["node01", "node02"]


def test_a_gate_that_asks_twice_takes_two_readings_of_its_own(tmp_path: Path) -> None:
    reports = Reports()
    made = stage(tmp_path, reports, [READERS[0], TWICE])
    assert len(reports.asked) == 3
    words = (notes(made)[TWICE][0] or "").split()
    assert words[1] != words[3], "both of one run, and neither is another gate's"


def test_nothing_is_shared_past_a_gate_that_has_the_node_for_itself(tmp_path: Path) -> None:
    reports = Reports()
    made = stage(tmp_path, reports, [READERS[0], CLAIMS, READERS[1]])
    assert notes(made) == {READERS[0]: ["report 1"], CLAIMS: ["report 2"], READERS[1]: ["report 3"]}


def test_an_error_is_tried_again_with_an_output_of_its_own(tmp_path: Path) -> None:
    reports = Reports(broken=[1])
    made = stage(tmp_path, reports, READERS[:2])
    found = notes(made)
    assert [found[name][0] for name in READERS[:2]] == ["broken", "broken"]
    assert sorted(str(found[name][1]) for name in READERS[:2]) == ["report 2", "report 3"]


def test_a_record_is_as_old_as_the_output_that_it_judges(tmp_path: Path) -> None:
    times: list[datetime] = []

    class Late(Reports):
        def __call__(self, node: str, argv: Sequence[str]) -> Answer:
            times.append(datetime.now(UTC))
            return super().__call__(node, argv)

    made = stage(tmp_path, Late(), READERS)
    assert len(times) == 1
    assert all(record.started <= times[0] for record in made.state.recorder.store.records(target="node01"))


def test_commands_that_depend_on_each_other_are_not_shared() -> None:
    one, server = Command("one", "node01", ("report",), 5), Command("served", "node01", ("serve",), 5, role="server")
    assert shareable(Run("a", "node01", ("node01",), (one, server))) == {"one"}
    assert shareable(Run("a", "node01", ("node01",), (one,), chained=True)) == frozenset()
    assert shareable(Run("a", "node01", ("node01",), (one,), launch_from="node01")) == frozenset()


def test_whoever_waits_for_an_output_hears_that_the_operator_stopped() -> None:
    def stopped(_: Command) -> Answer:
        raise Interrupted("stopped")

    readings, command = Readings(), Command("one", "node01", ("report",), 5)
    for _ in range(2):
        with pytest.raises(Interrupted):
            readings.answer(command, stopped)
