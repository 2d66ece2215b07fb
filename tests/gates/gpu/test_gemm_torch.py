"""Matrix multiplication by PyTorch: speed against siblings, and results against the GPU's own and its siblings'."""

# ruff: noqa: E501 - a row of a table is one exact message

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.gates.base import Output
from rackready.gates.offline import facts
from rackready.gates.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import gemm as script

GATE = "node/gpu/performance/gemm-torch"
RATES = {"bf16": 7.1e5, "fp8": 1.31e6, "tf32": 3.7e5}
Document = dict[str, Any]


def measured() -> Document:
    loads = {
        kind: [{"readings": [rate * 0.7, *(rate * (1 + (gpu + second) % 3 / 1000) for second in range(30))], "differ": 0, "digest": 77} for gpu in range(8)]
        for kind, rate in RATES.items()
    }
    return {"format": script.FORMAT, "torch": "2.9.0", "cuda": "13.0", "gpus": 8, "loads": loads, "complete": True}


def judge(change: Callable[[Document], object] = lambda _found: None, *, code: int = 0, out: str | None = None) -> Verdict:
    found = measured()
    change(found)
    known = facts("dgx_h100", 1)
    made = gate(GATE, {"launches": 1})
    run = made.plan(known, ["node01"])[0]
    return made.evaluate(known, run, {"gemm-0": Output("gemm-0", "node01", "x", code, json.dumps(found) if out is None else out, seconds=1.0)})


def row(kind: str, gpu: int, **values: object) -> Callable[[Document], object]:
    return lambda found: found["loads"][kind][gpu].update(values)


def test_a_healthy_node_passes_in_every_precision_that_the_gpu_has() -> None:
    verdict = judge()
    assert [str(finding) for finding in verdict.findings] == []
    assert {metric.name for metric in verdict.metrics} == {"gemm_bf16", "gemm_fp8", "gemm_tf32"}
    assert len(verdict.measured) == 8
    assert gate(GATE).tools({"gemm-0": Output("gemm-0", "node01", "x", 0, json.dumps(measured()))}) == {"torch": "2.9.0", "cuda": "13.0"}


WRONG = "Take the GPU out of service at once, run the field diagnostic, then replace it: docs/runbooks/silent-data-corruption.md."


@pytest.mark.parametrize(
    ("change", "says", "outcome"),
    [
        (row("bf16", 2, differ=3), f"node01 gpu2: bf16 products differ from run to run - Expected: the same result each time Actual: 3 of its comparisons differ. {WRONG}", Outcome.FAIL),
        (row("tf32", 2, digest=78), f"node01 gpu2: tf32 product differs from its siblings' - Expected: digest 77 as most have Actual: another. {WRONG}", Outcome.FAIL),
        (row("fp8", 2, readings=[1.31e6 * 0.95] * 30), "node01 gpu2: gemm_fp8 behind its siblings", Outcome.FAIL),
        (row("bf16", 2, readings=[2e6] * 30), "node01 gpu2: gemm_bf16 is implausible - Expected: at most 9.894e+05 GFLOPS", Outcome.ERROR),
        (row("bf16", 2, readings=[]), "node01: GEMM by PyTorch unreadable - Expected: readings of every GPU and precision Actual: gpu2 has no steady load (exit code 0)", Outcome.ERROR),
        (lambda found: found["loads"].pop("fp8"), "node01: GEMM by PyTorch unreadable - Expected: readings of every GPU and precision Actual: 'fp8' (exit code 0)", Outcome.ERROR),
        (lambda found: found["loads"]["bf16"].pop(), "node01: GEMM by PyTorch unreadable - Expected: readings of every GPU and precision Actual: 7 GPUs instead of 8 (exit code 0)", Outcome.ERROR),
    ],
)  # fmt: skip
def test_what_is_slow_or_wrong_is_named(change: Callable[[Document], object], says: str, outcome: Outcome) -> None:
    verdict = judge(change)
    assert str(verdict.findings[0]).startswith(says)
    assert verdict.outcome is outcome
    assert "node01/gpu2" not in verdict.measured


def test_three_percent_are_seen_with_the_launches_of_the_site() -> None:
    known = facts("dgx_h100", 1)
    made = gate(GATE)
    run = made.plan(known, ["node01"])[0]
    slow = measured()
    row("bf16", 6, readings=[value * 0.97 for value in slow["loads"]["bf16"][6]["readings"]])(slow)
    outputs = {command.key: Output(command.key, "node01", "x", 0, json.dumps(slow), seconds=1.0) for command in run.commands}
    assert [(finding.where, finding.what) for finding in made.evaluate(known, run, outputs).findings] == [("node01 gpu6", "gemm_bf16 behind its siblings")]


@pytest.mark.parametrize("out", ["", "Traceback (most recent call last):", json.dumps(measured())[:400], "{}", "null"])
def test_what_is_no_measurement_is_an_error(out: str) -> None:
    assert judge(out=out).outcome is Outcome.ERROR


def test_a_node_without_pytorch_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert script.main("5", "256", "bf16") == 1
    verdict = judge(out=capsys.readouterr().out, code=1)
    assert verdict.findings[0].what == "GEMM by PyTorch did not run"
    assert "podman run --rm -i --device nvidia.com/gpu=all" in verdict.findings[0].next_step


class Matrix:
    """As much of a tensor as FP8 needs."""

    device = "cuda:0"

    def __init__(self, name: str) -> None:
        self.name = name

    def to(self, kind: str) -> Matrix:
        return Matrix(f"{self.name}.{kind}")

    def t(self) -> Matrix:
        return Matrix(f"{self.name}.t")


@pytest.mark.parametrize("answer", [lambda result: result, lambda result: (result, "largest value")], ids=["2.5 and newer", "2.1 to 2.4"])
def test_fp8_is_asked_for_as_pytorch_wants_it(answer: Callable[[str], object]) -> None:
    """Left by rows, right by columns, two scales of one float32: PyTorch's _scaled_mm, which returned a pair until 2.4."""
    calls: list[tuple[object, ...]] = []

    def scaled_mm(left: Matrix, right: Matrix, *, scale_a: object, scale_b: object, out_dtype: object) -> object:
        calls.append((left.name, right.name, scale_a, scale_b, out_dtype))
        return answer("result")

    def ones(count: int, *, device: str) -> tuple[int, str]:
        return count, device

    torch = SimpleNamespace(ones=ones, float8_e4m3fn="e4m3", bfloat16="bf16", _scaled_mm=scaled_mm)
    assert script.fp8(torch, Matrix("a"), Matrix("b"))() == "result"
    assert calls == [("a.e4m3", "b.e4m3.t", (1, "cuda:0"), (1, "cuda:0"), "bf16")]


def test_the_program_is_sent_with_its_arguments() -> None:
    run = gate(GATE, {"python": ["podman", "run", "-i", "image", "python3"], "launches": 2}).plan(facts("dgx_h100", 1), ["node01"])[0]
    assert [command.argv for command in run.commands] == [("podman", "run", "-i", "image", "python3", "-", "20", "8192", "bf16", "fp8", "tf32")] * 2
    assert "torch.equal" in run.commands[0].stdin
