"""Trays of GB200 and GB300: both GPUs of a module report one serial number (as captured, driver 580)."""

from __future__ import annotations

import json

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.captured import evaluate
from tests.gates.support import document

TWO, THREE = (
    ("1650000000001", "1650000000001", "1650000000002", "1650000000002"),
    ("1650000000001", "1650000000001", "1650000000001", "1650000000002"),
)


def judge(gate_id: str, key: str, said: object) -> Verdict:
    known, made = facts("gb200_nvl72", 1), gate(gate_id)
    return evaluate(made, known, made.plan(known, ["node01"])[0], {key: json.dumps(said)}, 0)


def inventory(serials: tuple[str, ...]) -> Verdict:
    found = document("nvml/dgx_h100_healthy.json")
    gpus = found["gpus"][:4]
    for gpu, serial in zip(gpus, serials, strict=True):
        gpu.update(
            name="NVIDIA GB200", device_id="2941", memory_mib=189471, board_part="900-2G548-A801-000", serial=serial
        )
    return judge("node/gpu/sanity/inventory", "inventory", {**found, "count": 4, "gpus": gpus})


def diagnostic(serials: tuple[str, ...]) -> Verdict:
    found = document("dcgm/dgx_h100_r1_dcgm4_healthy.json")
    group = next(group for group in found["entity_groups"] if group["entity_group"] == "GPU")
    group["entities"] = [
        {**one, "device_id": "2941", "serial_num": serial}
        for one, serial in zip(group["entities"][:4], serials, strict=True)
    ]
    for test in (test for category in found["DCGM Diagnostic"]["test_categories"] for test in category["tests"]):
        test["results"] = [result for result in test["results"] if result["entity_id"] < 4]
    return judge("node/gpu/validation/dcgm-r1", "dcgmi", found)


@pytest.mark.parametrize("told", [inventory(TWO), diagnostic(TWO)], ids=["inventory", "DCGM"])
def test_the_two_gpus_of_a_module_have_one_serial(told: Verdict) -> None:
    assert (told.outcome, told.findings) == (Outcome.PASS, [])


def test_three_gpus_of_one_serial_are_no_module() -> None:
    reseat = "Reseat the GPUs and run the gate again; a board's InfoROM may be damaged."
    words = (
        "node01: serial not unique - Expected: one for at most 2 GPUs, those of a module "
        f"Actual: {THREE[0]} on 3 GPUs. {reseat}"
    )
    told = inventory(THREE)
    assert (told.outcome, [*map(str, told.findings)]) == (Outcome.FAIL, [words])
    check = (
        "Check that the output is this node's, and that the site file names the right platform; `nvidia-smi -L` "
        "names the GPUs."
    )
    expected = f"a serial number of its own on every module of 2 GPUs Actual: {THREE[0]} more than 2 times"
    told = diagnostic(THREE)
    assert (told.outcome, [*map(str, told.findings)]) == (
        Outcome.ERROR,
        [f"node01: DCGM's GPUs cannot be told apart - Expected: {expected}. {check}"],
    )
