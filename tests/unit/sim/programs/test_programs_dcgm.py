from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from rackready_sim.programs.hwsim import store
from rackready_sim.programs.hwsim.dcgm import engine, main

from .conftest import Machine

dcgmi = functools.partial(main.main, version="4.6.0")


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "reachable", lambda: True)
    monkeypatch.setattr("time.sleep", lambda _s: None)


def failures(out: str) -> dict[tuple[str, int], list[int]]:
    """Test and GPU to error numbers, of a document of DCGM 4."""
    found: dict[tuple[str, int], list[int]] = {}
    for category in json.loads(out)["DCGM Diagnostic"]["test_categories"]:
        for test in category["tests"]:
            for row in test["results"]:
                assert set(row) >= {"entity_group", "entity_group_id", "entity_id", "status"}
                if row["status"] == "Fail":
                    found[test["name"], row["entity_id"]] = [item["error_id"] for item in row["warnings"]]
    return found


def test_a_healthy_machine_passes_every_level(machine: Machine) -> None:
    machine.ready()
    for level in "1234":
        code, out, _ = machine.run(dcgmi, "diag", "-j", "-r", level, "-n", "gpu:8")
        assert (code, failures(out)) == (0, {})
    document = json.loads(out)
    assert document["metadata"] == {"Driver Version Detected": "580.173.02", "version": "4.6.0"}
    assert document["entity_groups"][0]["entities"][0]["device_id"] == "2330"


@pytest.mark.parametrize(("device_id", "status"), [("0x20B210DE", "Skip"), ("0x26B910DE", "Pass")])
def test_nvbandwidth_runs_on_the_models_that_dcgm_lists_for_it(machine: Machine, device_id: str, status: str) -> None:
    for gpu in machine.state["gpus"]:
        gpu["device_id"] = device_id
    machine.save()
    machine.ready()
    code, out, _ = machine.run(dcgmi, "diag", "-j", "-r", "3")
    tests = {
        test["name"]: test for item in json.loads(out)["DCGM Diagnostic"]["test_categories"] for test in item["tests"]
    }
    assert (code, failures(out)) == (0, {})
    assert {row["status"] for row in tests["nvbandwidth"]["results"]} == {status}
    assert "info" not in str(tests["nvbandwidth"])
    assert tests["memory_bandwidth"]["test_summary"] == {"status": "Pass"}


FAULTY: list[tuple[str, dict[str, Any], dict[tuple[str, int], list[int]]]] = [
    ("nvlink-down", {"gpu": 2}, {("pcie", 2): [14]}),
    ("pcie-width", {"gpu": 1}, {("pcie", 1): [46]}),
    ("ecc-uncorrectable", {"gpu": 4}, {("memory", 4): [4]}),
    ("memory-slow", {"gpu": 6}, {("memory_bandwidth", 6): [62]}),
    ("dcgm-fail", {"gpu": 7, "test": "memory"}, {("memory", 7): [52]}),
    ("gpu-slow", {"gpu": 3}, {("targeted_stress", 3): [50], ("targeted_power", 3): [63]}),
]


@pytest.mark.parametrize(("fault", "params", "expected"), FAULTY)
def test_level_3_finds_it(
    machine: Machine, fault: str, params: dict[str, Any], expected: dict[tuple[str, int], list[int]]
) -> None:
    machine.ready()
    machine.inject(fault, **params)
    code, out, _ = machine.run(dcgmi, "diag", "-j", "-r", "3")
    assert code in {226, 205}
    assert failures(out) == expected


@pytest.mark.parametrize(("fault", "error"), [("row-remap-pending", 85), ("row-remap-failure", 80)])
def test_level_1_finds_it_and_the_rest_is_skipped(machine: Machine, fault: str, error: int) -> None:
    machine.ready()
    machine.inject(fault, gpu=0)
    code, out, _ = machine.run(dcgmi, "diag", "-j", "-r", "3")
    assert (code, failures(out)) == (226, {("software", 0): [error]})
    tests = {
        test["name"]: test["test_summary"]["status"]
        for item in json.loads(out)["DCGM Diagnostic"]["test_categories"]
        for test in item["tests"]
    }
    assert tests["pcie"] == "Skip"


def test_level_1_wants_persistence_and_a_fabric_manager(machine: Machine) -> None:
    machine.ready()
    with store.change() as runtime:
        runtime["persistence"] = {}
        runtime["fabric"] = {"state": "Not Started"}
    found = failures(machine.run(dcgmi, "diag", "-j", "-r", "1")[1])
    assert found == {("software", gpu): [29, 108] for gpu in range(8)}


def test_a_count_that_differs_is_a_runtime_error(machine: Machine) -> None:
    machine.inject("gpu-missing", gpu=0)
    machine.ready()
    code, out, _ = machine.run(dcgmi, "diag", "-j", "-r", "1", "-n", "gpu:8")
    assert code == 226
    assert "runtime_error" in json.loads(out)["DCGM Diagnostic"]


def test_without_the_engine_nothing_is_answered(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()
    monkeypatch.setattr(engine, "reachable", lambda: False)
    code, out, _ = machine.run(dcgmi, "diag", "-j", "-r", "1")
    assert code == 235
    assert out.startswith("Error: unable to establish a connection to the specified host: localhost\n")


def test_the_table_has_one_width(machine: Machine) -> None:
    machine.ready()
    machine.inject("nvlink-down", gpu=2)
    out = machine.run(dcgmi, "diag", "-r", "3")[1]
    assert {len(line) for line in out.splitlines() if line.startswith(("+", "|"))} == {78}
    assert "8 GPUs found (Active)." in machine.run(dcgmi, "discovery", "-l")[1]


def test_health_knows_only_what_was_watched_for_a_minute(machine: Machine) -> None:
    machine.ready()
    machine.inject("ecc-uncorrectable", gpu=4)
    code, out, _ = machine.run(dcgmi, "health", "-c", "-j")
    assert (code, out) == (253, "Error: Health watches not enabled. Please enable watches. \n")
    assert machine.run(dcgmi, "health", "-s", "a")[:2] == (0, "Health monitor systems set successfully.\n")
    assert json.loads(machine.run(dcgmi, "health", "-c", "-j")[1])["body"] == {"Overall Health": {"value": "Healthy"}}
    with store.change() as runtime:
        runtime["dcgm"]["watched"] -= 60
    machine.run(dcgmi, "health", "-s", "a")
    found = json.loads(machine.run(dcgmi, "health", "-c", "-j")[1])["body"]
    assert found["Overall Health"]["value"] == "Failure"
    assert list(found["GPU"]["children"]) == ["4"]


def test_health_of_switches_is_watched_for_itself_and_all_entities_are_no_group(machine: Machine) -> None:
    machine.ready()
    machine.run(dcgmi, "health", "-g", "g", "-s", "a")
    assert machine.run(dcgmi, "health", "-g", "s", "-c", "-j")[:2] == (
        253,
        "Error: Health watches not enabled. Please enable watches. \n",
    )
    assert machine.run(dcgmi, "health", "-g", "s", "-s", "a")[0] == 0
    assert json.loads(machine.run(dcgmi, "health", "-g", "s", "-c", "-j")[1])["body"] == {
        "Overall Health": {"value": "Healthy"}
    }
    assert machine.run(dcgmi, "health", "-g", "a", "-s", "a")[:2] == (
        253,
        "Error: Unable to set health watches. Return: The Group is not found\n",
    )
