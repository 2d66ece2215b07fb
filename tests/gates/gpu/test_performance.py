"""Gates that load the GPUs: matrix multiplication against siblings, copies, burn, compute integrity, and DCGM's levels."""

# ruff: noqa: E501 - a row of a table is one exact message
from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import GateFacts, Output
from rackready.gates.expectation import launches
from rackready.gates.formats import nvbandwidth, proftester
from rackready.gates.formats.error import FormatError
from rackready.gates.gpu.siblings import Comparison, compare
from rackready.gates.judge import Judge
from rackready.gates.offline import facts
from rackready.gates.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import under_load
from tests.gates.support import text

GEMM = "node/gpu/performance/gemm"
COPY = "node/gpu/performance/nvbandwidth"
BURN = "node/gpu/stress/burn"
SMI = text("smi/dgx_h100_healthy.xml")
FP16 = text("proftester/dgx_h100_fp16_healthy.txt")
ONE = {"launches": 1, "precisions": ["fp16"], "duration_s": 8, "warm_up_s": 2}


def judge(gate_id: str, outputs: Mapping[str, str], inputs: Mapping[str, object], *, codes: Mapping[str, int] | None = None, seconds: float = 60.0) -> Verdict:
    known: GateFacts = facts("dgx_h100", 1)
    found = gate(gate_id, inputs)
    run = found.plan(known, ["node01"])[0]
    said = {key: Output(key, "node01", "x", (codes or {}).get(key, 0), out, seconds=seconds) for key, out in outputs.items()}
    return found.evaluate(known, run, said)


def says(verdict: Verdict) -> list[str]:
    return [str(finding) for finding in verdict.findings]


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
    assert says(verdict) == []
    assert [(metric.name, metric.target, metric.unit) for metric in verdict.metrics][:2] == [
        ("gemm_fp16", "node01/gpu0", "GFLOPS"),
        ("gemm_fp16", "node01/gpu1", "GFLOPS"),
    ]
    assert {metric.name for metric in gate(GEMM).fleet} == {"gemm_fp16", "gemm_fp32"}
    assert verdict.note == "measured by dcgmproftester; it has no BF16 and FP8"


@pytest.mark.parametrize("percent", [5, 10, 40])
def test_gemm_names_the_gpu_that_is_slow(percent: float) -> None:
    verdict = judge(GEMM, {"fp16-0": slowed(6, percent)}, ONE)
    assert [(finding.where, finding.what) for finding in verdict.findings] == [("node01 gpu6", "gemm_fp16 behind its siblings")]
    assert "node01/gpu6" not in verdict.measured
    assert len(verdict.measured) == 7


def test_the_launches_that_the_site_needs_find_three_percent_and_raise_no_alarm() -> None:
    """1,000 nodes of 8 GPUs with 1 % of noise a launch: the GPU 3 % slow is found in most, and no healthy one is blamed more than once in a hundred sites."""
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
    ("out", "code", "words", "outcome"),
    [
        (slowed(0, -80), 0, "node01 gpu0: gemm_fp16 is implausible - Expected: at most 1.009e+06 GFLOPS", Outcome.ERROR),
        (FP16.replace("GPU 3, TestField 1004 test PASSED.", "GPU 3, TestField 1004 test FAILED."), 255, "node01 gpu3: fp16 load failed - Expected: PASSED Actual: FAILED.", Outcome.FAIL),
        ("\n".join(line for line in FP16.splitlines() if not line.startswith("Worker 4:")), 0, "node01 gpu4: no steady load - Expected: at least 5 readings above 0 after 2 s Actual: 0 readings.", Outcome.ERROR),
        ("Error: Unable to initialize DCGM. Return: -6.\n", 255, "node01: dcgmproftester unreadable - Expected: a reading per GPU and second Actual: no readings of dcgmproftester, but 'Error: Unable to initialize DCGM. Return: -6.' (exit code 255). Install package datacenter-gpu-manager-4-cuda13;", Outcome.ERROR),
        (FP16, 255, "node01: dcgmproftester contradicts itself - Expected: exit code 0 with readings Actual: exit code 255.", Outcome.ERROR),
    ],
)  # fmt: skip
def test_gemm_that_is_no_measurement(out: str, code: int, words: str, outcome: Outcome) -> None:
    verdict = judge(GEMM, {"fp16-0": out}, ONE, codes={"fp16-0": code})
    assert any(line.startswith(words) for line in says(verdict)), says(verdict)
    assert verdict.outcome is outcome


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


