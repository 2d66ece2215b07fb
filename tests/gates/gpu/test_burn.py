"""The burn: DCGM's power and stress tests, the GPUs while they are warm, and what their counters gained; and the program that watches them."""  # noqa: E501

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import under_load
from tests.gates.gpu.test_performance import DIAG, SMI, judge
from tests.gates.support import later, tells, text

BURN = "node/gpu/stress/burn"


def busy(report: str, **changed: tuple[str, str]) -> str:
    out = report.replace("<gpu_util>0 %<", "<gpu_util>100 %<").replace("<sm_clock>345 MHz<", "<sm_clock>1755 MHz<")
    out = re.sub(r"<(average|instant)_power_draw>[^<]*<", r"<\1_power_draw>692.00 W<", out)
    for old, new in changed.values():
        pieces = out.split("\t<gpu id=")
        assert old in pieces[3]
        pieces[3] = pieces[3].replace(old, new, 1)
        out = "\t<gpu id=".join(pieces)
    return out


def watched(report: str, loaded: int = 3) -> str:
    return json.dumps(
        {
            "format": under_load.FORMAT,
            "samples": 9,
            "loaded": loaded,
            "last": report,
            "draws": under_load.draws(report),
            "complete": True,
        }
    )


def burn(
    watch: str | None = None,
    after: str = SMI,
    dcgmi: str = DIAG,
    before: str = SMI,
    seconds: float = 120.0,
    **inputs: object,
) -> Verdict:
    outputs = {
        "before": before,
        "dcgmi": dcgmi,
        "watch": watched(busy(SMI)) if watch is None else watch,
        "after": later(after),
    }
    return judge(BURN, outputs, {"power_s": 60, "stress_s": 60, **inputs}, seconds=seconds)


def third(old: str, new: str) -> str:
    pieces = SMI.split("\t<gpu id=")
    assert old in pieces[3]
    pieces[3] = pieces[3].replace(old, new, 1)
    return "\t<gpu id=".join(pieces)


def test_a_healthy_burn_passes() -> None:
    verdict = burn()
    assert tells(verdict) == []
    assert len(verdict.measured) == 8
    seen = {(metric.name, metric.target, metric.value) for metric in verdict.metrics}
    assert seen >= {
        ("sm_clock_under_load", "node01/gpu2", 1755.0),
        ("power_draw_under_load", "node01/gpu2", 692.0),
        ("gpus_reported", "node01", 8.0),
    }
    assert ("power_draw_under_load", 525.0) in {(criterion.metric, criterion.bound) for criterion in verdict.criteria}


SOURCE = (
    "NVIDIA's DCGM documentation, targeted_power: passes from 0.75 x the target on; the target is the GPU's power limit"
)


def drawing(watts: str, **changed: tuple[str, str]) -> str:
    return busy(SMI, draw=("<average_power_draw>692.00 W<", f"<average_power_draw>{watts}<"), **changed)


def test_a_gpu_that_draws_little_at_full_load_is_named() -> None:
    verdict = burn(watched(drawing("150.00 W")))
    wanted = f"at least 525 W (0.75 x 700 W; {SOURCE})"
    assert tells(verdict) == [("gpu-power-low", "node01 gpu2", wanted, "150 W")]
    assert (verdict.outcome, verdict.blamed, "node01/gpu2" in verdict.measured) == (Outcome.FAIL, [], False)


@pytest.mark.parametrize(("watts", "outcome"), [("524.90 W", Outcome.FAIL), ("525.00 W", Outcome.PASS)])
def test_three_quarters_of_the_power_limit_are_enough(watts: str, outcome: Outcome) -> None:
    assert burn(watched(drawing(watts))).outcome is outcome


@pytest.mark.parametrize(
    ("limit", "outcome"), [("500.00 W", Outcome.PASS), ("700.00 W", Outcome.FAIL), ("900.00 W", Outcome.FAIL)]
)
def test_a_lower_power_limit_lowers_what_is_asked_and_a_higher_one_does_not_raise_it(
    limit: str, outcome: Outcome
) -> None:
    lowered = ("<current_power_limit>700.00 W<", f"<current_power_limit>{limit}<")
    assert burn(watched(drawing("400.00 W", limit=lowered))).outcome is outcome
    assert burn(watched(drawing("525.00 W", limit=lowered))).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {
                "draw": ("<average_power_draw>692.00 W<", "<average_power_draw>N/A<"),
                "moment": ("<instant_power_draw>692.00 W<", "<instant_power_draw>N/A<"),
            },
            "draw nothing, limit 700.0 W",
        ),
        ({"limit": ("<current_power_limit>700.00 W<", "<current_power_limit>N/A<")}, "draw 692.0 W, limit nothing"),
    ],
    ids=["draw", "limit"],
)
def test_power_that_is_not_reported_is_an_error(changed: dict[str, tuple[str, str]], told: str) -> None:
    verdict = burn(watched(busy(SMI, **changed)))
    assert tells(verdict) == [("gpu-power-not-reported", "node01 gpu2", "its draw and its limit", told)]
    assert verdict.outcome is Outcome.ERROR


