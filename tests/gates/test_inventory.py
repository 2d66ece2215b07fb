"""GPU inventory against the platform profile."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.captured import evaluate
from tests.gates.support import Case, Said, Told, check, document, judge, tells, text

GATE = "node/gpu/sanity/inventory"


def changed(change: Callable[[dict[str, Any]], object]) -> Said:
    found = copy.deepcopy(document("nvml/dgx_h100_healthy.json"))
    change(found)
    return Said(json.dumps(found))


def behind_a_gap(change: Callable[[list[dict[str, Any]]], object]) -> Said:
    """gpu3 is gone: the GPUs at the places 4 to 7 are NVML's numbers 3 to 6."""
    found = copy.deepcopy(document("nvml/dgx_h100_gpu3_missing.json"))
    change(found["gpus"])
    return Said(json.dumps(found))


def one(name: str, said: Said, outcome: Outcome, *findings: Told) -> Case:
    return Case(name, {"inventory": said}, outcome, findings)


MISSING = ("gpu-missing", "node01", "8 GPUs", "7 (none at 0000:61:00.0, the place of gpu3)")
CASES = [
    one("healthy", Said(text("nvml/dgx_h100_healthy.json")), Outcome.PASS),
    one(
        "one NVLink down",
        Said(text("nvml/dgx_h100_gpu2_link4_inactive.json")),
        Outcome.FAIL,
        ("gpu-nvlink-down", "node01 gpu2", "18 links active", "17 (link 4 inactive)"),
    ),
    one(
        "GPU lost",
        Said(text("nvml/dgx_h100_gpu5_lost.json")),
        Outcome.FAIL,
        ("gpu-inventory-lost", "node01 gpu5", "a GPU that answers", "GPU is lost"),
    ),
    one(
        "GPU missing",
        Said(text("nvml/dgx_h100_gpu3_missing.json")),
        Outcome.FAIL,
        MISSING,
    ),
    one(
        "GPU missing, and the one behind it has lost lanes: NVML's number 3 is gpu4",
        behind_a_gap(lambda gpus: gpus[3].update(pcie_width=8)),
        Outcome.FAIL,
        MISSING,
        ("gpu-pcie-width-current", "node01 gpu4", "16", "8"),
    ),
    one(
        "GPU missing, and another lost: which one cannot be told",
        behind_a_gap(lambda gpus: gpus.__setitem__(5, {"index": 5, "lost": "GPU is lost"})),
        Outcome.FAIL,
        (
            "gpu-missing",
            "node01",
            "8 GPUs",
            "7 (none at 0000:61:00.0, the place of gpu3; 0000:d1:00.0, the place of gpu6)",
        ),
        ("gpu-inventory-lost", "node01 GPU 5 of NVML", "a GPU that answers", "GPU is lost"),
    ),
    one(
        "a GPU without its address",
        changed(lambda found: found["gpus"][3].update(pci=None, unread={"pci": "Unknown Error"})),
        Outcome.ERROR,
        ("gpu-identity-not-reported", "node01 gpu3", "a value", "Unknown Error", "label=PCI address"),
    ),
    one(
        "too many GPUs",
        changed(
            lambda found: found.update(
                count=9,
                gpus=[*found["gpus"], {**found["gpus"][0], "index": 8, "serial": "1650000000008", "uuid": "GPU-8"}],
            )
        ),
        Outcome.FAIL,
        ("gpu-too-many", "node01", "8 GPUs", "9", "platform=dgx_h100", "count=9"),
    ),
    one(
        "driver not loaded",
        Said(text("nvml/driver_not_loaded.json"), exit_code=1),
        Outcome.ERROR,
        ("nvml-cannot-be-asked", "node01", "an answer", "NVML: Driver Not Loaded"),
    ),
    one(
        "wrong model",
        changed(lambda found: found["gpus"][0].update(name="NVIDIA H200")),
        Outcome.FAIL,
        ("gpu-model", "node01 gpu0", "NVIDIA H100 80GB HBM3", "NVIDIA H200"),
    ),
    one(
        "another chip behind the same name",
        changed(lambda found: found["gpus"][0].update(device_id="2336")),
        Outcome.FAIL,
        ("gpu-pci-device-id", "node01 gpu0", "2330", "2336"),
    ),
    one(
        "device id not reported",
        changed(lambda found: found["gpus"][0].update(device_id=None)),
        Outcome.ERROR,
        ("value-not-reported", "node01 gpu0", "2330", "nothing", "value=PCI device id"),
    ),
    one(
        "PCIe width",
        changed(lambda found: found["gpus"][7].update(pcie_width=8)),
        Outcome.FAIL,
        ("gpu-pcie-width-current", "node01 gpu7", "16", "8"),
    ),
    one(
        "PCIe generation trained down",
        changed(lambda found: found["gpus"][1].update(pcie_gen=3)),
        Outcome.FAIL,
        ("gpu-pcie-generation-slot", "node01 gpu1", "5", "3"),
    ),
    one(
        "memory short",
        changed(lambda found: found["gpus"][4].update(memory_mib=73728)),
        Outcome.FAIL,
        ("gpu-memory-size", "node01 gpu4", "81559 MiB", "73728 MiB"),
    ),
    one(
        "two GPUs with one serial",
        changed(lambda found: found["gpus"][1].update(serial=found["gpus"][0]["serial"])),
        Outcome.FAIL,
        ("gpu-identity-not-unique", "node01", "every GPU its own", "1650000000000 on 2 GPUs", "field=serial"),
    ),
    one(
        "width not reported",
        changed(lambda found: found["gpus"][3].update(pcie_width=None, unread={"pcie_width": "Unknown Error"})),
        Outcome.ERROR,
        ("value-not-reported", "node01 gpu3", "16", "nothing", "value=PCIe width"),
    ),
    one(
        "all links unknown",
        changed(lambda found: [gpu.update(nvlinks=None) for gpu in found["gpus"][:1]]),
        Outcome.ERROR,
        ("gpu-nvlink-state-not-reported", "node01 gpu0", "the state of 18 links", "nothing"),
    ),
    one(
        "count contradicts the list",
        changed(lambda found: found.update(count=9)),
        Outcome.ERROR,
        ("gpu-inventory-contradicts", "node01", "as many GPUs as it counts", "count 9"),
    ),
    one(
        "cut off",
        Said(text("nvml/dgx_h100_healthy.json")[:900]),
        Outcome.ERROR,
        (
            "gpu-inventory-unreadable",
            "node01",
            "a complete inventory document",
            "JSON cut off or damaged at line 47 column 12",
        ),
    ),
    one(
        "empty",
        Said(""),
        Outcome.ERROR,
        ("gpu-inventory-unreadable", "node01", "a complete inventory document", "empty output"),
    ),
    one(
        "exit code contradicts the document",
        Said(text("nvml/dgx_h100_healthy.json"), exit_code=1),
        Outcome.ERROR,
        ("gpu-inventory-unreadable", "node01", "a complete inventory document", "a complete document, but exit code 1"),
    ),
    one(
        "hangs",
        Said(exit_code=None, timed_out=True),
        Outcome.ERROR,
        (
            "command-did-not-end",
            "node01",
            "an end within its time limit",
            "still running after 1 s, killed",
            "command=GPU inventory",
        ),
    ),
    one(
        "unreachable",
        Said(exit_code=None, failure="node01: SSH to 192.0.2.11:22 failed (timed out)"),
        Outcome.ERROR,
        (
            "command-could-not-run",
            "node01",
            "a result",
            "node01: SSH to 192.0.2.11:22 failed (timed out)",
            "command=GPU inventory",
            "node=node01",
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


def test_a_pass_measures_every_gpu_and_link() -> None:
    verdict = judge(GATE, CASES[0])
    assert len(verdict.measured) == 1 + 8 + 8 * 18
    assert {criterion.bound for criterion in verdict.criteria} == {8.0, 18.0}


def test_what_is_down_is_not_measured() -> None:
    verdict = judge(GATE, CASES[1])
    assert "node01/gpu2/nvlink4" not in verdict.measured
    assert "node01/gpu2/nvlink5" in verdict.measured


def test_what_stands_behind_a_missing_gpu_is_measured_under_its_own_name() -> None:
    measured = judge(GATE, next(case for case in CASES if case.name == "GPU missing")).measured
    assert [part for part in measured if part.count("/") == 1] == [f"node01/gpu{gpu}" for gpu in (0, 1, 2, 4, 5, 6, 7)]
    assert "node01/gpu7/nvlink17" in measured
    assert not [part for part in measured if part.startswith("node01/gpu3")]


def test_no_output_at_all_is_an_error() -> None:
    assert judge(GATE, Case("none", {}, Outcome.ERROR)).outcome is Outcome.ERROR


def test_a_card_in_a_slot_may_train_down_while_idle_and_it_is_said() -> None:
    known = facts("sys_521ge_l40s", 1)
    gpu = document("nvml/dgx_h100_healthy.json")["gpus"][0] | {
        "name": "NVIDIA L40S",
        "device_id": "26b9",
        "memory_mib": 46068,
        "pcie_gen": 1,
        "pcie_gen_max": 4,
        "nvlinks": {},
    }
    gpus = [
        gpu | {"index": index, "serial": f"{index}", "uuid": f"GPU-{index}", "pci": f"00000000:{index:02X}:00.0"}
        for index in range(8)
    ]
    found = {
        "format": "rackready/nvml-inventory/v2",
        "complete": True,
        "driver": "580.173.02",
        "count": 8,
        "gpus": gpus,
    }
    made = gate(GATE)
    verdict = evaluate(made, known, made.plan(known, ["node01"])[0], {"inventory": json.dumps(found)}, 0)
    assert [str(finding) for finding in verdict.findings if "PCIe" in finding.what] == []
    assert "node01 gpu7: PCIe generation 1 of 4 while idle, as such a card may" in (verdict.note or "")


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        (lambda gpus: gpus[3].pop("index"), "gpus[3].index: missing"),
        (lambda gpus: gpus[3].update(index=True), "gpus[3].index: not a whole number"),
        (lambda gpus: gpus[0].update(pcie_gen_max="5"), "gpus[0].pcie_gen_max: not a whole number"),
        (lambda gpus: gpus[1].update(unread=None), "gpus[1].unread: not a mapping"),
        (
            lambda gpus: gpus[2].update(nvlinks={"one": True}),
            "gpus[2].nvlinks.one[key]: not text that matches ^[0-9]{1,3}$",
        ),
        (lambda gpus: gpus.insert(0, "GPU"), "gpus[0]: not a mapping"),
    ],
    ids=["no index", "true as index", "a word as a number", "no reasons", "a link without a number", "no GPU"],
)
def test_a_value_of_another_type_is_refused_with_its_place(change: Callable[[list[Any]], object], actual: str) -> None:
    found = document("nvml/dgx_h100_healthy.json")
    change(found["gpus"])
    said = ("gpu-inventory-unreadable", "node01", "a complete inventory document", actual)
    check(GATE, Case("damaged", {"inventory": Said(json.dumps(found))}, Outcome.ERROR, (said,)))


BOUGHT = "692-2G520-0200-000"


@pytest.mark.parametrize(
    ("change", "outcome", "said"),
    [
        ({}, Outcome.PASS, None),
        (
            {"board_part": "692-2G520-0280-C00"},
            Outcome.FAIL,
            ("gpu-board-part", "node01 gpu5", f"one of {BOUGHT}", "692-2G520-0280-C00"),
        ),
        (
            {"board_part": None, "unread": {"board_part": "Not Supported"}},
            Outcome.ERROR,
            ("gpu-board-part-not-reported", "node01 gpu5", f"one of {BOUGHT}", "Not Supported"),
        ),
    ],
    ids=["as bought", "another", "not told"],
)
def test_boards_are_those_that_the_site_says_it_bought(
    change: dict[str, Any], outcome: Outcome, said: Told | None
) -> None:
    found = document("nvml/dgx_h100_healthy.json")
    found["gpus"][5].update(change)
    verdict = boards(found, {"board_parts": [BOUGHT]})
    assert (verdict.outcome, tells(verdict), verdict.note) == (outcome, [said] if said else [], None)


def boards(found: dict[str, Any], inputs: dict[str, object]) -> Verdict:
    known = facts("dgx_h100", 1)
    made = gate(GATE, inputs)
    return evaluate(made, known, made.plan(known, ["node01"])[0], {"inventory": json.dumps(found)}, 0)


OTHER = "692-2G520-0280-C00"


@pytest.mark.parametrize(
    ("parts", "outcome", "said", "note"),
    [
        (
            [BOUGHT] * 8,
            Outcome.PASS,
            "",
            f"board part number {BOUGHT}: not compared with what was bought (input board_parts)",
        ),
        ([None] * 8, Outcome.PASS, "", "no GPU reports its board part number: boards are not judged"),
        (
            [BOUGHT] * 3
            + ["965-2G520-A800-000"]
            + [BOUGHT] * 4,  # a GPU that was replaced, as captured on a healthy node
            Outcome.PASS,
            "",
            (
                f"board part number {BOUGHT}, 965-2G520-A800-000 on gpu3: not compared with what was bought (input "
                "board_parts)"
            ),
        ),
        (
            [BOUGHT] * 4 + [OTHER] * 4,
            Outcome.FAIL,
            ("gpu-board-parts-differ", "node01", "one for all GPUs", f"{BOUGHT} on 4, {OTHER} on 4"),
            None,
        ),
        (
            [f"900-2G500-000{gpu}-000" for gpu in range(8)],
            Outcome.FAIL,
            (
                "gpu-board-parts-differ",
                "node01",
                "one for all GPUs",
                f"{', '.join(f'900-2G500-000{gpu}-000 on 1' for gpu in range(8))}",
            ),
            None,
        ),
        (
            [BOUGHT] * 7 + [None],
            Outcome.ERROR,
            ("gpu-board-part-odd-one", "node01 gpu7", f"{BOUGHT}, as its siblings", "Not Supported"),
            f"board part number {BOUGHT}: not compared with what was bought (input board_parts)",
        ),
    ],
    ids=["one for all", "none tells it", "a spare part", "two halves", "eight of them", "one does not tell it"],
)
def test_boards_of_a_node_are_of_one_part_number(
    parts: list[str | None], outcome: Outcome, said: Told | None, note: str | None
) -> None:
    found = document("nvml/dgx_h100_healthy.json")
    for gpu, part in zip(found["gpus"], parts, strict=True):
        gpu.update({"board_part": part} if part else {"board_part": None, "unread": {"board_part": "Not Supported"}})
    verdict = boards(found, {})
    assert (verdict.outcome, tells(verdict), verdict.note) == (outcome, [said] if said else [], note)
    bought = sorted({part for part in parts if part})
    if len(bought) > 1:
        assert boards(found, {"board_parts": bought}).outcome is Outcome.PASS, "the site bought several"


@pytest.mark.parametrize(("field", "label"), [("serial", "serial"), ("uuid", "uuid"), ("pci", "PCI address")])
def test_a_number_with_what_nobody_sees_in_it_is_not_another_one(field: str, label: str) -> None:
    def twice(found: dict[str, Any]) -> None:
        one, other = found["gpus"][4], found["gpus"][5]
        other[field] = f"{one[field][:3]}\u200b{one[field][3:]}"

    verdict = judge(GATE, Case("twice", {"inventory": changed(twice)}, Outcome.ERROR))
    assert f"{label} unreadable" in {item.what for item in verdict.findings}
    assert verdict.outcome is Outcome.ERROR