@pytest.mark.parametrize(
    "broken", ["", "hello", "Worker 0:0 [1004]: TensorEngineActive:  generated ???, dcgm 0.000 (-e5 gflops).", FP16 + "GPU 0, TestField 1004 test SKIPPED.\n"]
)
def test_readings_that_are_none_are_refused(broken: str) -> None:
    with pytest.raises(FormatError):
        proftester.parse(broken)


JSON, TABLE = text("nvbandwidth/dgx_h100_healthy.json"), text("nvbandwidth/dgx_h100_healthy.txt")


def copies(
    change: Callable[[dict[str, dict[str, Any]]], object] = lambda _tests: None, *, replays: str = "0", seconds: float = 60.0, out: str | None = None
) -> Verdict:
    found = json.loads(JSON)
    change({test["name"]: test for test in found["nvbandwidth"]["testcases"]})
    pieces = SMI.split("\t<gpu id=")
    before = int(pieces[3].split("<replay_counter>")[1].split("<")[0])
    pieces[3] = pieces[3].replace(f"<replay_counter>{before}<", f"<replay_counter>{before + int(replays)}<")
    outputs = {"before": SMI, "copy-0": out if out is not None else json.dumps(found), "after": "\t<gpu id=".join(pieces)}
    return judge(COPY, outputs, {"launches": 1}, seconds=seconds)


def set_cell(test: str, row: int, column: int, value: str) -> Callable[[dict[str, dict[str, Any]]], object]:
    return lambda tests: tests[test]["bandwidth_matrix"][row].__setitem__(column, value)


def test_copies_of_a_healthy_node_pass_as_json_and_as_text() -> None:
    assert says(copies()) == []
    assert says(copies(out=TABLE)) == []
    assert nvbandwidth.parse(TABLE).tests == nvbandwidth.parse(TABLE).tests
    assert {name: len(test.matrix) for name, test in nvbandwidth.parse(TABLE).tests.items()} == {
        name: len(test.matrix) for name, test in nvbandwidth.parse(JSON).tests.items()
    }


@pytest.mark.parametrize(
    ("change", "where", "what", "outcome"),
    [
        (set_cell("host_to_device_memcpy_ce", 0, 3, "27.60"), "node01 gpu3", "host_to_device_memcpy_ce is slow", Outcome.FAIL),
        (set_cell("device_to_host_memcpy_ce", 0, 3, "48.10"), "node01 gpu3", "device_to_host_memcpy_ce behind its siblings", Outcome.FAIL),
        (set_cell("device_local_copy", 0, 3, "1100.0"), "node01 gpu3", "device_local_copy behind its siblings", Outcome.FAIL),
        (set_cell("host_to_device_memcpy_ce", 0, 3, "112.0"), "node01 gpu3", "host_to_device_memcpy_ce is implausible", Outcome.ERROR),
        (set_cell("host_to_device_memcpy_ce", 0, 3, "N/A"), "node01", "nvbandwidth test host_to_device_memcpy_ce has no number", Outcome.ERROR),
        (lambda tests: tests["device_local_copy"].update(status="Waived"), "node01", "nvbandwidth test device_local_copy did not run", Outcome.ERROR),
        (lambda tests: tests["device_local_copy"].update(status="Fine"), "node01", "nvbandwidth unreadable", Outcome.ERROR),
    ],
)  # fmt: skip
def test_copies_that_are_slow_or_missing(change: Callable[[dict[str, dict[str, Any]]], object], where: str, what: str, outcome: Outcome) -> None:
    verdict = copies(change)
    assert (where, what) in {(finding.where, finding.what) for finding in verdict.findings}
    assert verdict.outcome is outcome
    assert "node01/gpu3" not in verdict.measured


@pytest.mark.parametrize(("replays", "outcome"), [("31", Outcome.PASS), ("32", Outcome.FAIL)])
def test_replays_are_held_against_the_rate_of_the_link(replays: str, outcome: Outcome) -> None:
    """PCIe 5.0 x16: 1e-12 x 32 GT/s x 60 s x 16 lanes = 30.72, so 31 in a minute (DCGM)."""
    assert copies(replays=replays).outcome is outcome