@pytest.mark.parametrize("platform", ["dgx_h200", "dgx_b200"])
def test_idle_clocks_and_power_under_load_fail_on_models_without_a_lowest_clock(platform: str) -> None:
    known = facts(platform, 1)
    found = gate(BURN, {"power_s": 60, "stress_s": 60})
    diag = DIAG.replace('"2330"', f'"{known.nodes["node01"].gpu.pci_device_id}"')
    smi = SMI.replace("NVIDIA H100 80GB HBM3", known.nodes["node01"].gpu.product_name)
    outputs = {
        "before": smi,
        "dcgmi": diag,
        "watch": watched(smi.replace("<gpu_util>0 %<", "<gpu_util>100 %<")),
        "after": later(smi),
    }
    said = {key: Output(key, "node01", "x", 0, out, seconds=120.0) for key, out in outputs.items()}
    verdict = found.evaluate(known, found.plan(known, ["node01"])[0], said)
    assert {finding.what for finding in verdict.findings} == {"power drawn under load"}
    assert (verdict.outcome, verdict.measured, len(verdict.findings)) == (Outcome.FAIL, [], 8)


@pytest.mark.parametrize("silent", ["gone", "N/A"])
def test_slowdown_counters_that_are_absent_are_an_error(silent: str) -> None:
    report = (
        re.sub(r"\s*<clocks_event_reasons_counters>.*?</clocks_event_reasons_counters>", "", SMI, flags=re.DOTALL)
        if silent == "gone"
        else re.sub(r"(<clocks_event_reasons_counters_\w+>)[^<]*<", r"\1N/A<", SMI)
    )
    verdict = burn(before=report, after=report)
    names = "nothing of hw_power_brake, hw_therm_slowdown, sw_therm_slowdown"
    assert tells(verdict)[0] == (
        "burn-slowdowns-not-reported",
        "node01 gpu0",
        "time of each reason, before and after",
        names,
    )
    assert (verdict.outcome, verdict.measured, len(verdict.findings)) == (Outcome.ERROR, [], 8)


def test_memory_that_is_hot_under_load_only_is_named() -> None:
    verdict = burn(watched(busy(SMI, hot=("<memory_temp>42 C<", "<memory_temp>118 C<"))))
    source = "nvidia-smi -q of NVIDIA H100 80GB HBM3, Memory Max Operating Temp, public captures"
    wanted = ("gpu-memory-hot", "node01 gpu2", f"at most 95 C ({source})", "118 C")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.FAIL)


def test_a_watch_that_saw_seven_gpus_is_no_pass() -> None:
    pieces = busy(SMI).split("\t<gpu id=")
    seven = "\t<gpu id=".join([*pieces[:3], *pieces[4:]]).replace("<attached_gpus>8<", "<attached_gpus>7<")
    verdict = burn(watched(seven))
    assert tells(verdict) == [("nvidia-smi-gpus-missing", "node01", "8", "7")]
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, [])


def test_a_clock_without_a_bound_is_not_said_to_be_judged() -> None:
    known = facts("dgx_h100", 1)
    least = known.nodes["node01"].gpu.power.sm_clock_min
    node = known.nodes["node01"]
    gpu = node.gpu.model_copy(update={"power": node.gpu.power.model_copy(update={"sm_clock_min": None})})
    found = gate(BURN, {"power_s": 60, "stress_s": 60})
    outputs = {"before": SMI, "dcgmi": DIAG, "watch": watched(busy(SMI)), "after": later(SMI)}
    said = {key: Output(key, "node01", "x", 0, out, seconds=120.0) for key, out in outputs.items()}
    notes = [
        found.evaluate(one, found.plan(one, ["node01"])[0], said).note
        for one in (known, replace(known, nodes={"node01": replace(node, gpu=gpu)}))
    ]
    words = "no lowest SM clock under load is published for h100_sxm: recorded, not judged (input least_clock_mhz)"
    assert notes == [None if least else words, words]


