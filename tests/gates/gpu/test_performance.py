"""Gates that load the GPUs: matrix multiplication against siblings, copies, burn, compute integrity, and DCGM's levels."""  # noqa: E501

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rackready.format_error import FormatError
from rackready.gates.base import GateFacts, Output
from rackready.gates.engine.registry import gate
from rackready.gates.formats import proftester
from rackready.gates.gpu import matmul
from rackready.gates.gpu.siblings import Comparison, compare
from rackready.gates.judging.expectation import launches
from rackready.gates.judging.judge import Judge
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready.model.profile import Precision
from rackready.profiles import loader
from tests.gates.support import Told, tells, text

GEMM = "node/gpu/performance/gemm"
COPY = "node/gpu/performance/nvbandwidth"
SMI = text("smi/dgx_h100_healthy.xml")
FP16 = text("proftester/dgx_h100_fp16_healthy.txt")
ONE = {"launches": 1, "precisions": ["fp16"], "duration_s": 8, "warm_up_s": 2}


def judge(
    gate_id: str,
    outputs: Mapping[str, str],
    inputs: Mapping[str, object],
    *,
    codes: Mapping[str, int] | None = None,
    seconds: float = 60.0,
) -> Verdict:
    known: GateFacts = facts("dgx_h100", 1)
    found = gate(gate_id, inputs)
    run = found.plan(known, ["node01"])[0]
    said = {
        key: Output(key, "node01", "x", (codes or {}).get(key, 0), out, seconds=seconds) for key, out in outputs.items()
    }
    return found.evaluate(known, run, said)


def slowed(gpu: int, percent: float, of: str = FP16) -> str:
    out = []
    for line in of.splitlines():
        if line.startswith(f"Worker {gpu}:"):
            value = float(line.split("(")[1].split(" ")[0]) * (1 - percent / 100)
            line = f"{line.split('(')[0]}({value:#.3g} gflops)."  # noqa: PLW2901 - the line as it would be
        out.append(line)
    return "\n".join(out) + "\n"


def test_gemm_of_a_healthy_node_passes_and_gives_the_fleet_its_metrics() -> None:
    verdict = judge(GEMM, {"fp16-0": FP16}, ONE)
    assert tells(verdict) == []
    assert [(metric.name, metric.target, metric.unit) for metric in verdict.metrics][:2] == [
        ("gemm_fp16", "node01/gpu0", "GFLOPS"),
        ("gemm_fp16", "node01/gpu1", "GFLOPS"),
    ]
    assert {metric.name for metric in gate(GEMM).fleet} == {"gemm_fp16", "gemm_fp32"}
    assert verdict.note == "measured by dcgmproftester, which has no BF16 and FP8"


@pytest.mark.parametrize("percent", [5, 10, 40])
def test_gemm_names_the_gpu_that_is_slow(percent: float) -> None:
    verdict = judge(GEMM, {"fp16-0": slowed(6, percent)}, ONE)
    assert ("node01 gpu6", "gemm_fp16 behind its siblings") in {
        (finding.where, finding.what) for finding in verdict.findings
    }
    assert {finding.where for finding in verdict.findings} == {"node01 gpu6"}
    assert "node01/gpu6" not in verdict.measured
    assert len(verdict.measured) == 7


