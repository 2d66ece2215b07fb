"""Every alert fires for its fault, and stays silent for its twin and for a healthy rack: judged by promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.design.monitoring.condition import Condition
from rackready.design.monitoring.conditions import conditions
from rackready.design.monitoring.rules import rules, words
from tests.unit.monitoring.healthy import HEALTHY
from tests.unit.monitoring.rule_faults import CASES, DCGM, GPU, STATE, Case, Labels, Series, named, own

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing (apt: prometheus)")
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_VALUE = re.compile(r"\{\{ \$value [^}]*\}\}")


def series(found: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in found.items()]


def filled(text: str, labels: Labels, value: str) -> str:
    """Return an annotation as Prometheus must write it. A label that is missing stays a template: no text is equal."""
    return _VALUE.sub(value, _LABEL.sub(lambda found: labels.get(found[1], found[0]), text))


def alert(condition: Condition, case: Case) -> dict[str, Any]:
    labels = {"severity": condition.severity.value, "scope": condition.scope.value}
    labels |= {"action": condition.action} if condition.action else {}
    told = {name: filled(text, case.labels, case.value) for name, text in words(condition).items()}
    return {"exp_labels": case.labels | labels, "exp_annotations": told}


def promtool(tmp_path: Path, tests: list[dict[str, Any]]) -> tuple[int, str]:
    (tmp_path / "rules.yml").write_text(json.dumps(rules()), encoding="utf-8")
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(document), encoding="utf-8")
    argv = ["promtool", "test", "rules", "tests.yml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def asked(name: str, at: int, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"eval_time": f"{at}m", "alertname": name, "exp_alerts": found}]


def test_every_alert_has_a_case() -> None:
    assert sorted(CASES) == sorted(condition.id for condition in conditions())


@needs_promtool
@pytest.mark.parametrize("condition", conditions(), ids=lambda condition: condition.id)
def test_an_alert_fires_for_its_fault_with_the_words_for_people(condition: Condition, tmp_path: Path) -> None:
    case = CASES[condition.id]
    test = {
        "interval": "1m",
        "input_series": series(case.both | case.fault),
        "alert_rule_test": asked(condition.id, case.at, [alert(condition, case)]),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
@pytest.mark.parametrize("condition", conditions(), ids=lambda condition: condition.id)
def test_an_alert_stays_silent_for_the_twin_of_its_fault(condition: Condition, tmp_path: Path) -> None:
    case = CASES[condition.id]
    test = {
        "interval": "1m",
        "input_series": series(case.both | case.twin),
        "alert_rule_test": asked(condition.id, case.at, []),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_no_alert_fires_in_a_healthy_rack(tmp_path: Path) -> None:
    """Two hours of two nodes with the noise of healthy hardware: corrected errors, power capping, traffic, old Xids."""
    silent: list[dict[str, Any]] = []
    for condition in conditions():
        for at in (5, 60, 119):
            silent += asked(condition.id, at, [])
    code, text = promtool(tmp_path, [{"interval": "1m", "input_series": series(HEALTHY), "alert_rule_test": silent}])
    assert code == 0, text


@needs_promtool
def test_the_alert_of_an_xid_stays_an_hour_after_its_counter_fell_back(tmp_path: Path) -> None:
    case, condition = CASES["GpuXidRestartBm"], next(one for one in conditions() if one.id == "GpuXidRestartBm")
    fallen = dict.fromkeys(case.fault, "0x5 1x5 0x200")
    tests = [
        {
            "interval": "1m",
            "input_series": series(fallen),
            "alert_rule_test": [
                *asked(condition.id, 65, [alert(condition, case)]),
                *asked(condition.id, 90, []),
            ],
        }
    ]
    code, text = promtool(tmp_path, tests)
    assert code == 0, text


@needs_promtool
def test_all_gpus_missing_are_missing_gpus(tmp_path: Path) -> None:
    """dcgm-exporter that answers without any GPU has no series to count."""
    case, condition = CASES["GpusMissing"], next(one for one in conditions() if one.id == "GpusMissing")
    without = {name: values for name, values in case.both.items() if "GPU_TEMP" not in name}
    eight = Case({}, case.labels, {}, "8")
    test = {
        "interval": "1m",
        "input_series": series(without),
        "alert_rule_test": asked(condition.id, case.at, [alert(condition, eight)]),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_promtool_finds_nothing_to_say_about_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(json.dumps(rules()), encoding="utf-8")
    argv = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules.yml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("state", ["declared", "installed", "repair", "retired"])
@pytest.mark.parametrize("name", ["NodeUnreachable", "GpuExporterDown", "RackUnreachable"])
def test_nodes_that_nobody_expects_to_answer_are_no_alert(name: str, state: str, tmp_path: Path) -> None:
    case = CASES[name]
    away = {named("rackready_node_state", STATE | {"node": node, "state": state}): "1x20" for node in ("n01", "n02")}
    test = {
        "interval": "1m",
        "input_series": series(case.fault | away),
        "alert_rule_test": asked(name, case.at, []),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
@pytest.mark.parametrize("name", ["NodeUnreachable", "GpuExporterDown", "RackUnreachable"])
def test_a_quarantined_node_that_does_not_answer_is_an_alert(name: str, tmp_path: Path) -> None:
    case, condition = CASES[name], next(one for one in conditions() if one.id == name)
    test = {
        "interval": "1m",
        "input_series": series(case.fault | own("rackready_node_state", "1x20", state="quarantined")),
        "alert_rule_test": asked(name, case.at, [alert(condition, case)]),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
@pytest.mark.parametrize("state", ["1", "2", "3", "5"])
def test_a_rail_in_any_other_state_than_active_is_down(state: str, tmp_path: Path) -> None:
    """An InfiniBand port that no subnet manager brings up stays in 2 (init)."""
    case, condition = CASES["RailDown"], next(one for one in conditions() if one.id == "RailDown")
    test = {
        "interval": "1m",
        "input_series": series(case.both | dict.fromkeys(case.fault, f"4x2 {state}x20")),
        "alert_rule_test": asked("RailDown", case.at, [alert(condition, replace(case, value=state))]),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_a_rail_without_link_is_down_and_not_slow_as_well(tmp_path: Path) -> None:
    """Without a link the kernel reports the lowest rate."""
    case = CASES["RailSlow"]
    down = {name: "1x20" for name in case.both if name.startswith("node_infiniband_state_id")}
    test = {
        "interval": "1m",
        "input_series": series(case.both | case.fault | down),
        "alert_rule_test": asked("RailSlow", case.at, []),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_a_clock_that_is_set_is_no_boot(tmp_path: Path) -> None:
    moved = dict.fromkeys(CASES["NodeRebooted"].fault, "-100000x5 -100001x10")
    test = {
        "interval": "1m",
        "input_series": series(moved),
        "alert_rule_test": asked("NodeRebooted", 8, []),
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
@pytest.mark.parametrize(
    ("query", "value"),
    [
        ('node:gpus:count{node="n01"}', 8),
        ('node:gpu_power:sum{node="n01"}', 8 * 690),
        ("rack:gpu_power:sum", 2 * 8 * 690),
        ('gpu:power_slowdown:ratio_rate10m{node="n01", gpu="0"}', 40 / 60),
        ('gpu:thermal_slowdown:ratio_rate10m{node="n01", gpu="0"}', 0.1 / 60),
        ('rail:received:rate5m{node="n01", rail="1"}', 9e11 / 60),
        ('rail:transmitted:rate5m{node="n01", rail="8"}', 9e11 / 60),
        ("rack:targets_up:ratio", 1),
        ('state:nodes:count{state="ready"}', 2),
        ("rack:nodes_ready:ratio", 1),
    ],
)
def test_recording_rules_have_the_unit_that_they_state(query: str, value: float, tmp_path: Path) -> None:
    test = {
        "interval": "1m",
        "input_series": series(HEALTHY),
        "promql_expr_test": [
            {
                "expr": f"round(sum({query}) * 1e3)",
                "eval_time": "60m",
                "exp_samples": [{"labels": "{}", "value": round(value * 1e3)}],
            }
        ],
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_power_of_a_gpu_counts_once_with_instances_of_mig(tmp_path: Path) -> None:
    """An exporter of somebody else may report instances: each has the power of its whole GPU."""
    label = DCGM | GPU | {"GPU_I_PROFILE": "1g.10gb"}
    found = {named("DCGM_FI_DEV_POWER_USAGE", label | {"GPU_I_ID": str(at)}): "300x10" for at in range(7, 14)}
    found |= {named("DCGM_FI_DEV_POWER_USAGE", DCGM | GPU | {"gpu": "6"}): "500x10"}
    test = {
        "interval": "1m",
        "input_series": series(found),
        "promql_expr_test": [
            {"expr": "sum(node:gpu_power:sum)", "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 800}]}
        ],
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_a_link_that_was_lost_as_often_as_is_counted_is_an_alert(tmp_path: Path) -> None:
    """The counter stays at 255, so that nothing grows: RailFlapping cannot see a further loss."""
    case, condition = CASES["RailCounterFull"], next(one for one in conditions() if one.id == "RailCounterFull")
    full = {name: "254x5 255x100" for name in case.both if name.startswith("node_infiniband_link_downed")}
    test = {
        "interval": "1m",
        "input_series": series(case.both | full),
        "alert_rule_test": [
            *asked(condition.id, 90, [alert(condition, replace(case, value="255"))]),
            *asked("RailFlapping", 90, []),
        ],
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text


@needs_promtool
def test_symbol_errors_are_counted_for_each_bit(tmp_path: Path) -> None:
    """30 errors in 125 min at 400 Gb/s are 1e-14."""
    case = CASES["RailSymbolErrors"]
    test = {
        "interval": "1m",
        "input_series": series(case.both | case.fault),
        "promql_expr_test": [
            {
                "expr": "round(sum(rail:symbol_errors:ratio_increase125m) * 1e17)",
                "eval_time": "130m",
                "exp_samples": [{"labels": "{}", "value": 1000}],
            }
        ],
    }
    code, text = promtool(tmp_path, [test])
    assert code == 0, text