@pytest.mark.parametrize(
    ("replays", "seconds", "actual"),
    [("-1", 60.0, "2 before, 1 after"), ("3", 0.0, "2 before, 5 after, in a time that is not known")],
    ids=["went back", "no time"],
)
def test_replays_that_cannot_be_counted_are_an_error(replays: str, seconds: float, actual: str) -> None:
    verdict = copies(replays=replays, seconds=seconds)
    step = "The driver was loaded anew in between, or the outputs were captured without their time: run the gate again."
    wanted = f"node01 gpu2: PCIe replays unreadable - Expected: a counter that grows, and the time of the copies Actual: {actual}. {step}"
    assert says(verdict) == [wanted]
    assert verdict.outcome is Outcome.ERROR


def test_a_gpu_that_is_gone_after_the_copies_is_seen() -> None:
    pieces = SMI.split("\t<gpu id=")
    last = pieces[8].split("\t</gpu>\n", 1)[1]
    after = "\t<gpu id=".join(pieces[:8]).replace("<attached_gpus>8<", "<attached_gpus>7<") + last
    verdict = judge(COPY, {"before": SMI, "copy-0": JSON, "after": after}, {"launches": 1})
    assert says(verdict) == ["node01: GPUs in nvidia-smi - Expected: 8 Actual: 7. See the gate node/gpu/sanity/inventory: a GPU is missing."]
    assert verdict.outcome is Outcome.FAIL


def busy(report: str, **changed: tuple[str, str]) -> str:
    out = report.replace("<gpu_util>0 %<", "<gpu_util>100 %<").replace("<sm_clock>345 MHz<", "<sm_clock>1755 MHz<")
    for old, new in changed.values():
        pieces = out.split("\t<gpu id=")
        assert old in pieces[3]
        pieces[3] = pieces[3].replace(old, new, 1)
        out = "\t<gpu id=".join(pieces)
    return out


def watched(report: str, loaded: int = 3) -> str:
    return json.dumps({"format": under_load.FORMAT, "samples": 9, "loaded": loaded, "last": report, "complete": True})


DIAG = text("dcgm/dgx_h100_r3_dcgm4_healthy.json")


def burn(watch: str | None = None, after: str = SMI, dcgmi: str = DIAG, before: str = SMI) -> Verdict:
    outputs = {"before": before, "dcgmi": dcgmi, "watch": watched(busy(SMI)) if watch is None else watch, "after": after}
    return judge(BURN, outputs, {"power_s": 60, "stress_s": 60, "skips": {}})


def third(old: str, new: str) -> str:
    pieces = SMI.split("\t<gpu id=")
    assert old in pieces[3]
    pieces[3] = pieces[3].replace(old, new, 1)
    return "\t<gpu id=".join(pieces)


def test_a_healthy_burn_passes() -> None:
    verdict = burn()
    assert says(verdict) == []
    assert len(verdict.measured) == 8
    assert ("sm_clock_under_load", "node01/gpu2", 1755.0) in {(metric.name, metric.target, metric.value) for metric in verdict.metrics}


def test_a_clock_without_a_bound_is_not_said_to_be_judged() -> None:
    known = facts("dgx_h100", 1)
    least = known.nodes["node01"].gpu.power.sm_clock_min
    node = known.nodes["node01"]
    gpu = node.gpu.model_copy(update={"power": node.gpu.power.model_copy(update={"sm_clock_min": None})})
    found = gate(BURN, {"power_s": 60, "stress_s": 60})
    outputs = {"before": SMI, "dcgmi": DIAG, "watch": watched(busy(SMI)), "after": SMI}
    said = {key: Output(key, "node01", "x", 0, out, seconds=60.0) for key, out in outputs.items()}
    notes = [found.evaluate(one, found.plan(one, ["node01"])[0], said).note for one in (known, replace(known, nodes={"node01": replace(node, gpu=gpu)}))]
    words = "no lowest SM clock under load is published for h100_sxm: recorded, not judged (input least_clock_mhz)"
    assert notes == [None if least else words, words]