def test_the_launches_that_the_site_needs_find_three_percent_and_raise_no_alarm() -> None:
    """1,000 nodes of 8 GPUs with 1 % of noise a launch: the GPU 3 % slow is found in most, and no healthy one is blamed more than once in a hundred sites."""  # noqa: E501
    random.seed(20261122)
    units = 8 * 1000
    count = launches(units, sigma=0.01, effect=0.03)
    found = alarms = 0
    for _ in range(300):
        values = {gpu: sorted(random.gauss(1, 0.01) for _ in range(count))[count // 2] for gpu in range(8)}
        alarms += len(compare(Judge(), "node01", values, Comparison("m", "x", 0.03, 0.01, count, units, "step")))
        values[5] *= 0.97
        found += 5 in compare(Judge(), "node01", values, Comparison("m", "x", 0.03, 0.01, count, units, "step"))
    assert alarms <= 2
    assert found >= 250


def test_two_gpus_are_no_siblings() -> None:
    assert compare(Judge(), "node01", {0: 1.0, 1: 0.5}, Comparison("m", "x", 0.03, 0.01, 7, 2, "step")) == set()


@pytest.mark.parametrize(
    ("out", "code", "finding", "outcome"),
    [
        (
            slowed(0, -80),
            0,
            ("gemm-rate-implausible", "node01 gpu0", "at most 9.894e+05 GFLOPS"),
            Outcome.ERROR,
        ),
        (
            FP16.replace("GPU 3, TestField 1004 test PASSED.", "GPU 3, TestField 1004 test FAILED."),
            255,
            ("dcgmproftester-failed", "node01 gpu3", "PASSED", "FAILED"),
            Outcome.FAIL,
        ),
        (
            "\n".join(line for line in FP16.splitlines() if not line.startswith("Worker 4:")),
            0,
            ("dcgmproftester-no-steady-load", "node01 gpu4", "at least 5 readings above 0 after 2 s", "0 readings"),
            Outcome.ERROR,
        ),
        (
            "Error: Unable to initialize DCGM. Return: -6.\n",
            255,
            (
                "dcgmproftester-unreadable",
                "node01",
                "a reading per GPU and second",
                "no readings of dcgmproftester, but 'Error: Unable to initialize DCGM. Return: -6.' (exit code 255)",
                "major=13",
            ),
            Outcome.ERROR,
        ),
        (
            FP16,
            255,
            ("dcgmproftester-exit-code", "node01", "exit code 0 with readings", "exit code 255"),
            Outcome.ERROR,
        ),
    ],
)
def test_gemm_that_is_no_measurement(out: str, code: int, finding: Told, outcome: Outcome) -> None:
    verdict = judge(GEMM, {"fp16-0": out}, ONE, codes={"fp16-0": code})
    *same, last = finding
    found = [one[: len(finding)] for one in tells(verdict)]
    assert any(one[:-1] == tuple(same) and one[-1].startswith(last) for one in found), found
    assert verdict.outcome is outcome


MATMUL = "Maximum Achievable Matmul FLOPS"
SMSTRESS = "NVIDIA/DCGM nvvs/diag-skus.yaml.in, sm_stress of id {}: 0.75 x what dcgmproftester measured"


def everywhere(share: float, of: str = FP16) -> str:
    for gpu in range(8):
        of = slowed(gpu, 100 * (1 - share), of)
    return of


def test_gemm_finds_eight_gpus_that_are_equally_slow() -> None:
    verdict = judge(GEMM, {"fp16-0": everywhere(0.5)}, ONE)
    source = f"derived: 0.6 x 794.5 TFLOPS; stas00/ml-engineering compute/accelerator, {MATMUL}: H100 SXM"
    assert tells(verdict)[0] == (
        "gemm-slow",
        "node01 gpu0",
        f"at least 4.767e+05 GFLOPS ({source})",
        "3.4e+05 GFLOPS",
        "metric=gemm_fp16",
    )
    assert (verdict.outcome, verdict.measured, len(verdict.findings)) == (Outcome.FAIL, [], 8)


@pytest.mark.parametrize(
    ("model", "kind", "value", "source"),
    [
        (
            "h100_sxm",
            "fp16",
            476_700,
            f"derived: 0.6 x 794.5 TFLOPS; stas00/ml-engineering compute/accelerator, {MATMUL}: H100 SXM",
        ),
        (
            "h100_sxm",
            "tf32",
            238_350,
            f"derived: 0.6 x 397.2 TFLOPS; stas00/ml-engineering compute/accelerator, {MATMUL}: H100 SXM",
        ),
        (
            "h200_sxm",
            "fp8",
            872_040,
            f"derived: 0.6 x 1453 TFLOPS; stas00/ml-engineering compute/accelerator, {MATMUL}: H200 SXM",
        ),
        (
            "b200_sxm",
            "bf16",
            1_047_000,
            f"derived: 0.6 x 1745 TFLOPS; stas00/ml-engineering compute/accelerator, {MATMUL}: B200 SXM",
        ),
        ("h100_sxm", "fp32", 29_250, SMSTRESS.format("2330")),
        ("h200_sxm", "fp32", 37_500, SMSTRESS.format("2335")),
        ("l40s", "fp16", None, ""),
        ("h100_nvl", "fp32", None, ""),
    ],
)
def test_what_a_gpu_must_multiply_follows_from_what_is_published(
    model: str, kind: Precision, value: float | None, source: str
) -> None:
    found = matmul.floor(loader.gpu(model), kind)
    assert (found and (round(found.value), found.source)) == (value and (value, source))


@pytest.mark.parametrize("platform", ["dgx_h100", "dgx_h200", "dgx_b200"])
def test_no_model_of_a_whole_baseboard_waits_for_a_fleet(platform: str) -> None:
    node = facts(platform, 1).nodes["node01"]
    kinds: tuple[Precision, ...] = ("fp16", "fp32", "bf16", "fp8", "tf32")
    assert not matmul.needs_fleet(node.gpu, kinds, node.platform.gpus)


def test_gemm_of_a_model_without_a_published_rate_waits_for_its_fleet() -> None:
    known = facts("dgx_h100", 1)
    bare = known.nodes["node01"].gpu.model_copy(update={"matmul": {}})
    known = replace(known, nodes={"node01": replace(known.nodes["node01"], gpu=bare)})
    found = gate(GEMM, ONE)
    verdict = found.evaluate(
        known, found.plan(known, ["node01"])[0], {"fp16-0": Output("fp16-0", "node01", "x", 0, FP16, seconds=1.0)}
    )
    assert (verdict.outcome, verdict.remarks) == (
        Outcome.PASS,
        "fleet pending; measured by dcgmproftester, which has no BF16 and FP8",
    )


def test_gemm_plans_what_the_site_needs() -> None:
    run = gate(GEMM).plan(facts("dgx_h100", 100), ["node01"])[0]
    assert len(run.commands) == 2 * launches(800)
    assert run.commands[0].argv == (
        "dcgmproftester13",
        "--no-dcgm-validation",
        "-t",
        "1004",
        "-i",
        "0,1,2,3,4,5,6,7",
        "-d",
        "20",
        "-r",
        "1",
        "--max-processes",
        "0",
    )
    assert [command.stage for command in run.commands] == list(range(len(run.commands)))
    fp32 = next(command for command in run.commands if command.key.startswith("fp32"))
    assert fp32.argv[1:5] == ("--no-dcgm-validation", "--cublas", "-t", "1007"), "without cuBLAS it tells no figure"


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "hello",
        "Worker 0:0 [1004]: TensorEngineActive:  generated ???, dcgm 0.000 (-e5 gflops).",
        FP16 + "GPU 0, TestField 1004 test SKIPPED.\n",
    ],
)
def test_readings_that_are_none_are_refused(broken: str) -> None:
    with pytest.raises(FormatError):
        proftester.parse(broken)


