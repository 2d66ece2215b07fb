"""Matrix multiplication by PyTorch: speed against siblings, and results against the GPU's own and its siblings'."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import gemm as script
from rackready.profiles import loader

GATE = "node/gpu/performance/gemm-torch"
RATES = {"bf16": 7.1e5, "fp8": 1.31e6, "tf32": 3.7e5}
Document = dict[str, Any]


def load(rate: float, gpu: int) -> Document:
    readings = [rate * 0.7, *(rate * (1 + (gpu + second) % 3 / 1000) for second in range(30))]
    return {"readings": readings, "differ": 0, "digest": 77}


def measured() -> Document:
    loads = {kind: [load(rate, gpu) for gpu in range(8)] for kind, rate in RATES.items()}
    return {"format": script.FORMAT, "torch": "2.9.0", "cuda": "13.0", "gpus": 8, "loads": loads, "complete": True}


def judge(
    change: Callable[[Document], object] = lambda _found: None, *, code: int = 0, out: str | None = None
) -> Verdict:
    found = measured()
    change(found)
    known = facts("dgx_h100", 1)
    made = gate(GATE, {"launches": 1})
    run = made.plan(known, ["node01"])[0]
    return made.evaluate(
        known,
        run,
        {"gemm-0": Output("gemm-0", "node01", "x", code, json.dumps(found) if out is None else out, seconds=1.0)},
    )


def row(kind: str, gpu: int, **values: object) -> Callable[[Document], object]:
    return lambda found: found["loads"][kind][gpu].update(values)


def test_a_healthy_node_passes_in_every_precision_that_the_gpu_has() -> None:
    verdict = judge()
    assert [str(finding) for finding in verdict.findings] == []
    assert {metric.name for metric in verdict.metrics} == {"gemm_bf16", "gemm_fp8", "gemm_tf32"}
    assert len(verdict.measured) == 8
    assert gate(GATE).tools({"gemm-0": Output("gemm-0", "node01", "x", 0, json.dumps(measured()))}) == {
        "torch": "2.9.0",
        "cuda": "13.0",
    }


NAME = (
    "Name an image with PyTorch for CUDA (gates.also, input `image`) or a Python of the node that has it (input "
    "`python`), or skip the gate with a reason (site.yml gates.skip)."
)
WRONG = (
    "Drain the node at once, run the field diagnostic, then replace the GPU: docs/runbooks/silent-data-corruption.md."
)


@pytest.mark.parametrize(
    ("change", "says", "outcome"),
    [
        (
            row("bf16", 2, differ=3),
            (
                "node01 gpu2: bf16 products differ from run to run - Expected: the same result each time "
                f"Actual: 3 of its comparisons differ. {WRONG}"
            ),
            Outcome.FAIL,
        ),
        (
            row("tf32", 2, digest=78),
            (
                "node01 gpu2: tf32 product differs from its siblings' - Expected: digest 77, as most "
                f"have Actual: another. {WRONG}"
            ),
            Outcome.FAIL,
        ),
        (row("fp8", 2, readings=[1.31e6 * 0.95] * 30), "node01 gpu2: gemm_fp8 behind its siblings", Outcome.FAIL),
        (
            row("bf16", 2, readings=[2e6] * 30),
            "node01 gpu2: gemm_bf16 is implausible - Expected: at most 9.894e+05 GFLOPS",
            Outcome.ERROR,
        ),
        (
            row("bf16", 2, readings=[]),
            (
                "node01: GEMM by PyTorch unreadable - Expected: readings of every GPU and precision "
                "Actual: gpu2 has no steady load (exit code 0)"
            ),
            Outcome.ERROR,
        ),
        (
            lambda found: found["loads"].pop("fp8"),
            (
                "node01: GEMM by PyTorch unreadable - Expected: readings of every GPU and precision "
                "Actual: 'fp8' (exit code 0)"
            ),
            Outcome.ERROR,
        ),
        (
            lambda found: found["loads"]["bf16"].pop(),
            (
                "node01: GEMM by PyTorch unreadable - Expected: readings of every GPU and precision "
                "Actual: 7 GPUs instead of 8 (exit code 0)"
            ),
            Outcome.ERROR,
        ),
    ],
)
def test_what_is_slow_or_wrong_is_named(change: Callable[[Document], object], says: str, outcome: Outcome) -> None:
    verdict = judge(change)
    assert str(verdict.findings[0]).startswith(says)
    assert verdict.outcome is outcome
    assert "node01/gpu2" not in verdict.measured


def each_with(*digests: int) -> Callable[[Document], object]:
    return lambda found: [row("bf16", gpu, digest=digest)(found) for gpu, digest in enumerate(digests)]


WHICH = (
    "Drain the node at once: no result has a majority. Run the field diagnostic on every GPU, then replace those "
    "that fail: docs/runbooks/silent-data-corruption.md."
)


@pytest.mark.parametrize(
    ("digests", "said"),
    [
        ((77, 77, 77, 77, 78, 78, 78, 78), "77 on gpu0, gpu1, gpu2, gpu3; 78 on gpu4, gpu5, gpu6, gpu7"),
        ((0, 1, 2, 3, 4, 5, 6, 7), "; ".join(f"{gpu} on gpu{gpu}" for gpu in range(8))),
        ((5, 5, 5, 6, 6, 6, 7, 7), "5 on gpu0, gpu1, gpu2; 6 on gpu3, gpu4, gpu5; 7 on gpu6, gpu7"),
    ],
    ids=["half", "all", "three groups"],
)
def test_products_without_a_majority_fail_and_measure_nothing(digests: tuple[int, ...], said: str) -> None:
    verdict = judge(each_with(*digests))
    wanted = (
        f"node01: bf16 products differ between the GPUs - Expected: one digest on all of them Actual: {said}. {WHICH}"
    )
    assert [str(finding) for finding in verdict.findings] == [wanted]
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, [])


def test_three_gpus_that_differ_each_in_its_own_way_are_named() -> None:
    verdict = judge(each_with(1, 77, 2, 77, 77, 77, 77, 3))
    assert [finding.where for finding in verdict.findings] == ["node01 gpu0", "node01 gpu2", "node01 gpu7"]
    assert verdict.measured == ["node01/gpu1", "node01/gpu3", "node01/gpu4", "node01/gpu5", "node01/gpu6"]


def test_eight_gpus_that_are_equally_slow_are_found() -> None:
    def slow(found: Document) -> None:
        for kind, rate in RATES.items():
            for gpu in range(8):
                row(kind, gpu, readings=[rate * 0.5] * 30)(found)

    verdict = judge(slow)
    said = [str(finding) for finding in verdict.findings]
    source = "stas00/ml-engineering compute/accelerator, Maximum Achievable Matmul FLOPS: H100 SXM"
    step = (
        "Check clocks, power and temperature under load (gate node/gpu/stress/burn). Replace a GPU that stays "
        "slow: docs/runbooks/gpu.md."
    )
    wanted = f"at least 4.767e+05 GFLOPS (derived: 0.6 x 794.5 TFLOPS; {source})"
    assert said[0] == f"node01 gpu0: gemm_bf16 is slow - Expected: {wanted} Actual: 3.55e+05 GFLOPS. {step}"
    assert (verdict.outcome, verdict.measured, len(said)) == (Outcome.FAIL, [], 24)


def test_three_percent_are_seen_with_the_launches_of_the_site() -> None:
    known = facts("dgx_h100", 1)
    made = gate(GATE)
    run = made.plan(known, ["node01"])[0]
    slow = measured()
    row("bf16", 6, readings=[value * 0.97 for value in slow["loads"]["bf16"][6]["readings"]])(slow)
    outputs = {}
    for at, command in enumerate(run.commands):
        for launched in (one for rows in slow["loads"].values() for one in rows):
            launched["readings"] = [value * (1 + 1e-6 * at) for value in launched["readings"]]
        outputs[command.key] = Output(command.key, "node01", "x", 0, json.dumps(slow), seconds=1.0)
    assert [(finding.where, finding.what) for finding in made.evaluate(known, run, outputs).findings] == [
        ("node01 gpu6", "gemm_bf16 behind its siblings")
    ]


def test_one_output_for_all_launches_is_one_launch() -> None:
    known = facts("dgx_h100", 1)
    made = gate(GATE, {"launches": 3})
    run = made.plan(known, ["node01"])[0]
    outputs = {
        command.key: Output(command.key, "node01", "x", 0, json.dumps(measured()), seconds=1.0)
        for command in run.commands
    }
    verdict = made.evaluate(known, run, outputs)
    step = "Give the output of each launch. On a node: run the gate again."
    assert [str(finding) for finding in verdict.findings] == [
        (
            "node01: launches 1 and 2 of the GEMM have the same figures - Expected: figures that "
            f"differ Actual: the same of bf16 on gpu0, bf16 on gpu1. {step}"
        )
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


@pytest.mark.parametrize("out", ["", "Traceback (most recent call last):", json.dumps(measured())[:400], "{}", "null"])
def test_what_is_no_measurement_is_an_error(out: str) -> None:
    assert judge(out=out).outcome is Outcome.ERROR


def test_a_node_without_pytorch_is_told_what_to_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # the program sets it for itself: it is put back
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert script.main("5", "256", "bf16") == 1
    verdict = judge(out=capsys.readouterr().out, code=1)
    why = "PyTorch is not installed: import of torch halted; None in sys.modules"
    assert [str(finding) for finding in verdict.findings] == [
        f"node01: GEMM by PyTorch did not run - Expected: a measurement Actual: {why}. {NAME}"
    ]
    assert verdict.outcome is Outcome.ERROR


def test_gpus_are_numbered_by_pci_address_from_the_first_use_of_pytorch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the node and in a container, the program itself reports it before it imports PyTorch."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    seen: list[str] = []

    def imported(name: str) -> SimpleNamespace:
        seen.append(f"{name} {os.environ['CUDA_DEVICE_ORDER']}")
        return SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))

    monkeypatch.setattr(script.importlib, "import_module", imported)
    assert script.main("5", "256", "bf16") == 1
    assert seen == ["torch PCI_BUS_ID"]
    assert json.loads(capsys.readouterr().out)["error"] == "PyTorch finds no CUDA device"


class Matrix:
    """As much of a tensor as FP8 needs."""

    device = "cuda:0"

    def __init__(self, name: str) -> None:
        self.name = name

    def to(self, kind: str) -> Matrix:
        return Matrix(f"{self.name}.{kind}")

    def t(self) -> Matrix:
        return Matrix(f"{self.name}.t")


@pytest.mark.parametrize(
    "answer", [lambda result: result, lambda result: (result, "largest value")], ids=["2.5 and newer", "2.1 to 2.4"]
)
def test_fp8_is_asked_for_as_pytorch_wants_it(answer: Callable[[str], object]) -> None:
    """Left by rows, right by columns, two scales of one float32: PyTorch's _scaled_mm, which returned a pair until 2.4."""  # noqa: E501
    calls: list[tuple[object, ...]] = []

    def scaled_mm(left: Matrix, right: Matrix, *, scale_a: object, scale_b: object, out_dtype: object) -> object:
        calls.append((left.name, right.name, scale_a, scale_b, out_dtype))
        return answer("result")

    def ones(count: int, *, device: str) -> tuple[int, str]:
        return count, device

    torch = SimpleNamespace(ones=ones, float8_e4m3fn="e4m3", bfloat16="bf16", _scaled_mm=scaled_mm)
    assert script.fp8(torch, Matrix("a"), Matrix("b"))() == "result"
    assert calls == [("a.e4m3", "b.e4m3.t", (1, "cuda:0"), (1, "cuda:0"), "bf16")]


