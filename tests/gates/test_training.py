"""The training step and the optional programs in containers: the program itself with a stub for its process group, and what the gates make of reports.

PyTorch is no dependency of this project: class Torch of ondevice/ddp_step.py, its only part that needs it, is not run by any test.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from rackready.gates.fabric import training
from rackready.gates.formats.error import FormatError
from rackready.gates.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import ddp_step
from tests.gates.support import Said, outputs, rack, text

GATE = "cluster/fabric/stress/ddp-step"
IMAGE = {"image": "registry.example/pytorch:25.10"}
INFO = "\n".join(line for line in text("nccl/2x_dgx_h100_ring_healthy.txt").splitlines() if "NCCL INFO" in line)
NVLS = "\n".join(
    f"node0{node}:1:1 [{gpu}] NCCL INFO NVLS multicast support is available on dev {gpu} (NVLS_NCHANNELS 16)" for node in (1, 2) for gpu in range(8)
)


@dataclasses.dataclass
class Stub:
    """A process group of one that pretends to be many, and a model that learns."""

    rank: int = 0
    world: int = 4
    tokens: int = 1000
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: {"torch": "stub"})
    losses: list[float] = dataclasses.field(default_factory=lambda: [10.0, 8.0, 6.0, 5.0, 4.0])
    waits: int = 0
    done: int = 0

    def step(self) -> float:
        self.done += 1
        return self.losses[self.done - 1]

    def wait(self) -> None:
        self.waits += 1

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        return [value] * self.world

    def checksum(self) -> str:
        return "abc"


def test_the_program_warms_up_times_its_steps_and_reports_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 104.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    stub = Stub()
    report = ddp_step.train(stub, 2, 3)
    assert (stub.done, stub.waits) == (5, 2)
    assert report["tokens_per_second"] == 1000 * 3 / 4.0
    assert report["losses"] == [10.0, 8.0, 6.0, 5.0, 4.0]
    assert report["checksums"] == ["abc"] * 4
    assert training.read("noise\n" + json.dumps(report) + "\n") == report


def test_a_loss_that_is_no_number_is_told_as_such() -> None:
    report = ddp_step.train(Stub(losses=[1.0, math.nan]), 1, 1)
    assert report["losses"] == [1.0, None]
    json.loads(json.dumps(report, allow_nan=False))


def test_the_options_of_the_program() -> None:
    wanted = ddp_step.options(["--steps", "5", "--backend", "gloo"])
    assert (wanted.steps, wanted.backend, wanted.vocabulary) == (5, "gloo", 32000)


def report(**changed: object) -> str:
    whole = {
        "format": ddp_step.FORMAT, "world": 16, "hosts": ["node01"] * 8 + ["node02"] * 8, "losses": [10.37, 9.5, 7.2], "checksums": ["ab"] * 16,
        "seconds": [2.0] * 16, "tokens_per_second": 812000.5, "versions": {"torch": "2.9"}, "complete": True,
    }  # fmt: skip
    return json.dumps({**whole, **changed})


def judged(first: str, *, log: str = f"{INFO}\n{NVLS}", code: int = 0, stderr: str = "") -> Verdict:
    known = rack(2)
    found = gate(GATE, IMAGE)
    run = found.plan(known, list(known.nodes))[0]
    said = {"train-node01": Said(f"{log}\n{first}\n", stderr, code), "train-node02": Said("")}
    return found.evaluate(known, run, outputs(run, said))


def test_it_runs_torchrun_on_every_node() -> None:
    known = rack(2)
    run = gate(GATE, IMAGE).plan(known, list(known.nodes))[0]
    words = [" ".join(word for word in command.argv if len(word) < 200) for command in run.commands]
    assert "podman run --rm --device nvidia.com/gpu=all --network=host" in words[0]
    assert "registry.example/pytorch:25.10 torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 --master-addr=198.19.0.1" in words[0]
    assert "--node-rank=1 --master-addr=198.19.0.1" in words[1]
    assert "--env NCCL_DEBUG=INFO" in words[0]


def test_a_good_step_passes_and_its_speed_is_for_the_fleet_to_judge() -> None:
    verdict = judged(report())
    assert [str(finding) for finding in verdict.findings] == []
    assert (verdict.outcome, verdict.note, len(verdict.measured)) == (Outcome.PASS, "fleet pending", 16)
    assert {metric.name for metric in verdict.metrics} >= {"tokens_per_second", "loss_first", "loss_last"}


CORRUPT = "Gradients were corrupted on the way or a GPU computes wrong: run DCGM's level 4 on these nodes: docs/runbooks/silent-data-corruption.md"
BAD: list[tuple[Mapping[str, object], str]] = [
    ({"losses": [10.37, None]}, f"cluster: training loss - Expected: a number at every step Actual: not a number. {CORRUPT}"),
    ({"losses": [10.37, 10.39]}, f"cluster: training loss - Expected: below 10.37 after 2 steps on one batch Actual: 10.39. {CORRUPT}"),
    ({"losses": [3.1, 2.0]}, f"cluster: first training loss - Expected: 10.37 within 10% Actual: 3.10. {CORRUPT}"),
    (
        {"checksums": ["ab"] * 12 + ["cd"] + ["ab"] * 3},
        f"node02: parameters after training - Expected: the same on every rank, bit for bit Actual: 2 different. {CORRUPT}",
    ),
]


@pytest.mark.parametrize(("changed", "message"), BAD, ids=["nan", "does not fall", "begins elsewhere", "ranks disagree"])
def test_what_training_shows_to_be_wrong_fails(changed: Mapping[str, object], message: str) -> None:
    verdict = judged(report(**changed))
    assert [str(finding) for finding in verdict.findings] == [message]
    assert verdict.outcome is Outcome.FAIL


def test_a_step_over_sockets_fails() -> None:
    verdict = judged(report(), log=f"{INFO}\n{NVLS}".replace("NET/IB/", "NET/Socket/"))
    assert verdict.outcome is Outcome.FAIL
    assert "NCCL transport - Expected: NET/IB Actual: NET/Socket." in str(verdict.findings[0])


def test_what_cannot_be_judged_is_an_error() -> None:
    assert judged(report(world=8)).outcome is Outcome.ERROR
    assert judged("").outcome is Outcome.ERROR
    assert judged(report()[:80]).outcome is Outcome.ERROR
    assert "ModuleNotFoundError" in str(judged(report(), code=1, stderr="ModuleNotFoundError: No module named 'torch'").findings[0])
    with pytest.raises(FormatError, match="no whole report"):
        training.read(report(tokens_per_second=None))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"losses": [float("nan"), float("nan")]}, "NaN where JSON has a number"),
        ({"losses": [10.37, float("-inf")]}, "-Infinity where JSON has a number"),
        ({"checksums": [None] * 16}, "no whole report of the training step"),
        ({"tokens_per_second": 0}, "no whole report of the training step"),
    ],
    ids=["nan", "infinite", "no checksums", "no speed"],
)
def test_a_report_without_real_numbers_is_an_error(changed: Mapping[str, object], words: str) -> None:
    verdict = judged(report(**changed))
    step = "Read the raw output in the report; run the gate again."
    assert [str(finding) for finding in verdict.findings] == [f"node01: training report unreadable - Expected: one JSON document Actual: {words}. {step}"]
    assert verdict.outcome is Outcome.ERROR


@pytest.mark.parametrize("gate_id", [GATE, "node/gpu/stress/hpl", "node/gpu/performance/inference"])
def test_without_an_image_nothing_is_measured_and_nobody_declared_a_skip(gate_id: str) -> None:
    known = rack(2)
    found = gate(gate_id)
    assert found.plan(known, list(known.nodes)) == []
    verdict = found.attribute(known, [])["node02"][0]
    step = "Name one in the gate set (inputs: {image: ...}), or declare the gate's skip with its reason (site.yml gates.skip)."
    assert [str(finding) for finding in verdict.findings] == [
        f"node02: {gate_id} has no container image - Expected: an image in its input image Actual: none. {step}"
    ]
    assert verdict.outcome is Outcome.ERROR


HPL = """T/V                N    NB     P     Q               Time                 Gflops
--------------------------------------------------------------------------------
WC0           264192  1024     4     2              33.65              3.654e+05
--------------------------------------------------------------------------------
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   0.0031415 ...... PASSED
"""
VLLM = "INFO 11-01 10:00:00 done\nThroughput: 41.22 requests/s, 21103.55 total tokens/s, 5275.89 output tokens/s\n"


def program(gate_id: str, stdout: str, code: int = 0) -> Verdict:
    known = rack(1)
    found = gate(gate_id, IMAGE)
    run = found.plan(known, list(known.nodes))[0]
    return found.evaluate(known, run, outputs(run, {"program": Said(stdout, exit_code=code)}))


@pytest.mark.parametrize(
    ("gate_id", "stdout", "code", "outcome", "words"),
    [
        ("node/gpu/stress/hpl", HPL, 0, Outcome.PASS, ""),
        ("node/gpu/stress/hpl", HPL.replace("PASSED", "FAILED"), 0, Outcome.FAIL, "node01: HPL residual - Expected: PASSED Actual: FAILED."),
        (
            "node/gpu/stress/hpl",
            HPL.replace("     4     2 ", "     2     2 "),
            0,
            Outcome.ERROR,
            "a grid of 8 Actual: 2 x 2.",
        ),
        (
            "node/gpu/stress/hpl",
            HPL.split("||Ax", maxsplit=1)[0],
            0,
            Outcome.ERROR,
            "HPL unreadable",
        ),
        ("node/gpu/stress/hpl", "", 125, Outcome.ERROR, "HPL failed - Expected: exit code 0 Actual: exit code 125: nothing said."),
        ("node/gpu/performance/inference", VLLM, 0, Outcome.PASS, ""),
        ("node/gpu/performance/inference", "Token Throughput (tokens/sec):     30100.2\n", 0, Outcome.PASS, ""),
        ("node/gpu/performance/inference", VLLM.replace("21103.55", "0.00"), 0, Outcome.FAIL, "node01: inference - Expected: tokens Actual: 0 tokens/s."),
        ("node/gpu/performance/inference", "done\n", 0, Outcome.ERROR, "inference benchmark unreadable"),
    ],
)
def test_programs_in_containers(gate_id: str, stdout: str, code: int, outcome: Outcome, words: str) -> None:
    verdict = program(gate_id, stdout, code)
    assert verdict.outcome is outcome
    assert words in " ".join(str(finding) for finding in verdict.findings)
    assert (verdict.note == "fleet pending") is (outcome is Outcome.PASS)