DIAG = text("dcgm/dgx_h100_r3_dcgm4_healthy.json")


@pytest.mark.parametrize(("name", "tests"), [("dcgm-r2", "2"), ("dcgm-r4", "4")])
def test_further_levels_need_their_own_tests(name: str, tests: str) -> None:
    known = facts("dgx_h100", 1)
    found = gate(f"node/gpu/validation/{name}")
    run = found.plan(known, ["node01"])[0]
    assert run.commands[0].argv[:5] == ("dcgmi", "diag", "-j", "-r", tests)
    output = {"dcgmi": Output("dcgmi", "node01", "x", 0, DIAG, seconds=1.0)}
    verdict = found.evaluate(known, run, output)
    assert verdict.outcome is (Outcome.PASS if name == "dcgm-r2" else Outcome.ERROR)
    if name == "dcgm-r4":
        assert [finding.what for finding in verdict.findings] == [
            "DCGM test memtest did not run",
            "DCGM test pulse_test did not run",
        ]


def test_wrong_results_are_found_by_the_integrity_check() -> None:
    found = json.loads(DIAG)
    for category in found["DCGM Diagnostic"]["test_categories"]:
        for test in category["tests"]:
            if test["name"] == "diagnostic":
                wrong = {
                    "error_category": 10,
                    "error_id": 52,
                    "error_severity": 2,
                    "warning": "Found 3 faulty memory elements on GPU 2 Run a field diagnostic on the GPU.",
                }
                test["results"][2].update(status="Fail", warnings=[wrong])
    verdict = judge(
        "node/gpu/stress/compute-integrity",
        {"dcgmi": json.dumps(found)},
        {"skips": {"memtest": "left out of this fixture"}},
        codes={"dcgmi": 205},
    )
    assert [(finding.where, finding.what) for finding in verdict.findings] == [("node01 gpu2", "DCGM test diagnostic")]
    run = gate("node/gpu/stress/compute-integrity", {"compute_s": 60}).plan(facts("dgx_h100", 1), ["node01"])[0]
    assert run.commands[0].argv == (
        "dcgmi",
        "diag",
        "-j",
        "-r",
        "diagnostic,memtest",
        "-p",
        "diagnostic.test_duration=60;memtest.test_duration=600",
        "-n",
        "gpu:8",
    )


def test_a_note_of_one_gpu_alone_is_fleet_pending() -> None:
    known = facts("dgx_h100", 1)
    alone = replace(known.nodes["node01"], platform=known.nodes["node01"].platform.model_copy(update={"gpus": 1}))
    known = replace(known, nodes={"node01": alone})
    found = gate(GEMM, ONE)
    verdict = found.evaluate(
        known, found.plan(known, ["node01"])[0], {"fp16-0": Output("fp16-0", "node01", "x", 0, FP16, seconds=1.0)}
    )
    assert (verdict.outcome, verdict.remarks) == (
        Outcome.PASS,
        "fleet pending; measured by dcgmproftester, which has no BF16 and FP8",
    )