IMAGE = "registry.example/pytorch:25.10"
SENT = ("python3", "-", "20", "8192", "bf16", "fp8", "tf32")


@pytest.mark.parametrize(
    ("inputs", "argv", "longest"),
    [
        ({}, SENT, 360),
        ({"python": ["/opt/torch/bin/python3"]}, ("/opt/torch/bin/python3", *SENT[1:]), 360),
        (
            {"image": IMAGE},
            (
                "podman",
                "run",
                "--rm",
                "--device",
                "nvidia.com/gpu=all",
                "--security-opt=label=disable",
                "--interactive",
                IMAGE,
                *SENT,
            ),
            1860,
        ),
        (
            {"image": IMAGE, "runtime": "docker"},
            ("docker", "run", "--rm", "--gpus", "all", "--interactive", IMAGE, *SENT),
            1860,
        ),
    ],
    ids=["on the node", "a python3 of its own", "podman", "docker"],
)
def test_the_program_is_sent_with_its_arguments(
    inputs: Mapping[str, object], argv: tuple[str, ...], longest: float
) -> None:
    run = gate(GATE, {**inputs, "launches": 2}).plan(facts("dgx_h100", 1), ["node01"])[0]
    assert [(command.argv, command.timeout_s) for command in run.commands] == [(argv, longest)] * 2
    assert "torch.equal" in run.commands[0].stdin


