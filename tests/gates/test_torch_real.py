"""The programs for PyTorch, run by a real PyTorch.

The training step by torchrun over gloo, as the gate starts it; matrix multiplication on the CPU.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.gates.base import GateFacts, Output, Run
from rackready.gates.engine.registry import gate
from rackready.gates.fabric import training
from rackready.gates.records import offline
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Said, outputs, text

PATH = "/usr/bin:/bin"
"""Where Debian's PyTorch has its torchrun, and the Python that can import it."""
TORCHRUN = shutil.which("torchrun", path=PATH)
pytestmark = pytest.mark.skipif(
    TORCHRUN is None, reason="Debian's python3-torch is not installed: `make setup-test` as root installs it"
)

DDP = "cluster/fabric/stress/ddp-step"
GEMM = "node/gpu/performance/gemm-torch"
IMAGE = "registry.example/pytorch:25.10"
SMALL = ("--batch", "2", "--sequence", "16", "--width", "64", "--layers", "1")
LIMIT_S = 600
NEVER_READ = ("--redirects=9:1", "--tee=9:1")
"""Debian 12's PyTorch 1.13 cannot read torchrun's own defaults of these two under Python 3.11; they are about a
tenth process, which does not exist here."""
MAIN = 'if __name__ == "__main__":'
NCCL = [line for line in text("nccl/2x_dgx_h100_ring_healthy.txt").splitlines() if "NCCL INFO" in line]


def rack(gpus: int) -> tuple[GateFacts, Run]:
    known = offline.facts(offline.platform_of("dgx_h100", gpus), 2)
    return known, gate(DDP, {"image": IMAGE, "steps": 10}).plan(known, list(known.nodes))[0]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def command_line(argv: tuple[str, ...], port: int, patch: str, *more: str) -> list[str]:
    """Return what the gate starts inside the container, meeting at this machine, with small sizes."""
    inside = list(argv[argv.index(IMAGE) + 1 :])
    assert inside.pop(0) == "torchrun"
    words = [
        re.sub(r"(?<=^--master_addr=).*", "127.0.0.1", re.sub(r"(?<=^--master_port=).*", str(port), word))
        for word in inside
    ]
    program = words.index("-c") + 1
    words[program] = words[program].replace(MAIN, f"{patch}\n{MAIN}")
    return [str(TORCHRUN), *NEVER_READ, *words, *SMALL, *more]


Started = dict[str, subprocess.Popen[str]]


