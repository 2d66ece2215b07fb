"""The training step: the program itself with a stub for its process group, and how its gate judges reports."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from rackready.format_error import FormatError
from rackready.gates.engine.registry import gate
from rackready.gates.fabric import training
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import ddp_step
from tests.gates.support import Said, Told, outputs, rack, tells, text, told

GATE = "cluster/fabric/stress/ddp-step"
IMAGE = {"image": "registry.example/pytorch:25.10"}
INFO = "\n".join(line for line in text("nccl/2x_dgx_h100_ring_healthy.txt").splitlines() if "NCCL INFO" in line)
NVLS = "\n".join(
    f"node0{node}:1:1 [{gpu}] NCCL INFO NVLS multicast support is available on dev {gpu} (NVLS_NCHANNELS 16)"
    for node in (1, 2)
    for gpu in range(8)
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


def losses(first: float, last: float, steps: int = 55) -> list[float]:
    """As many losses as the gate asks for by default, warm-up included, on a straight line."""
    return [first + (last - first) * step / (steps - 1) for step in range(steps)]


def report(**changed: object) -> str:
    whole = {
        "format": ddp_step.FORMAT,
        "world": 16,
        "hosts": ["node01"] * 8 + ["node02"] * 8,
        "losses": losses(10.37, 7.2),
        "checksums": ["ab"] * 16,
        "seconds": [2.0] * 16,
        "tokens_per_second": 812000.5,
        "versions": {"torch": "2.9", "backend": "nccl"},
        "complete": True,
    }
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
    assert "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable --network=host" in words[0]
    assert (
        "registry.example/pytorch:25.10 torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=198.19.0.1"
        in words[0]
    )
    assert "--node_rank=1 --master_addr=198.19.0.1" in words[1]
    assert "--env NCCL_DEBUG=INFO" in words[0]
    assert run.commands[0].argv[-2:] == ("--wait", "900")


def test_a_good_step_passes_and_its_speed_is_for_the_fleet_to_judge() -> None:
    verdict = judged(report())
    assert tells(verdict) == []
    assert (verdict.outcome, verdict.note, len(verdict.measured)) == (Outcome.PASS, training.SPEED, 16)
    assert {metric.name for metric in verdict.metrics} >= {"tokens_per_second", "loss_first", "loss_last"}


BAD: list[tuple[Mapping[str, object], str]] = [
    (
        {"losses": [*losses(10.37, 9.0, 54), None]},
        ("training-loss-not-a-number", "cluster", "a number at every step", "not a number"),
    ),
    (
        {"losses": losses(10.37, 10.39)},
        ("training-loss-not-falling", "cluster", "below 10.37 after 55 steps on one batch", "10.39"),
    ),
    (
        {"losses": [10.37] * 54 + [10.3699]},
        ("training-loss-stands", "cluster", "a different one at every one of 55 steps", "2 different"),
    ),
    (
        {"losses": losses(3.1, 2.0)},
        ("training-first-loss", "cluster", "10.37 within 10%", "3.10"),
    ),
    (
        {"checksums": ["ab"] * 12 + ["cd"] + ["ab"] * 3},
        ("training-parameters-differ", "node02", "the same on every rank, bit for bit", "2 different"),
    ),
    (
        {"checksums": ["ab"] * 8 + ["cd"] * 8},
        (
            "training-parameters-differ",
            "node01, node02",
            "the same on every rank, bit for bit",
            "2 different, none of them on most ranks",
        ),
    ),
]


@pytest.mark.parametrize(
    ("changed", "finding"),
    BAD,
    ids=["nan", "does not fall", "stands still", "begins elsewhere", "ranks disagree", "nodes disagree"],
)
def test_what_training_shows_to_be_wrong_fails(changed: Mapping[str, object], finding: Told) -> None:
    verdict = judged(report(**changed))
    assert tells(verdict) == [finding]
    assert verdict.outcome is Outcome.FAIL


def test_hosts_may_give_their_names_with_a_domain() -> None:
    assert judged(report(hosts=["node01.rack.example"] * 8 + ["node02"] * 8)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        (
            {"losses": [10.37, 10.3699]},
            ("training-other-steps", "cluster", "55 losses", "2"),
        ),
        (
            {"hosts": ["node01"] * 16},
            ("training-other-hosts", "cluster", "ranks: 8 on node01, 8 on node02", "16 on node01, 0 on node02"),
        ),
        (
            {"hosts": ["node01"] * 8 + ["node07"] * 8},
            ("training-other-hosts", "cluster", "ranks: 8 on node02, 0 on node07", "0 on node02, 8 on node07"),
        ),
    ],
    ids=["fewer steps", "all on one host", "a host of another run"],
)
def test_a_report_of_another_run_is_no_evidence(changed: Mapping[str, object], finding: Told) -> None:
    verdict = judged(report(**changed))
    assert tells(verdict) == [finding]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_a_step_over_sockets_fails() -> None:
    verdict = judged(report(), log=f"{INFO}\n{NVLS}".replace("NET/IB/", "NET/Socket/"))
    assert verdict.outcome is Outcome.FAIL
    assert told(verdict.findings[0]) == ("nccl-rdma-not-used", "node01", "NET/IB", "NET/Socket")


def test_what_cannot_be_judged_is_an_error() -> None:
    assert judged(report(world=8)).outcome is Outcome.ERROR
    assert judged("").outcome is Outcome.ERROR
    assert judged(report()[:80]).outcome is Outcome.ERROR
    assert "ModuleNotFoundError" in str(
        judged(report(), code=1, stderr="ModuleNotFoundError: No module named 'torch'").findings[0]
    )
    for changed in ({"tokens_per_second": None}, {"versions": "2.9"}):
        with pytest.raises(FormatError, match="no complete report"):
            training.read(report(**changed))


def test_a_step_on_cpus_is_no_evidence() -> None:
    verdict = judged(report(versions={"torch": "2.9", "backend": "gloo"}))
    assert tells(verdict) == [("training-no-gpus", "cluster", "backend nccl", "backend gloo")]
    assert verdict.outcome is Outcome.ERROR
    assert not verdict.measured
    assert not verdict.metrics


LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer "
    "[127.0.0.1]:1936"
)


@pytest.mark.parametrize(
    ("stderr", "code", "says"),
    [
        (
            text("torch/torchrun_2.8_rank_killed.txt"),
            1,
            "rank 1 ended with -9: Signal 9 (SIGKILL) received by PID 13905",
        ),
        (text("torch/torchrun_2.8_peer_lost.txt"), 1, f"rank 0 ended with 1: {LOST}"),
        (
            "Error: executable file `torchrun` not found in $PATH\n",
            127,
            "executable file `torchrun` not found in $PATH",
        ),
        (
            "docker: Error response from daemon: no such image: x.\n\nRun 'docker run --help' for more information\n",
            125,
            "no such image: x",
        ),
        ("Error: a training program's own\nit ended\n", 1, "it ended"),
        ("=====\n", 125, "nothing said"),
    ],
    ids=["killed", "peer lost", "no torchrun", "docker's hint", "no runtime's words", "a ruler alone"],
)
def test_a_failed_step_is_told_in_the_words_of_the_rank_that_failed(stderr: str, code: int, says: str) -> None:
    [finding] = judged("", log="", code=code, stderr=stderr).findings
    assert told(finding) == ("training-failed", "node01", "exit code 0", f"exit code {code}: {says}")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"losses": [float("nan"), float("nan")]}, "NaN where JSON has a number"),
        ({"losses": [10.37, float("-inf")]}, "-Infinity where JSON has a number"),
        ({"checksums": [None] * 16}, "no complete report of the training step"),
        ({"tokens_per_second": 0}, "no complete report of the training step"),
    ],
    ids=["nan", "infinite", "no checksums", "no speed"],
)
def test_a_report_without_real_numbers_is_an_error(changed: Mapping[str, object], words: str) -> None:
    verdict = judged(report(**changed))
    assert tells(verdict) == [("training-unreadable", "node01", "one JSON document", words)]
    assert verdict.outcome is Outcome.ERROR


@pytest.mark.parametrize("gate_id", [GATE, "node/gpu/stress/hpl", "node/gpu/performance/inference"])
def test_without_an_image_nothing_is_measured_and_nobody_declared_a_skip(gate_id: str) -> None:
    known = rack(2)
    found = gate(gate_id)
    assert found.plan(known, list(known.nodes)) == []
    verdict = found.attribute(known, [])["node02"][0]
    assert tells(verdict) == [
        ("no-container-image", "node02", "an image in its input image", "none", f"gate={gate_id}")
    ]
    assert verdict.outcome is Outcome.ERROR