@pytest.mark.parametrize(
    ("verdict", "where", "what", "outcome"),
    [
        (
            lambda: burn(watched(busy(SMI, clock=("<sm_clock>1755 MHz<", "<sm_clock>1200 MHz<")))),
            "node01 gpu2",
            "SM clock under load",
            Outcome.FAIL,
        ),
        (
            lambda: burn(
                watched(
                    busy(
                        SMI,
                        hot=(
                            "<clocks_event_reason_sw_thermal_slowdown>Not Active<",
                            "<clocks_event_reason_sw_thermal_slowdown>Active<",
                        ),
                    )
                )
            ),
            "node01 gpu2",
            ("clocks reduced: software thermal slowdown"),
            Outcome.FAIL,
        ),
        (
            lambda: burn(after=third("<dram_correctable>0<", "<dram_correctable>21<")),
            "node01 gpu2",
            "corrected ECC errors under load",
            Outcome.FAIL,
        ),
        (
            lambda: burn(after=third("<dram_uncorrectable>0<", "<dram_uncorrectable>1<")),
            "node01 gpu2",
            "uncorrected ECC errors under load",
            Outcome.FAIL,
        ),
        (
            lambda: burn(after=third("hw_power_brake>0 us<", "hw_power_brake>2500000 us<")),
            "node01 gpu2",
            ("clocks reduced under load: power brake"),
            Outcome.FAIL,
        ),
        (
            lambda: burn(
                before=third("<dram_uncorrectable>0<", "<dram_uncorrectable>5<"),
                after=third("<sram_correctable>0<", "<sram_correctable>2<"),
            ),
            "node01 gpu2",
            "counters went back under load",
            Outcome.ERROR,
        ),
        (lambda: burn(watched("", loaded=0)), "node01", "GPUs not seen under load", Outcome.ERROR),
        (lambda: burn("{}"), "node01", "watch under load unreadable", Outcome.ERROR),
        (
            lambda: burn(dcgmi=text("dcgm/dcgm4_hostengine_down.json")),
            "node01 burn",
            "DCGM diagnostic did not run",
            Outcome.ERROR,
        ),
    ],
    ids=["clock", "thermal", "corrected", "uncorrected", "brake", "reset", "idle", "no watch", "no engine"],
)
def test_what_only_load_shows(verdict: Callable[[], Verdict], where: str, what: str, outcome: Outcome) -> None:
    found = verdict()
    assert (where, what) in {(finding.where, finding.what) for finding in found.findings}
    assert found.outcome is outcome
    if where == "node01 gpu2":
        assert "node01/gpu2" not in found.measured


def test_twenty_corrected_errors_in_two_minutes_are_the_limit() -> None:
    assert burn(after=third("<dram_correctable>0<", "<dram_correctable>20<")).outcome is Outcome.PASS


LENGTH = "(the gate's inputs; DCGM runs each of its tests for that time, one after the other)"


@pytest.mark.parametrize(
    ("seconds", "asked", "said"),
    [
        (2.0, 259200, ("burn-too-short", "node01", f"at least 518400 s {LENGTH}", "2.0 s")),
        (119.9, 60, ("burn-too-short", "node01", f"at least 120 s {LENGTH}", "119.9 s")),
        (
            0.0,
            60,
            ("burn-time-unknown", "node01", f"at least 120 s {LENGTH}", "nothing"),
        ),
    ],
)
def test_a_load_that_was_shorter_than_asked_for_is_an_error(seconds: float, asked: int, said: str) -> None:
    verdict = burn(seconds=seconds, power_s=asked, stress_s=asked)
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([said], Outcome.ERROR, [])
    integrity = DIAG.replace('"targeted_stress"', '"memtest"')
    found = judge(
        "node/gpu/stress/compute-integrity",
        {"dcgmi": integrity},
        {"compute_s": min(asked, 86400), "memory_s": 30},
        seconds=min(seconds, 80.0),
    )
    assert [finding.what for finding in found.findings] == [verdict.findings[0].what]
    assert (found.outcome, found.measured) == (Outcome.ERROR, [])


def test_a_test_that_may_be_skipped_is_not_waited_for() -> None:
    assert burn(seconds=60.0, skips={"targeted_power": "the rack's feed is not finished"}).outcome is Outcome.PASS
    assert burn(seconds=59.0, skips={"targeted_power": "the rack's feed is not finished"}).outcome is Outcome.ERROR


