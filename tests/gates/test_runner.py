"""The runner: what it does when nodes, servers and tools misbehave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rackready.drivers.process import STOP, Interrupted
from rackready.drivers.remote import Answer
from rackready.gates.base import REGISTRY, Command, Gate, GateFacts, Outputs, Run
from rackready.gates.engine.registry import gate
from rackready.gates.engine.runner import Attempt, Runner
from rackready.model.outcome import Outcome, Verdict
from tests.gates.fake import FakeConnection, answered, links
from tests.gates.support import rack, text, wrote

INVENTORY = "node/gpu/sanity/inventory"
WRITE = "pair/fabric/performance/ib-write-bw"
HEALTHY = answered(text("nvml/dgx_h100_healthy.json"))
ASK = "Print NVML's inventory"


def runner(connection: FakeConnection, nodes: int = 1) -> tuple[Runner, list[Attempt]]:
    attempts: list[Attempt] = []

    def sink(_: Gate, attempt: Attempt) -> None:
        attempts.append(attempt)

    return Runner(connection, rack(nodes), sink, ready_s=0.3), attempts


def perftest(node: str, argv: Sequence[str]) -> Answer:
    """The client's result, for whatever device it was asked."""
    del node
    return answered(wrote(argv))


def test_a_pass_is_measured_once() -> None:
    run, attempts = runner(FakeConnection({ASK: HEALTHY}))
    assert [done.verdict.outcome for done in run.gate(gate(INVENTORY), ["node01"])] == [Outcome.PASS]
    assert [attempt.number for attempt in attempts] == [1]


def test_a_fail_is_never_measured_again() -> None:
    run, attempts = runner(FakeConnection({ASK: answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))}))
    assert [done.verdict.outcome for done in run.gate(gate(INVENTORY), ["node01"])] == [Outcome.FAIL]
    assert [attempt.number for attempt in attempts] == [1]


def test_an_error_is_measured_again_once_and_both_are_kept() -> None:
    run, attempts = runner(FakeConnection({ASK: answered("")}))
    assert [done.verdict.outcome for done in run.gate(gate(INVENTORY), ["node01"])] == [Outcome.ERROR]
    assert [(attempt.number, attempt.verdict.outcome) for attempt in attempts] == [
        (1, Outcome.ERROR),
        (2, Outcome.ERROR),
    ]


def test_an_error_of_the_moment_is_got_over() -> None:
    answers = iter([answered(""), HEALTHY])
    run, attempts = runner(FakeConnection({ASK: lambda *_: next(answers)}))
    assert [done.verdict.outcome for done in run.gate(gate(INVENTORY), ["node01"])] == [Outcome.PASS]
    assert [attempt.verdict.outcome for attempt in attempts] == [Outcome.ERROR, Outcome.PASS]


@pytest.mark.parametrize(
    "answer",
    [
        answered(code=None, timed_out=True),
        answered(code=None, failure="the connection was lost before the command ended"),
        answered("Segmentation fault", code=139),
    ],
)
def test_what_never_answers_is_an_error(answer: Answer) -> None:
    run, _ = runner(FakeConnection({ASK: answer}))
    assert [done.verdict.outcome for done in run.gate(gate(INVENTORY), ["node01"])] == [Outcome.ERROR]


def test_a_missing_host_harms_no_other() -> None:
    run, _ = runner(FakeConnection({ASK: HEALTHY}, dead=frozenset({"node02"})), 3)
    outcomes = {
        done.run.target: done.verdict.outcome for done in run.gate(gate(INVENTORY), ["node01", "node02", "node03"])
    }
    assert outcomes == {"node01": Outcome.PASS, "node02": Outcome.ERROR, "node03": Outcome.PASS}


def test_a_bug_in_a_gate_is_an_error_of_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gate(INVENTORY)

    def broken(*_: object) -> None:
        raise KeyError("gpus")

    monkeypatch.setattr(found, "evaluate", broken)
    run, _ = runner(FakeConnection({ASK: HEALTHY}))
    done = run.gate(found, ["node01"])
    assert done[0].verdict.outcome is Outcome.ERROR
    assert "could not judge its output" in str(done[0].verdict.findings[0])


def test_pairs_start_their_servers_first_and_end_them() -> None:
    read: Counter[tuple[str, str]] = Counter()

    def counted(node: str, argv: Sequence[str]) -> Answer:
        """Between two readings of a port, it sent what one test writes."""
        first = links(node, argv)
        sent = read[node, argv[2]] * 8388608 * 2000
        read[node, argv[2]] += 1
        return replace(first, stdout=first.stdout.replace('"xmit_bytes": 0', f'"xmit_bytes": {sent}'))

    connection = FakeConnection({"Print link state": counted, "ib_write_bw": perftest})
    run, _ = runner(connection, 2)
    done = run.gate(gate(WRITE), ["node01", "node02"])
    assert {item.verdict.outcome for item in done} == {Outcome.PASS}
    assert len(done) == 8
    assert len(connection.jobs) == 16
    assert all(not job.running and job.ended for job in connection.jobs)