@pytest.mark.parametrize(
    ("verdict", "where", "what", "outcome"),
    [
        (lambda: burn(watched(busy(SMI, clock=("<sm_clock>1755 MHz<", "<sm_clock>1200 MHz<")))), "node01 gpu2", "SM clock under load", Outcome.FAIL),
        (lambda: burn(watched(busy(SMI, hot=("<clocks_event_reason_sw_thermal_slowdown>Not Active<", "<clocks_event_reason_sw_thermal_slowdown>Active<")))), "node01 gpu2", "clocks held down: software thermal slowdown", Outcome.FAIL),
        (lambda: burn(after=third("<dram_correctable>0<", "<dram_correctable>21<")), "node01 gpu2", "corrected ECC errors under load", Outcome.FAIL),
        (lambda: burn(after=third("<dram_uncorrectable>0<", "<dram_uncorrectable>1<")), "node01 gpu2", "uncorrected ECC errors under load", Outcome.FAIL),
        (lambda: burn(after=third("hw_power_brake>0 us<", "hw_power_brake>2500000 us<")), "node01 gpu2", "clocks held down under load: power brake", Outcome.FAIL),
        (lambda: burn(before=third("<dram_uncorrectable>0<", "<dram_uncorrectable>5<"), after=third("<sram_correctable>0<", "<sram_correctable>2<")), "node01 gpu2", "counters went back under load", Outcome.ERROR),
        (lambda: burn(watched("", loaded=0)), "node01", "GPUs were not seen under load", Outcome.ERROR),
        (lambda: burn("{}"), "node01", "watch under load unreadable", Outcome.ERROR),
        (lambda: burn(dcgmi=text("dcgm/dcgm4_hostengine_down.json")), "node01 burn", "DCGM diagnostic did not run", Outcome.ERROR),
    ],
    ids=["clock", "thermal", "corrected", "uncorrected", "brake", "reset", "idle", "no watch", "no engine"],
)  # fmt: skip
def test_what_only_load_shows(verdict: Callable[[], Verdict], where: str, what: str, outcome: Outcome) -> None:
    found = verdict()
    assert (where, what) in {(finding.where, finding.what) for finding in found.findings}
    assert found.outcome is outcome
    if where == "node01 gpu2":
        assert "node01/gpu2" not in found.measured


def test_twenty_corrected_errors_in_two_minutes_are_the_limit() -> None:
    assert burn(after=third("<dram_correctable>0<", "<dram_correctable>20<")).outcome is Outcome.PASS


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
        assert [finding.what for finding in verdict.findings] == ["DCGM test memtest did not run", "DCGM test pulse_test did not run"]


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
    verdict = judge("node/gpu/stress/compute-integrity", {"dcgmi": json.dumps(found)}, {"skips": {"memtest": "left out of this fixture"}}, codes={"dcgmi": 205})
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


def watch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reports: list[str], running: list[bool]) -> dict[str, Any]:
    """What the watch prints when it sees these reports, and the program running or not at each look; a minute passes at every look."""
    clock, seen = iter(range(0, 6000, 31)), iter(running)
    monkeypatch.setattr(under_load, "ask", iter(reports).__next__)
    monkeypatch.setattr(under_load, "lives", lambda program: program == "dcgmi" and next(seen))
    monkeypatch.setattr(under_load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(under_load.time, "sleep", lambda _s: None)
    assert under_load.main("1000", "dcgmi") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_watch_keeps_the_last_report_under_load(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Between two tests of the program the GPUs rest: the watch goes on until the program is gone."""
    reports = [SMI, busy(SMI), SMI, busy(SMI).replace("1755 MHz", "1700 MHz"), SMI, SMI]
    found = watch(monkeypatch, capsys, reports, [True, True, True, True, False])
    assert (found["samples"], found["loaded"]) == (5, 2)
    assert "1700 MHz" in found["last"]


def test_the_watch_does_not_wait_for_a_program_that_is_gone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = watch(monkeypatch, capsys, [SMI] * 9, [False] * 9)
    assert (found["samples"], found["loaded"]) == (2, 0)


def test_a_program_is_known_by_the_name_of_its_process() -> None:
    assert under_load.lives(Path("/proc/self/comm").read_text(encoding="utf-8").strip())
    assert not under_load.lives("no-such-program")


def test_a_note_of_one_gpu_alone_is_fleet_pending() -> None:
    known = facts("dgx_h100", 1)
    alone = replace(known.nodes["node01"], platform=known.nodes["node01"].platform.model_copy(update={"gpus": 1}))
    known = replace(known, nodes={"node01": alone})
    found = gate(GEMM, ONE)
    verdict = found.evaluate(known, found.plan(known, ["node01"])[0], {"fp16-0": Output("fp16-0", "node01", "x", 0, FP16, seconds=1.0)})
    assert (verdict.outcome, verdict.note) == (Outcome.PASS, "fleet pending; measured by dcgmproftester; it has no BF16 and FP8")