def test_errors_are_rated_by_the_time_that_the_load_took() -> None:
    verdict = burn(
        after=third("<dram_correctable>0<", "<dram_correctable>50000<"), seconds=2.0, power_s=259200, stress_s=259200
    )
    assert {(finding.where, finding.what, finding.actual) for finding in verdict.findings} == {
        ("node01", "the load ended early", "2.0 s"),
        ("node01 gpu2", "corrected ECC errors under load", "1500000 per minute"),
    }
    assert verdict.outcome is Outcome.FAIL
    assert burn(after=third("<dram_correctable>0<", "<dram_correctable>21<"), seconds=126.0).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("watts", "outcome"), [("840.00 W", Outcome.PASS), ("840.10 W", Outcome.ERROR), ("9999.00 W", Outcome.ERROR)]
)
def test_more_power_than_a_gpu_can_draw_is_no_measurement(watts: str, outcome: Outcome) -> None:
    verdict = burn(watched(drawing(watts)))
    most = (
        "1.2 x the power limit as shipped: NVIDIA/DCGM targeted_power, target_power_max_ratio; "
        "700 W, NVIDIA H100 SXM datasheet, TDP up to 700 W"
    )
    said = ("gpu-power-implausible", "node01 gpu2", f"at most 840 W ({most})", f"{float(watts[:-2]):g} W")
    assert (verdict.outcome, tells(verdict)) == (outcome, [] if outcome is Outcome.PASS else [said])
    assert ("node01/gpu2" in verdict.measured) is (outcome is Outcome.PASS)
    assert ("ceiling", 840.0) in {(criterion.label, criterion.bound) for criterion in verdict.criteria}


def watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reports: list[str], running: list[bool]
) -> dict[str, Any]:
    """What the watch prints when it sees these reports, and the program running or not at each look; a minute passes at every look."""  # noqa: E501
    clock, seen = iter(range(0, 6000, 31)), iter(running)
    monkeypatch.setattr(under_load, "ask", iter(reports).__next__)
    monkeypatch.setattr(under_load, "lives", lambda program: program == "dcgmi" and next(seen))
    monkeypatch.setattr(under_load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(under_load.time, "sleep", lambda _s: None)
    assert under_load.main("1000", "dcgmi") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_watch_keeps_the_last_report_under_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two tests of the program the GPUs rest: the watch goes on until the program is gone."""
    reports = [SMI, busy(SMI), SMI, busy(SMI).replace("1755 MHz", "1700 MHz"), SMI, SMI]
    found = watch(monkeypatch, capsys, reports, [True, True, True, True, False])
    assert (found["samples"], found["loaded"]) == (5, 2)
    assert "1700 MHz" in found["last"]


def test_the_watch_keeps_the_most_that_each_gpu_drew_while_all_were_busy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last load may ask for less power than the one before; a report in which not every GPU is busy tells nothing."""  # noqa: E501
    stress = busy(SMI).replace("692.00 W", "310.00 W")
    one_rests = busy(SMI).replace("692.00 W", "699.00 W").replace("<gpu_util>100 %<", "<gpu_util>10 %<", 1)
    found = watch(monkeypatch, capsys, [one_rests, busy(SMI), stress, SMI], [True, True, True, False])
    assert found["draws"] == dict.fromkeys(under_load.draws(SMI), 692.0)
    assert (len(found["draws"]), found["last"]) == (8, stress)


def test_a_gpu_that_does_not_say_its_draw_has_none_and_no_neighbours() -> None:
    silent = re.sub(r"<gpu_power_readings>.*?</gpu_power_readings>", "", SMI, count=1, flags=re.DOTALL)
    assert list(under_load.draws(silent)) == list(under_load.draws(SMI))[1:]
    old = '<gpu id="00000000:1B:00.0"><power_readings><power_draw>87.43 W</power_draw></power_readings></gpu>'
    assert under_load.draws(old) == {"00000000:1B:00.0": 87.43}
    a100 = old.replace("power_readings", "gpu_power_readings").replace(
        "<power_draw>87.43 W</power_draw>", "<average_power_draw>N/A</average_power_draw>{}"
    )
    moment = a100.format("<instant_power_draw>391.20 W</instant_power_draw>")
    assert under_load.draws(moment) == {"00000000:1B:00.0": 391.2}, "as an A100 tells it (driver 570)"
    assert under_load.draws(a100.format("<instant_power_draw>N/A</instant_power_draw>")) == {}
    assert under_load.draws(moment.replace("N/A", "380.00 W")) == {"00000000:1B:00.0": 380.0}, (
        "the average goes before the moment"
    )


def test_the_watch_does_not_wait_for_a_program_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = watch(monkeypatch, capsys, [SMI] * 9, [False] * 9)
    assert (found["samples"], found["loaded"]) == (2, 0)


def test_a_program_is_known_by_the_name_of_its_process() -> None:
    assert under_load.lives(Path("/proc/self/comm").read_text(encoding="utf-8").strip())
    assert not under_load.lives("no-such-program")