@pytest.mark.parametrize(("platform", "kinds"), [("dgx_a100", ("bf16", "tf32")), ("dgx_h100", ("bf16", "fp8", "tf32"))])
def test_fp8_is_multiplied_only_where_the_gpu_has_it(platform: str, kinds: tuple[str, ...]) -> None:
    run = gate(GATE, {"image": IMAGE, "launches": 1}).plan(facts(platform, 1), ["node01"])[0]
    assert run.commands[0].argv[-len(kinds) - 1 :] == ("8192", *kinds)


@pytest.mark.parametrize(
    ("code", "stderr", "ended"),
    [
        (
            126,
            "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all\n",
            "setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        ),
        (127, "bash: line 1: podman: command not found\n", "bash: line 1: podman: command not found"),
        (
            125,
            "docker: Error response from daemon: no such image.\n\nRun 'docker run --help' for more information\n",
            "no such image",
        ),
        (137, "", "nothing said"),
    ],
    ids=["CDI", "no runtime", "no image", "killed"],
)
def test_a_container_that_was_not_started_says_why(code: int, stderr: str, ended: str) -> None:
    known = facts("dgx_h100", 1)
    made = gate(GATE, {"image": IMAGE, "launches": 1})
    run = made.plan(known, ["node01"])[0]
    verdict = made.evaluate(known, run, {"gemm-0": Output("gemm-0", "node01", "x", code, "", stderr, seconds=1.0)})
    says = f"readings of every GPU and precision Actual: empty output (exit code {code}: {ended})"
    assert [str(finding) for finding in verdict.findings] == [
        f"node01: GEMM by PyTorch unreadable - Expected: {says}. {NAME}"
    ]
    assert verdict.outcome is Outcome.ERROR


def test_burn_in_asks_for_it_and_waives_it_for_nobody() -> None:
    entry = next(entry for entry in loader.gate_set("burnin").gates if entry.id == GATE)
    assert (entry.required, entry.inputs) == (True, {}), "which image is for the site to say"