def start(gpus: int, *more: str, patch: str = "", path: str = PATH) -> Started:
    """Start both nodes' commands side by side on this machine."""
    _, run = rack(gpus)
    port = free_port()
    environment = {"PATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "LC_ALL": "C.UTF-8"}
    lines = {command.node: command_line(command.argv, port, patch, *more) for command in run.commands}
    return {
        node: subprocess.Popen(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        for node, line in lines.items()
    }


def kill(process: subprocess.Popen[str]) -> None:
    """End what still runs: torchrun and its ranks, which have process groups of their own."""
    if process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        for pid in (process.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)


def kill_all(processes: Iterable[subprocess.Popen[str]]) -> None:
    for process in processes:
        kill(process)
        process.communicate()


def trained(gpus: int, *more: str, patch: str = "", path: str = PATH) -> dict[str, Said]:
    """Run both nodes' commands to their end."""
    started = start(gpus, *more, patch=patch, path=path)
    said = {}
    try:
        for node, process in started.items():
            out, err = process.communicate(timeout=LIMIT_S)
            said[f"train-{node}"] = Said(out, err, process.returncode)
    finally:
        kill_all(started.values())
    return said


def judged(gpus: int, said: Mapping[str, Said]) -> Verdict:
    known, run = rack(gpus)
    return gate(DDP, {"image": IMAGE, "steps": 10}).evaluate(known, run, outputs(run, said))


def as_on_gpus(gpus: int, said: Mapping[str, Said]) -> dict[str, Said]:
    """Return the same with what this machine cannot report.

    The word nccl in the report, NCCL's lines of as many GPUs, and the names of two hosts.
    """
    log = "\n".join(line for line in NCCL if any(f" [{gpu}] NCCL" in line for gpu in range(gpus)))
    first = said["train-node01"]
    hosts = json.dumps(["node01"] * gpus + ["node02"] * gpus)
    named = re.sub(r'"hosts": \[[^]]*\]', f'"hosts": {hosts}', first.stdout)
    return {
        **said,
        "train-node01": replace(first, stdout=log + named.replace('"backend": "gloo"', '"backend": "nccl"')),
    }


@pytest.mark.parametrize("gpus", [1, 2], ids=["2 ranks", "4 ranks"])
def test_a_step_that_was_really_trained_passes_but_never_as_what_gloo_says(gpus: int) -> None:
    said = trained(gpus, "--backend", "gloo")
    refused = judged(gpus, said)
    step = "Run the gate as planned: a step on CPUs shows nothing about GPUs and fabric."
    assert refused.outcome is Outcome.ERROR
    assert (
        str(refused.findings[0])
        == f"cluster: training ran without GPUs - Expected: backend nccl Actual: backend gloo. {step}"
    )
    assert not refused.measured
    assert not refused.metrics
    verdict = judged(gpus, as_on_gpus(gpus, said))
    assert [str(finding) for finding in verdict.findings] == []
    assert (verdict.outcome, verdict.note, len(verdict.measured)) == (Outcome.PASS, training.SPEED, 2 * gpus)
    metrics = {metric.name: metric.value for metric in verdict.metrics}
    assert metrics["loss_last"] < metrics["loss_first"] == pytest.approx(10.37, abs=0.02)
    assert metrics["tokens_per_second"] > 0
    _, run = rack(gpus)
    tools = gate(DDP).tools(outputs(run, said))
    assert tools["backend"] == "gloo"
    assert re.match(r"\d+\.\d+", tools["torch"])


CORRUPT = (
    "Gradients were corrupted on the way, or a GPU computes wrong results: run DCGM's level 4 on these "
    "nodes: docs/runbooks/silent-data-corruption.md"
)
AFTER_EIGHT = """
def changed(self, step=Torch.step, done=[]):
    done.append(step(self))
    if self.rank == 1 and len(done) == 8:
        {what}
    return done[-1]
Torch.step = changed
"""


def test_a_loss_that_does_not_fall_fails() -> None:
    verdict = judged(1, as_on_gpus(1, trained(1, "--backend", "gloo", "--rate", "0")))
    assert verdict.outcome is Outcome.FAIL
    [finding] = map(str, verdict.findings)
    assert re.fullmatch(
        r"cluster: training loss - Expected: below (10\.3\d) after 15 steps on one batch Actual: \1\. "
        rf"{re.escape(CORRUPT)}",
        finding,
    )


def test_a_rank_whose_parameters_differ_fails() -> None:
    """One parameter of one rank is changed after a step, as a GPU that computes wrong would."""
    patch = AFTER_EIGHT.format(what="self.model.module[2].bias.data[0] += 1e-4")
    verdict = judged(2, as_on_gpus(2, trained(2, "--backend", "gloo", patch=patch)))
    assert verdict.outcome is Outcome.FAIL
    wrong = "parameters after training - Expected: the same on every rank, bit for bit Actual: 2 different."
    assert str(verdict.findings[0]) == f"node01: {wrong} {CORRUPT}"


READ = (
    "Read its raw output; check that the image has PyTorch and torchrun, and that the nodes' container toolkit "
    "offers the GPUs (CDI)."
)


def test_a_rank_that_is_killed_ends_the_step_and_is_named() -> None:
    said = trained(1, "--backend", "gloo", patch=AFTER_EIGHT.format(what="os.kill(os.getpid(), 9)"))
    verdict = judged(1, said)
    assert verdict.outcome is Outcome.ERROR
    other, dead = map(str, verdict.findings)
    assert re.match(
        r"node01: training step failed - Expected: exit code 0 Actual: exit code 1: rank 0 ended with 1: "
        r"RuntimeError: .*Connection",
        other,
    )
    signal9 = r"exit code 1: rank 1 ended with -9: Signal 9 \(SIGKILL\) received by PID \d+"
    assert re.fullmatch(
        rf"node02: training step failed - Expected: exit code 0 Actual: {signal9}\. {re.escape(READ)}", dead
    )


def test_ranks_do_not_wait_for_one_that_hangs() -> None:
    """This waits for the rank's own message, not for the end: torchrun waits up to 300 s more for the other node."""
    started = start(1, "--backend", "gloo", "--wait", "20", patch=AFTER_EIGHT.format(what="time.sleep(1000)"))
    limit = threading.Timer(LIMIT_S, kill, [started["node01"]])
    limit.start()
    try:
        errors, gave_up = started["node01"].stderr, None
        assert errors is not None
        said = []
        for line in errors:
            said.append(line)
            if gave_up := re.search(r"RuntimeError: .*([Tt]imed out|timeout caused pair closure)", line):
                break
    finally:
        limit.cancel()
        kill_all(started.values())
    assert gave_up is not None, "".join(said)


def test_a_python_without_pytorch_says_so(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text('#!/bin/sh\nexec /usr/bin/python3 -S -E "$@"\n', encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    verdict = judged(1, trained(1, "--backend", "gloo", path=f"{tmp_path}:{PATH}"))
    assert verdict.outcome is Outcome.ERROR
    says = (
        "exit code 1: rank 0 ended with 1: ModuleNotFoundError: PyTorch cannot be used by /usr/bin/python3: No "
        "module named 'torch'"
    )
    assert str(verdict.findings[0]) == f"node01: training step failed - Expected: exit code 0 Actual: {says}. {READ}"


def test_as_the_gate_starts_it_it_takes_no_cpu_for_a_gpu() -> None:
    verdict = judged(1, trained(1))
    assert verdict.outcome is Outcome.ERROR
    says = "exit code 1: rank 0 ended with 1: RuntimeError: PyTorch finds no CUDA device"
    assert str(verdict.findings[0]) == f"node01: training step failed - Expected: exit code 0 Actual: {says}. {READ}"


ON_CPU = """
import types
class Event:
    def __init__(self, enable_timing):
        assert enable_timing is True
    def record(self):
        self.at = time.perf_counter()
    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)
torch = importlib.import_module("torch")
torch.cuda.Event, torch.cuda.synchronize = Event, lambda name: None
torch.cuda.device = lambda name: importlib.import_module("contextlib").nullcontext()
document = measure(torch, ["cpu", "cpu"], 1.5, 256, ["bf16", "tf32"])
print(json.dumps(document))
sys.exit(0)
"""


def multiplied(argv: tuple[str, ...], program: str) -> Output:
    """Run the program as its command does, by Debian's Python."""
    assert argv[:2] == ("python3", "-")
    environment = {"PATH": PATH, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        argv, input=program, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return Output("gemm-0", "node01", " ".join(argv), done.returncode, done.stdout, done.stderr, 1.0)


def gemm(patch: str = "") -> tuple[Output, Verdict]:
    known = offline.facts(offline.platform_of("dgx_h100", 2), 1)
    node = known.nodes["node01"]
    known = replace(
        known, nodes={"node01": replace(node, gpu=node.gpu.model_copy(update={"matmul": {}}))}
    )  # no CPU is as fast as a GPU must be
    made = gate(
        GEMM, {"launches": 1, "precisions": ["bf16", "tf32"], "dimension": 256, "duration_s": 5, "warm_up_s": 0}
    )
    run = made.plan(known, ["node01"])[0]
    [command] = run.commands
    output = multiplied(command.argv, command.stdin.replace(MAIN, f"{patch}\n{MAIN}"))
    return output, made.evaluate(known, run, {"gemm-0": output})


def test_matrices_are_really_multiplied_and_compared() -> None:
    """The measurement itself, on one CPU that stands for two; CUDA's events are a clock here."""
    output, verdict = gemm(ON_CPU)
    assert (output.exit_code, output.stderr) == (0, "")
    assert [str(finding) for finding in verdict.findings] == []
    assert (verdict.outcome, verdict.fleet_pending, len(verdict.measured)) == (Outcome.PASS, True, 2)
    assert {metric.name for metric in verdict.metrics} == {"gemm_bf16", "gemm_tf32"}
    assert gate(GEMM).tools({"gemm-0": output})["cuda"] == "None"


WRONG = ON_CPU.replace(
    "document =", "product, right = (lambda *words, made=product: noisy(made(*words))), 0\ndocument ="
).replace(
    "import types", "import types\ndef noisy(one):\n    return lambda: one() + (torch.rand(1) * 3).to(one().dtype)"
)


def test_products_that_differ_from_run_to_run_fail() -> None:
    _, verdict = gemm(WRONG)
    assert verdict.outcome is Outcome.FAIL
    assert re.match(
        r"node01 gpu0: bf16 products differ from run to run - Expected: the same result each time Actual: \d+ of its",
        str(verdict.findings[0]),
    )


def test_without_cuda_there_is_no_measurement() -> None:
    output, verdict = gemm()
    assert output.exit_code == 1
    assert "node01: GEMM by PyTorch did not run - Expected: a measurement Actual: PyTorch finds no CUDA device." in str(
        verdict.findings[0]
    )
    assert verdict.outcome is Outcome.ERROR


def test_a_number_format_that_this_pytorch_has_not_is_told() -> None:
    """Debian's PyTorch 1.13 has no FP8; its exception is the reason, not a traceback."""
    patch = ON_CPU.replace('["bf16", "tf32"]', '["fp8"]').replace(
        "document =", "torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 0\n#"
    )
    patch = (
        patch[: patch.index("#")]
        + "measure = lambda torch, *rest, made=measure: made(torch, ['cpu'], 1.0, 256, ['fp8'])\n"
    )
    output, verdict = gemm(patch)
    if output.exit_code == 0:
        pytest.skip("this PyTorch multiplies FP8 on CPUs")
    assert "did not run - Expected: a measurement Actual: PyTorch " in str(verdict.findings[0])
    assert "AttributeError: module 'torch' has no attribute 'float8_e4m3fn'" in str(verdict.findings[0])
