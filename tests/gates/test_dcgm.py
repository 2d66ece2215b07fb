"""DCGM's diagnostic, both JSON shapes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.engine.registry import GateInputsError, gate
from rackready.model.outcome import Outcome
from tests.gates.support import Case, Said, Told, check, document, judge, tells, text

R1 = "node/gpu/validation/dcgm-r1"
R3 = "node/gpu/validation/dcgm-r3"
R4 = "node/gpu/validation/dcgm-r4"


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Said:
    found = copy.deepcopy(document(name))
    change(found)
    return Said(json.dumps(found))


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        test["name"]: test for category in found["DCGM Diagnostic"]["test_categories"] for test in category["tests"]
    }


def one(
    gate_id: str, name: str, said: Said, outcome: Outcome, *findings: Told, skips: dict[str, str] | None = None
) -> tuple[str, Case]:
    return gate_id, Case(name, {"dcgmi": said}, outcome, findings, {"skips": skips} if skips else {})


def no_results_of(test: str) -> Callable[[dict[str, Any]], object]:
    def change(found: dict[str, Any]) -> None:
        for category in found["DCGM Diagnostic"]["test_categories"]:
            category["tests"] = [item for item in category["tests"] if item["name"] != test]

    return change


def with_eud(*gpus: int, status: str = "Pass", version: str = "580.95") -> Said:
    """A healthy level 3 whose extended utility diagnostic has results of some GPUs."""

    def change(found: dict[str, Any]) -> None:
        found["metadata"]["EUD Test Version"] = version
        results = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status} for gpu in gpus]
        if results:
            found["DCGM Diagnostic"]["test_categories"][1]["tests"].append(
                {"name": "eud", "results": results, "test_summary": {"status": status}}
            )

    return changed("dcgm/dgx_h100_r3_dcgm4_healthy.json", change)


def deployment(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[dict[str, Any]], object]:
    """Change the tests that DCGM 3 runs as its `software`."""
    return lambda found: change(found["DCGM GPU Diagnostic"]["test_categories"][0]["tests"])


def warned(found: dict[str, Any]) -> None:
    """A test that passes, and says of one GPU that it is to be taken out of service."""
    said = {
        "warning": "GPU 2 has uncorrectable memory errors",
        "error_id": 55,
        "error_category": 1,
        "error_severity": 2,
    }
    by_name(found)["memory"]["results"][2]["warnings"] = [said]


R2, R4 = "node/gpu/validation/dcgm-r2", "node/gpu/validation/dcgm-r4"
JSON, DRAIN = "JSON of dcgmi diag 3.x or 4.x", "step=Drain the node and replace the GPU: docs/runbooks/gpu.md."
_FAULTY = Said(text("dcgm/dgx_h100_r3_dcgm4_gpu3_memory.json"), exit_code=205)
_MEMORY = (
    "dcgm-diag-test-failed",
    "node01 gpu3",
    "Pass",
    (
        "Fail: GPU 3 Memory test failed with 1 faulty region. Run a field diagnostic on the GPU. [error "
        "52, severity isolate]"
    ),
    "test=memory",
    DRAIN,
)
CASES = [
    one(R1, "r1, DCGM 4, healthy", Said(text("dcgm/dgx_h100_r1_dcgm4_healthy.json")), Outcome.PASS),
    one(R1, "r1, DCGM 3, healthy", Said(text("dcgm/dgx_h100_r1_dcgm3_healthy.json")), Outcome.PASS),
    one(R3, "r3, DCGM 4, healthy", Said(text("dcgm/dgx_h100_r3_dcgm4_healthy.json")), Outcome.PASS),
    one(R3, "r3, DCGM 3, healthy", Said(text("dcgm/dgx_h100_r3_dcgm3_healthy.json")), Outcome.PASS),
    one(
        R1,
        "DCGM 3, one of its software tests only",
        changed("dcgm/dgx_h100_r1_dcgm3_healthy.json", deployment(lambda tests: tests.__delitem__(slice(2, None)))),
        Outcome.ERROR,
        (
            "dcgm-diag-test-did-not-run",
            "node01",
            "a result for every GPU",
            (
                "no result of cuda_main_library, permissions_and_os_blocks, persistence_mode, "
                "environment_variables, page_retirement/row_remap, graphics_processes, inforom"
            ),
            "test=software",
        ),
    ),
    one(
        R3,
        "a test that passes and asks for a repair",
        changed("dcgm/dgx_h100_r3_dcgm4_healthy.json", warned),
        Outcome.ERROR,
        (
            "dcgm-diag-test-contradicts",
            "node01 gpu2",
            "Pass without a warning that asks for a repair",
            "Pass: GPU 2 has uncorrectable memory errors [error 55, severity isolate]",
            "test=memory",
            DRAIN,
        ),
    ),
    one(
        R3,
        "EUD on one GPU",
        with_eud(0),
        Outcome.ERROR,
        (
            "dcgm-diag-test-did-not-run",
            "node01",
            "a result for every GPU",
            "no result for gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7",
            "test=eud",
        ),
    ),
    one(
        R3,
        "faulty memory",
        _FAULTY,
        Outcome.FAIL,
        _MEMORY,
    ),
    one(R2, "r2, memory", _FAULTY, Outcome.FAIL, _MEMORY),
    one(
        R4,
        "r4, memory, and its own tests did not run",
        _FAULTY,
        Outcome.FAIL,
        _MEMORY,
        *(
            ("dcgm-diag-test-did-not-run", "node01", "a result for every GPU", "not in the result", f"test={test}")
            for test in ("memtest", "pulse_test")
        ),
    ),
    one(
        R1,
        "persistence off, DCGM 4",
        Said(text("dcgm/dgx_h100_r1_dcgm4_persistence_off.json"), exit_code=226),
        Outcome.FAIL,
        (
            "dcgm-diag-test-failed",
            "node01 gpu0",
            "Pass",
            (
                "Fail: Persistence Mode: Persistence mode for GPU 0 is disabled. Enable persistence mode "
                'by running "nvidia-smi -i 0 -pm 1 " as root. [error 29, severity config]'
            ),
            "test=software",
            "step=Correct the configuration: run install again.",
        ),
    ),
    one(
        R1,
        "persistence off, DCGM 3 (message under 'warnings')",
        Said(text("dcgm/dgx_h100_r1_dcgm3_gpu1_persistence.json"), exit_code=226),
        Outcome.FAIL,
        (
            "dcgm-diag-test-failed",
            "node01 gpu1",
            "Pass",
            "Fail: Persistence mode for GPU 1 is disabled. [error 29, severity config]",
            "test=Persistence Mode",
            "step=Correct the configuration: run install again.",
        ),
    ),
    one(
        R3,
        "undeclared skip",
        Said(text("dcgm/dgx_h100_r3_dcgm4_nvbandwidth_skipped.json")),
        Outcome.ERROR,
        *(
            ("dcgm-diag-test-skipped", f"node01 gpu{gpu}", "Pass", "Skip: Skipped by request", "test=nvbandwidth")
            for gpu in range(8)
        ),
    ),
    one(
        R3,
        "declared skip",
        Said(text("dcgm/dgx_h100_r3_dcgm4_nvbandwidth_skipped.json")),
        Outcome.PASS,
        skips={"nvbandwidth": "no CUDA toolkit on these nodes"},
    ),
    one(
        R1,
        "every test declared as skipped",
        Said(text("dcgm/dgx_h100_r1_dcgm4_healthy.json")),
        Outcome.ERROR,
        (
            "dcgm-diag-measured-nothing",
            "node01",
            "at least one of software to run",
            "every one declared under the gate's input `skips`",
        ),
        skips={"software": "left out by whoever wrote this"},
    ),
    one(
        R1,
        "engine down",
        Said(text("dcgm/dcgm4_hostengine_down.json"), exit_code=226),
        Outcome.ERROR,
        (
            "dcgm-diag-did-not-run",
            "node01 dcgm-r1",
            "a result for every GPU",
            (
                "Unable to complete diagnostic for group 2147483647. Return: (-21) : The connection is "
                "not valid (exit code 226)"
            ),
        ),
    ),
    one(
        R1,
        "no categories",
        Said('{"DCGM Diagnostic": {"test_categories": []}, "entity_groups": [], "metadata": {"version": "4.6.0"}}'),
        Outcome.ERROR,
        (
            "dcgm-diag-did-not-run",
            "node01 dcgm-r1",
            "a result for every GPU",
            "no test categories: the diagnostic did not run (exit code 0)",
        ),
    ),
    one(
        R3,
        "passing text, failing exit code",
        Said(text("dcgm/dgx_h100_r3_dcgm4_healthy.json"), exit_code=226),
        Outcome.ERROR,
        ("dcgm-diag-exit-code", "node01 dcgm-r3", "exit code 0 with a passing result", "exit code 226"),
    ),
    one(
        R3,
        "a required test is not in the result",
        changed("dcgm/dgx_h100_r3_dcgm4_healthy.json", no_results_of("targeted_power")),
        Outcome.ERROR,
        ("dcgm-diag-test-did-not-run", "node01", "a result for every GPU", "not in the result", "test=targeted_power"),
    ),
    one(
        R3,
        "level 1 only",
        Said(text("dcgm/dgx_h100_r1_dcgm4_healthy.json")),
        Outcome.ERROR,
        *(
            ("dcgm-diag-test-did-not-run", "node01", "a result for every GPU", "not in the result", f"test={test}")
            for test in ("memory", "pcie", "diagnostic", "targeted_stress", "targeted_power")
        ),
    ),
    one(
        R1,
        "one GPU was left out",
        changed(
            "dcgm/dgx_h100_r1_dcgm4_healthy.json",
            lambda found: [by_name(found)["software"]["results"].pop(6), found["entity_groups"][0]["entities"].pop(6)],
        ),
        Outcome.FAIL,
        ("dcgm-diag-gpus-missing", "node01", "8 GPUs", "7"),
        ("dcgm-diag-test-did-not-run", "node01", "a result for every GPU", "no result for gpu6", "test=software"),
    ),
    one(
        R1,
        "a status that nobody knows",
        changed(
            "dcgm/dgx_h100_r1_dcgm4_healthy.json",
            lambda found: by_name(found)["software"]["results"][2].update(status="Deferred"),
        ),
        Outcome.ERROR,
        ("dcgm-diag-unreadable", "node01 dcgm-r1", JSON, "status 'Deferred' of test software is unknown (exit code 0)"),
    ),
    one(
        R1,
        "a test without a name",
        changed("dcgm/dgx_h100_r1_dcgm4_healthy.json", lambda found: by_name(found)["software"].update(name=None)),
        Outcome.ERROR,
        ("dcgm-diag-unreadable", "node01 dcgm-r1", JSON, "name None is no word (exit code 0)"),
    ),
    one(
        R1,
        "a GPU that is no number",
        changed(
            "dcgm/dgx_h100_r1_dcgm4_healthy.json",
            lambda found: by_name(found)["software"]["results"][2].update(entity_id=True),
        ),
        Outcome.ERROR,
        ("dcgm-diag-unreadable", "node01 dcgm-r1", JSON, "entity_id True is no number (exit code 0)"),
    ),
    one(
        R1,
        "not installed",
        Said("", "bash: dcgmi: command not found", 127),
        Outcome.ERROR,
        ("dcgm-diag-unreadable", "node01 dcgm-r1", JSON, "empty output (exit code 127)"),
    ),
]


def gpus_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    return next(group["entities"] for group in found["entity_groups"] if group["entity_group"] == "GPU")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "r3_dcgm4",
            lambda found: [gpu.update(device_id="20b2") for gpu in gpus_of(found)],
            ("dcgm-diag-other-model", "node01", "PCI device id 2330", "20b2"),
        ),
        (
            "r3_dcgm3",
            lambda found: found.update({"GPU Device IDs": ["2330"] * 7 + ["20B2"]}),
            ("dcgm-diag-other-model", "node01", "PCI device id 2330", "20b2"),
        ),
        (
            "r3_dcgm4",
            lambda found: [gpu.update(serial_num="165") for gpu in gpus_of(found)],
            ("dcgm-diag-gpus-not-told-apart", "node01", "every GPU its own serial number", "165 more than once"),
        ),
    ],
    ids=["another model, DCGM 4", "another model, DCGM 3", "one serial number"],
)
def test_a_diagnostic_of_other_gpus_is_an_error(
    name: str, change: Callable[[dict[str, Any]], object], said: Told
) -> None:
    case = Case(
        "other",
        {"dcgmi": changed(f"dcgm/dgx_h100_{name}_healthy.json", change)},
        Outcome.ERROR,
        (said,),
    )
    check(R3, case)


@pytest.mark.parametrize(("gate_id", "case"), CASES, ids=lambda value: value.name if isinstance(value, Case) else None)
def test_verdict(gate_id: str, case: Case) -> None:
    check(gate_id, case)


LEFT_OUT = "the operator brings no EUD"
ABSENT = "EUD (extended utility diagnostic) did not run: not installed on this node, or DCGM does not run as root"


@pytest.mark.parametrize(
    ("said", "note"),
    [
        (Said(text("dcgm/dgx_h100_r3_dcgm4_healthy.json")), ABSENT),
        (with_eud(), "EUD 580.95 is installed on this node, and did not run"),
        (with_eud(*range(8)), "EUD 580.95 ran with it"),
        (with_eud(*range(8), version=""), "EUD ran with it"),
        (with_eud(0, 3), "EUD 580.95 ran with it on gpu0, gpu3 only"),
        (with_eud(*range(8), status="Skip"), "EUD 580.95 is installed on this node, and did not run"),
        (with_eud(*range(8), status="Skip", version=""), ABSENT),
    ],
    ids=[
        "absent",
        "a version alone",
        "on all GPUs",
        "without a version",
        "on two GPUs",
        "skipped",
        "skipped, no version",
    ],
)
def test_whether_the_eud_ran_is_said_from_its_results(said: Said, note: str) -> None:
    verdict = judge(R3, Case("eud", {"dcgmi": said}, Outcome.PASS, (), {"skips": {"eud": LEFT_OUT}}))
    assert verdict.note == f"declared skip of eud: {LEFT_OUT}; {note}"


def skipped_eud(found: dict[str, Any], status: str = "Skip") -> None:
    """What DCGM 3 prints of it on every node without the package: `EUD Test | Skip - All`."""
    results = [{"gpu_id": str(gpu), "status": "Skip" if gpu else status} for gpu in range(8)]
    found["DCGM GPU Diagnostic"]["test_categories"][-1]["tests"].append({"name": "EUD Test", "results": results})


def test_an_eud_that_is_not_installed_is_a_note() -> None:
    for said in (
        changed("dcgm/dgx_h100_r3_dcgm3_healthy.json", skipped_eud),
        with_eud(*range(8), status="Skip", version=""),
    ):
        verdict = judge(R3, Case("eud", {"dcgmi": said}, Outcome.PASS))
        assert (verdict.outcome, tells(verdict), verdict.note) == (Outcome.PASS, [], ABSENT)
        assert len(verdict.measured) == 8


@pytest.mark.parametrize(
    ("said", "name", "gpus"),
    [
        (with_eud(*range(8), status="Skip"), "eud", range(8)),
        (
            changed("dcgm/dgx_h100_r3_dcgm3_healthy.json", lambda found: skipped_eud(found, "Pass")),
            "EUD Test",
            range(1, 8),
        ),
    ],
    ids=["its version is told", "it ran on another GPU"],
)
def test_an_eud_that_is_installed_and_skipped_is_an_error(said: Said, name: str, gpus: range) -> None:
    findings = tuple(("dcgm-diag-test-skipped", f"node01 gpu{gpu}", "Pass", "Skip", f"test={name}") for gpu in gpus)
    check(R3, Case("eud", {"dcgmi": said}, Outcome.ERROR, findings))


TESTS_R1 = (
    "cuda_main_library, denylist, environment_variables, graphics_processes, inforom, nvml_library, "
    "page_retirement/row_remap, "
    "permissions_and_os_blocks, persistence_mode, software"
)


@pytest.mark.parametrize(
    ("name", "skips", "path", "said"),
    [
        (R3, {"memory": ""}, "skips.memory", "at least 10 characters Actual: ''"),
        (R3, {"memory": " " * 20}, "skips.memory", f"at least 10 characters Actual: '{' ' * 20}'"),
        (
            R1,
            {"no_such_test": "a reason that is read"},
            "skips.no_such_test[key]",
            f"one of the tests that it runs ({TESTS_R1}) Actual: 'no_such_test'",
        ),
        (
            R1,
            {"memory": "level 1 does not run it"},
            "skips.memory[key]",
            f"one of the tests that it runs ({TESTS_R1}) Actual: 'memory'",
        ),
    ],
    ids=["no reason", "blanks", "no test", "a test of another level"],
)
def test_a_skip_names_a_test_of_the_level_and_a_reason(name: str, skips: dict[str, str], path: str, said: str) -> None:
    with pytest.raises(GateInputsError) as refused:
        gate(name, {"skips": skips})
    step = f"Correct it; `rackready gate show {name}` describes the inputs."
    assert str(refused.value) == f"inputs.{path}: gate {name} - Expected: {said}. {step}"


def test_every_declared_skip_stands_in_the_note_whatever_came_of_it() -> None:
    skips = {"pcie": "a retimer awaits its replacement", "memory": "   measured by the vendor  "}
    for said in (Said(text("dcgm/dgx_h100_r3_dcgm4_healthy.json")), Said("", exit_code=127)):
        note = judge(R2, Case("skips", {"dcgmi": said}, Outcome.PASS, (), {"skips": skips})).note
        assert (
            note == "declared skip of memory: measured by the vendor; declared skip of pcie: a retimer awaits its "
            "replacement"
        )


def test_a_pass_measures_every_gpu() -> None:
    assert judge(R3, CASES[2][1]).measured == [f"node01/gpu{gpu}" for gpu in range(8)]


def test_a_failing_gpu_is_not_measured() -> None:
    assert "node01/gpu3" not in judge(R3, next(case for _, case in CASES if case.name == "faulty memory")).measured


def test_a_gpu_that_passes_and_asks_for_a_repair_is_not_measured() -> None:
    case = next(case for _, case in CASES if case.name == "a test that passes and asks for a repair")
    assert judge(R3, case).measured == [f"node01/gpu{gpu}" for gpu in range(8) if gpu != 2]


@pytest.mark.parametrize(
    ("gate_id", "name"), [(R1, "dcgm/dgx_h100_r1_dcgm4_healthy.json"), (R3, "dcgm/dgx_h100_r3_dcgm4_healthy.json")]
)
def test_a_gate_whose_every_test_is_skipped_measures_no_gpu(gate_id: str, name: str) -> None:
    tests = (
        ("software",)
        if gate_id == R1
        else ("software", "memory", "pcie", "diagnostic", "targeted_stress", "targeted_power")
    )
    skips = dict.fromkeys(tests, "left out of this test")
    verdict = judge(gate_id, Case("all skipped", {"dcgmi": Said(text(name))}, Outcome.ERROR, (), {"skips": skips}))
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
