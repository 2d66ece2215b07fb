"""What a diagnostic of DCGM does not report: which GPUs it tested, of which model, and how bad a warning is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.formats import dcgm_diag
from rackready.gates.gpu import dcgm
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready.profiles import loader
from tests.gates.support import Case, check, judge, outputs, tells, told
from tests.gates.test_dcgm import R1, R2, R3, R4, by_name, changed, gpus_of, warned

OLD_EXPECTED = "DCGM 3.3 or later, which reports the GPUs, their serial numbers and the severity of each warning"


def before_3_3(found: dict[str, Any], version: str = "") -> None:
    """Reduce DCGM 3.3's document to that of earlier versions (dcgmi/Diag.cpp of v3.0.4 and v3.2.6).

    Up to 3.0 there is neither a version nor a list of GPUs.
    """
    found.pop("GPU Device Serials", None)
    found["version"] = version
    if not version:
        for key in ("version", "Driver Version Detected", "GPU Device IDs"):
            found.pop(key, None)
    for category in found["DCGM GPU Diagnostic"]["test_categories"]:
        for item in (item for test in category["tests"] for item in test["results"]):
            if "gpu_id" in item and category["category"] != "Deployment":
                item["gpu_ids"] = item.pop("gpu_id")
            item.pop("gpu_id", None)
            if "warnings" in item:
                item["warnings"] = next(
                    iter(warned.get("warning", warned.get("warnings")) for warned in item["warnings"])
                )


NOT_TOLD = "the serial numbers of the GPUs, the severity of its warnings"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            "",
            (
                "DCGM without a version number (3.0 and earlier print none) does not report which GPUs it found, the "
                f"PCI device ids of the GPUs, {NOT_TOLD}"
            ),
        ),
        ("3.2.6", f"DCGM 3.2.6 does not report {NOT_TOLD}"),
    ],
)
@pytest.mark.parametrize(("gate_id", "level"), [(R1, "r1"), (R2, "r3"), (R3, "r3")])
def test_dcgm_before_3_3_tells_too_little(gate_id: str, level: str, version: str, said: str) -> None:
    output = changed(f"dcgm/dgx_h100_{level}_dcgm3_healthy.json", lambda found: before_3_3(found, version))
    where = f"node01 dcgm-{gate_id[-2:]}"
    wanted = ("dcgm-diag-tells-too-little", where, OLD_EXPECTED, said)
    check(gate_id, Case("old", {"dcgmi": output}, Outcome.ERROR, (wanted,)))
    assert judge(gate_id, Case("old", {"dcgmi": output}, Outcome.ERROR)).measured == []


def test_a_test_that_failed_in_dcgm_before_3_3_failed() -> None:
    def fault(found: dict[str, Any]) -> None:
        before_3_3(found)
        test = found["DCGM GPU Diagnostic"]["test_categories"][-1]["tests"][0]
        test["results"][3].update(status="Fail", warnings="GPU 3 has 1 page pending.")

    verdict = judge(R3, Case("old", {"dcgmi": changed("dcgm/dgx_h100_r3_dcgm3_healthy.json", fault)}, Outcome.FAIL))
    assert verdict.outcome is Outcome.FAIL
    assert next((item.where, item.actual) for item in verdict.findings) == (
        "node01 gpu3",
        "Fail: GPU 3 has 1 page pending.",
    )


def test_a_reset_is_recorded_by_a_whole_command() -> None:
    result = dcgm_diag.Result("memory", "Hardware", 2, "gpu2", "Fail", (dcgm_diag.Warned("x", 55, 6),), "")
    assert "record the repair (`rackready repair node01 --reason '...'`)" in dcgm._step("node01", result)


@pytest.mark.parametrize("severity", [-1, None, True, 7, "2"], ids=repr)
def test_a_pass_with_a_warning_of_a_severity_that_nobody_knows_is_an_error(severity: object) -> None:
    def change(found: dict[str, Any]) -> None:
        warned(found)
        by_name(found)["memory"]["results"][2]["warnings"][0]["error_severity"] = severity

    wanted = (
        "dcgm-diag-test-contradicts",
        "node01 gpu2",
        "Pass without a warning that asks for a repair",
        "Pass: GPU 2 has uncorrectable memory errors [error 55, severity not known]",
        "test=memory",
        "step=Read the diagnostic's raw output and docs/runbooks/gpu.md.",
    )
    check(
        R3,
        Case("severity", {"dcgmi": changed("dcgm/dgx_h100_r3_dcgm4_healthy.json", change)}, Outcome.ERROR, (wanted,)),
    )


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "r1_dcgm4",
            lambda found: gpus_of(found)[3].update(serial_num="165\u2212000003"),
            "serial number '165\u2212000003' is invalid",
        ),
        ("r1_dcgm4", lambda found: gpus_of(found)[3].update(serial_num=1650), "serial number 1650 is invalid"),
        (
            "r1_dcgm4",
            lambda found: gpus_of(found)[3].update(device_id="23\u221230"),
            "PCI device id '23\u221230' instead of four hexadecimal digits",
        ),
        (
            "r1_dcgm4",
            lambda found: gpus_of(found)[3].pop("device_id"),
            "not the JSON of dcgmi diag 3.x or 4.x (KeyError: 'device_id')",
        ),
        ("r1_dcgm4", lambda found: gpus_of(found)[3].update(device_id=""), "8 GPUs, and PCI device ids of 7"),
        ("r1_dcgm3", lambda found: found["GPU Device IDs"].pop(), "8 GPUs, and PCI device ids of 7"),
        (
            "r1_dcgm4",
            lambda found: by_name(found)["software"]["results"][2].update({"status": "Fail", "warn\u200bings": []}),
            "a key 'warn\\u200bings' in a result of software",
        ),
    ],
)
def test_gpus_that_are_not_told_apart_by_a_damaged_document_are_an_error(
    name: str, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    wanted = ("dcgm-diag-unreadable", "node01 dcgm-r1", "JSON of dcgmi diag 3.x or 4.x", f"{said} (exit code 0)")
    check(
        R1, Case("damaged", {"dcgmi": changed(f"dcgm/dgx_h100_{name}_healthy.json", change)}, Outcome.ERROR, (wanted,))
    )


@pytest.mark.parametrize(
    ("name", "change", "version"),
    [
        ("r1_dcgm3", lambda found: found["GPU Device Serials"].pop("3"), "3.3.9"),
        ("r1_dcgm4", lambda found: gpus_of(found)[3].pop("serial_num"), "4.6.0"),
        ("r1_dcgm4", lambda found: gpus_of(found)[3].update(serial_num=""), "4.6.0"),
    ],
)
def test_serial_numbers_of_some_gpus_only_are_an_error(
    name: str, change: Callable[[dict[str, Any]], object], version: str
) -> None:
    verdict = judge(R1, Case("some", {"dcgmi": changed(f"dcgm/dgx_h100_{name}_healthy.json", change)}, Outcome.ERROR))
    said = f"DCGM {version} does not report the serial numbers of all GPUs (7 of 8)"
    assert (verdict.outcome, [item.actual for item in verdict.findings], verdict.measured) == (
        Outcome.ERROR,
        [said],
        [],
    )


def test_a_list_of_gpus_without_their_model_is_an_error() -> None:
    def change(found: dict[str, Any]) -> None:
        for gpu in gpus_of(found):
            gpu["device_id"] = ""

    verdict = judge(
        R1, Case("no ids", {"dcgmi": changed("dcgm/dgx_h100_r1_dcgm4_healthy.json", change)}, Outcome.ERROR)
    )
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
    assert verdict.findings[0].actual == "DCGM 4.6.0 does not report the PCI device ids of the GPUs"


def test_more_gpus_and_gpus_of_other_numbers_are_not_called_missing() -> None:
    def more(found: dict[str, Any]) -> None:
        gpus_of(found).append({"entity_id": 8, "device_id": "2330", "serial_num": "1650000000008"})
        results = by_name(found)["software"]["results"]
        results.append({**results[0], "entity_id": 8})

    def other(found: dict[str, Any]) -> None:
        for one in (gpus_of(found)[7], by_name(found)["software"]["results"][7]):
            one["entity_id"] = 9

    eight = ", ".join(f"GPU {gpu}" for gpu in range(7))
    for change, said in (
        (more, ("dcgm-diag-gpus-too-many", "node01", "8 GPUs", "9")),
        (other, ("dcgm-diag-gpus-other", "node01", f"8 ({eight}, GPU 7)", f"8 ({eight}, GPU 9)")),
    ):
        verdict = judge(
            R1, Case("gpus", {"dcgmi": changed("dcgm/dgx_h100_r1_dcgm4_healthy.json", change)}, Outcome.FAIL)
        )
        assert (told(verdict.findings[0]), verdict.outcome) == (said, Outcome.FAIL)


@pytest.mark.parametrize("level", ["r1", "r3"])
def test_dcgm_3_without_serial_numbers_tells_too_little(level: str) -> None:
    """DCGM 3.3 prints them for every GPU that has one, as data-centre GPUs do, and earlier versions for none."""
    output = changed(f"dcgm/dgx_h100_{level}_dcgm3_healthy.json", lambda found: found.pop("GPU Device Serials"))
    actual = "DCGM 3.3.9 does not report the serial numbers of the GPUs"
    wanted = ("dcgm-diag-tells-too-little", f"node01 dcgm-{level}", OLD_EXPECTED, actual)
    check(R1 if level == "r1" else R3, Case("no serials", {"dcgmi": output}, Outcome.ERROR, (wanted,)))


def test_a_result_of_a_gpu_that_is_not_listed_is_an_error() -> None:
    output = changed(
        "dcgm/dgx_h100_r1_dcgm4_healthy.json",
        lambda found: by_name(found)["software"]["results"][7].update(entity_id=11),
    )
    verdict = judge(R1, Case("strange", {"dcgmi": output}, Outcome.ERROR))
    said = "results of gpu11, which is none of the 8 GPUs that it lists (exit code 0)"
    assert (verdict.outcome, [item.actual for item in verdict.findings], verdict.measured) == (
        Outcome.ERROR,
        [said],
        [],
    )


EUD = ("Test", "Package")
"""Versions that DCGM 4.6 tells of it (HelperJsonAddMetadata in dcgmi/Diag.cpp)."""


def test_an_eud_that_is_installed_and_has_no_results_did_not_run() -> None:
    wanted = ("dcgm-diag-test-did-not-run", "node01", "a result for every GPU", "not in the result", "test=eud")
    output = changed(
        "dcgm/dgx_h100_r3_dcgm4_healthy.json",
        lambda found: found["metadata"].update({f"EUD {word} Version": "580.95" for word in EUD}),
    )
    check(R3, Case("no results", {"dcgmi": output}, Outcome.ERROR, (wanted,)))


def of_platform(platform: str, change: Callable[[dict[str, Any]], object]) -> Verdict:
    """Level 3 of a node of this platform, whose nvbandwidth DCGM skipped without a reason, changed further."""
    known = facts(platform, 1)

    def skipped(found: dict[str, Any]) -> None:
        for entity in gpus_of(found):
            entity["device_id"] = known.nodes["node01"].gpu.pci_device_id
        for result in by_name(found)["nvbandwidth"]["results"]:
            del result["info"]
        change(found)

    run = gate(R3).plan(known, ["node01"])[0]
    said = {"dcgmi": changed("dcgm/dgx_h100_r3_dcgm4_nvbandwidth_skipped.json", skipped)}
    return gate(R3).evaluate(known, run, outputs(run, said))


def test_nvbandwidth_that_dcgm_disables_on_a_model_is_a_note() -> None:
    verdict = of_platform("dgx_a100", lambda _: None)
    assert (tells(verdict), verdict.outcome, len(verdict.measured)) == ([], Outcome.PASS, 8)
    assert "DCGM does not run its nvbandwidth test on this GPU model; gate" in verdict.note


def test_nvbandwidth_skipped_on_a_model_that_dcgm_lists_is_an_error() -> None:
    verdict = of_platform("dgx_h100", lambda _: None)
    assert verdict.outcome is Outcome.ERROR
    assert {finding.code for finding in verdict.findings} == {"dcgm-diag-test-skipped"}


@pytest.mark.parametrize("test", ["nvbandwidth", "memory_bandwidth"])
def test_a_skip_with_a_reason_or_of_another_test_stays_an_error(test: str) -> None:
    def change(found: dict[str, Any]) -> None:
        result = by_name(found)[test]["results"][2]
        result["status"] = "Skip"
        if test == "nvbandwidth":
            result["info"] = ["Skipping this test due to previously detected row remap failure."]

    verdict = of_platform("dgx_a100", change)
    assert verdict.outcome is Outcome.ERROR
    assert [found[:2] for found in tells(verdict)] == [("dcgm-diag-test-skipped", "node01 gpu2")]


@pytest.mark.parametrize(
    ("gpu", "status", "found"),
    [
        ("a100_40_pcie", "Skip", []),
        ("a100_80_pcie", "Skip", []),
        ("a100_80_pcie", "Fail", ["dcgm-diag-test-failed"] * 8),
        ("a100_80_sxm", "Skip", ["dcgm-diag-test-skipped"] * 8),
    ],
)
def test_the_pulse_test_that_dcgm_disables_on_a100_pcie_is_a_note(gpu: str, status: str, found: list[str]) -> None:
    """Entries 20f1 and 20b5 of NVIDIA/DCGM nvvs/diag-skus.yaml.in have no pulse_test; 20b2 has one."""
    known = facts("dgx_a100", 1)
    node = replace(known.nodes["node01"], gpu=loader.gpu(gpu))
    known = replace(known, nodes={"node01": node})

    def level_4(document: dict[str, Any]) -> None:
        for entity in gpus_of(document):
            entity["device_id"] = node.gpu.pci_device_id
        for result in by_name(document)["nvbandwidth"]["results"]:
            del result["info"]
        tests = next(
            category["tests"]
            for category in document["DCGM Diagnostic"]["test_categories"]
            if any(test["name"] == "targeted_power" for test in category["tests"])
        )
        for name, result in (("memtest", "Pass"), ("pulse_test", status)):
            copied = json.loads(json.dumps(by_name(document)["targeted_power"])) | {"name": name}
            copied["test_summary"]["status"] = result
            for one in copied["results"]:
                one["status"] = result
            tests.append(copied)

    run = gate(R4).plan(known, ["node01"])[0]
    said = {"dcgmi": changed("dcgm/dgx_h100_r3_dcgm4_nvbandwidth_skipped.json", level_4)}
    verdict = gate(R4).evaluate(known, run, outputs(run, said))
    assert [code for code, *_ in tells(verdict)] == found
    assert ("DCGM does not run its pulse test on this GPU model" in (verdict.note or "")) is (
        status == "Skip" and gpu != "a100_80_sxm"
    )
    assert len(verdict.measured) == (8 if not found else 0)