def test_a_server_that_never_listens_is_an_error_and_is_ended() -> None:
    connection = FakeConnection(
        {"Print link state": links, "ib_write_bw": perftest},
        listening=False,
        server=answered(stderr="Couldn't allocate MR\n", code=None),
    )
    run, attempts = runner(connection, 2)
    done = run.gate(gate(WRITE), ["node01", "node02"])
    assert {item.verdict.outcome for item in done} == {Outcome.ERROR}
    said_of_rail_1 = [str(attempt.verdict.findings[0]) for attempt in attempts if attempt.run.about["rail"] == "1"]
    assert len(said_of_rail_1) == 2
    assert all(
        "nothing listened on port 18516 within 0 s; it printed: Couldn't allocate MR" in text_
        for text_ in said_of_rail_1
    )
    assert all(not job.running for job in connection.jobs)


def test_the_operator_can_stop() -> None:
    run, attempts = runner(FakeConnection({ASK: HEALTHY}))
    STOP.set()
    try:
        with pytest.raises(Interrupted):
            run.gate(gate(INVENTORY), ["node01"])
    finally:
        STOP.clear()
    assert attempts == []


class BmcGate(Gate):
    """Asks a BMC, waits for the node, then asks it."""

    id = "bmc/test/sanity/runner"
    retry = False

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        return [
            Run(
                node,
                node,
                (node,),
                (
                    Command("ask", node, ("GET", "Systems/*"), 5, via="bmc"),
                    Command("back", node, ("sh", "back"), 1, stage=1, role="wait"),
                    Command("look", node, ("look",), 5, stage=2),
                ),
                chained=True,
            )
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts, run
        note = ", ".join(f"{key}={output.exit_code}" for key, output in sorted(outputs.items()))
        return Verdict(outcome=Outcome.ERROR, note=note)


REGISTRY.pop(BmcGate.id)


class FakeBmc:
    """Answers for every node."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def run(self, node: str, argv: Sequence[str], *, timeout_s: float) -> Answer:
        del timeout_s
        self.asked.append((node, tuple(argv)))
        return self.answer


def test_a_request_goes_to_the_bmc_and_a_node_is_waited_for() -> None:
    codes = iter([255, 1, 0])
    connection = FakeConnection({"sh back": lambda *_: answered(code=next(codes)), "look": answered()})
    bmc = FakeBmc(answered("{}"))
    attempts: list[Attempt] = []
    done = Runner(connection, rack(), lambda _, attempt: attempts.append(attempt), bmc=bmc, wait_s=0.0).gate(
        BmcGate(), ["node01"]
    )
    assert done[0].verdict.note == "ask=0, back=0, look=0"
    assert bmc.asked == [("node01", ("GET", "Systems/*"))]
    assert [words.strip() for _, words in connection.calls] == ["sh back", "sh back", "sh back", "look"]
    assert len(attempts) == 1, "it is an error, and the gate says that it is not to be tried again by itself"


def test_a_wait_ends_with_its_time_and_what_depends_on_it_is_not_run() -> None:
    connection = FakeConnection({"sh back": answered(code=1)})
    done = Runner(connection, rack(), lambda *_: None, bmc=FakeBmc(answered("{}")), wait_s=0.3).gate(
        BmcGate(), ["node01"]
    )
    assert done[0].verdict.note == "ask=0, back=1"
    assert 2 <= len(connection.calls) <= 5


def test_without_a_way_to_the_bmc_the_command_says_so() -> None:
    connection = FakeConnection({})
    runner = Runner(connection, rack(), lambda *_: None)
    run = BmcGate().plan(rack(), ["node01"])[0]
    outputs = runner.outputs(run)
    assert {key: output.failure for key, output in outputs.items()} == {
        "ask": "node01: no connection to its BMC from here"
    }


class InCluster(BmcGate):
    """A gate whose only command is a job of a Kubernetes cluster."""

    id = "node/test/in-cluster"

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        del facts
        job = Command(
            key="job", node="node01", argv=("mpijob", "j"), stdin="kind: MPIJob", timeout_s=9, via="kubernetes"
        )
        return [Run.of_node(nodes[0], job)]


REGISTRY.pop(InCluster.id)


class FakeJobs:
    def __init__(self) -> None:
        self.ran: list[tuple[str, Sequence[str], str, float]] = []

    def run(self, node: str, argv: Sequence[str], *, stdin: str, timeout_s: float) -> Answer:
        self.ran.append((node, argv, stdin, timeout_s))
        return answered("log")


def test_a_job_of_a_cluster_runs_there_and_on_no_node() -> None:
    connection, jobs = FakeConnection({}), FakeJobs()
    run = InCluster().plan(rack(), ["node01"])[0]
    outputs = Runner(connection, rack(), lambda *_: None, cluster=jobs).outputs(run)
    assert (outputs["job"].stdout, outputs["job"].command) == ("log", "mpijob j < script")
    assert (jobs.ran, connection.calls) == ([("node01", ("mpijob", "j"), "kind: MPIJob", 9)], [])
    outputs = Runner(connection, rack(), lambda *_: None).outputs(run)
    assert outputs["job"].failure == "node01: no Kubernetes cluster (handover.kind)"
