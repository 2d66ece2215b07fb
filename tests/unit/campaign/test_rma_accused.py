"""Which part a finding accuses, from the node's parts as its tools and its BMC tell them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.rma import summary
from rackready.campaign.rma.accused import accuse, from_evidence, from_kernel
from rackready.campaign.rma.case import Case
from rackready.campaign.rma.parts import NodePart, parts_of, versions
from rackready.campaign.rma.summary import as_markdown
from rackready.design.facts import NodeFacts, node_facts
from rackready.design.site import load_site
from rackready.gates.formats import kernel_log
from rackready.model.outcome import Finding, Outcome
from tests.unit.handover.evidence import T0, fingerprint, record

PARTS = [
    NodePart("gpu", "gpu2", "1650", slot="GPU_SXM_3", pci="0000:52:00"),
    NodePart("nic", "mlx5_3", "MT1"),
    NodePart("module", "module of mlx5_3", "MT2"),
    NodePart("memory module", "DIMM_A1", "D1", slot="DIMM_A1"),
    NodePart("psu", "psu PSU4", "P4"),
    NodePart("fan", "fan FAN1"),
    NodePart("drive", "S5X", "S5X"),
]


def finding(code: str, part: str = "", actual: str = "bad") -> Finding:
    where = f"node01 {part}".strip()
    return Finding(
        code=code, where=where, node="node01", part=part, what="x", expected="good", actual=actual, next_step="Look."
    )


@pytest.mark.parametrize(
    ("code", "part", "actual", "accused"),
    [
        ("xid", "gpu2", "", [("gpu2", "xid")]),
        ("gpu-fallen-off-bus", "gpu7", "", [("gpu7", "xid")]),
        ("row-remap-failed", "gpu2", "", [("gpu2", "gpu-memory")]),
        ("nvlink-inactive", "gpu2", "", [("gpu2", "gpu")]),
        ("application-clock-lowered", "gpu2", "", []),
        ("module-reading-out-of-limits", "mlx5_3", "", [("module of mlx5_3", "cable")]),
        ("link-went-down-often", "mlx5_3", "", [("module of mlx5_3", "cable")]),
        ("link-went-down-since-boot", "mlx5_3", "", [("module of mlx5_3", "cable")]),
        ("rdma-write-slow", "mlx5_3", "", [("mlx5_3", "nic")]),
        ("psu-not-fed", "psu PSU4", "", [("psu PSU4", "psu")]),
        ("fan-not-working", "fan FAN1", "", [("fan FAN1", "fan")]),
        ("bmc-log-memory-error", "log Sel", "Uncorrectable ECC at DIMM_A1", [("DIMM_A1", "memory")]),
        ("bmc-log-memory-error", "log Sel", "Uncorrectable ECC at DIMM_A11", []),
        ("drive-warns", "nvme0", "serial S5X: spare", [("S5X", "drive")]),
        ("gate-not-run", "gpu2", "", []),
        ("nvlink-domain-split", "", "", []),
    ],
)
def test_a_rule_places_a_finding_in_a_part(code: str, part: str, actual: str, accused: list[tuple[str, str]]) -> None:
    assert accuse(finding(code, part, actual), PARTS) == accused


def test_a_fault_has_its_first_and_last_time_and_its_runs() -> None:
    records = [
        record("node/gpu/sanity/xid", Outcome.FAIL, minutes=minutes, findings=[finding("xid", "gpu2")])
        for minutes in (0, 30, 60)
    ]
    records.append(
        record("node/gpu/sanity/ecc", Outcome.PASS, minutes=70, findings=[finding("ecc-uncorrected", "gpu2")])
    )
    (fault,) = from_evidence("node01", records, PARTS, T0.timestamp() + 60)
    assert fault.times == 2, "the first was before the last repair"
    assert [at and (at - T0).seconds for at in (fault.first, fault.last)] == [1800, 3600]
    assert (fault.runs, fault.gate, fault.accused) == (["c1"], "node/gpu/sanity/xid", [("gpu2", "xid")])
    other = record("pair/fabric/performance/ib-write-bw", Outcome.FAIL, findings=[finding("xid", "gpu2")])
    assert not from_evidence("node02", [other], PARTS, 0.0), "another node's fault"


SLOTS = """# dmidecode 3.3
Handle 0x0900, DMI type 9, 28 bytes
System Slot Information
\tDesignation: PCIE3
\tBus Address: 0000:52:00.0

"""


@pytest.fixture
def facts() -> NodeFacts:
    return node_facts(load_site("sim"), "node01")


def gathered(tmp_path: Path, files: dict[str, Any]) -> Case:
    case = Case("c", "node01", time.time(), "x", tmp_path)
    for name, content in files.items():
        path = case.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return case


def test_a_gpu_has_its_slot_by_address_and_its_bmc_name_by_serial(tmp_path: Path, facts: NodeFacts) -> None:
    gpu = {"index": 0, "serial": "1650", "pci": "00000000:52:00.0", "vbios": "96.00", "board_part": "699-1"}
    bmc = {"Id": "GPU_SXM_3", "ProcessorType": "GPU", "SerialNumber": "1650", "Model": "H100"}
    files = {
        "node-parts/gpus.json": {"gpus": [gpu]},
        "node-parts/slots.txt": SLOTS,
        "bmc-parts/parts.json": {"trails": {"Systems/*/Processors/*": ["/g"]}, "documents": {"/g": bmc}},
    }
    (part,) = parts_of(gathered(tmp_path, files), facts)
    assert (part.place, part.slot, part.model, part.by) == ("gpu2", "PCIE3", "H100", "NVML and BMC")
    assert (part.number, part.firmware, part.pci) == ("699-1", "96.00", "0000:52:00")


def test_the_serial_of_a_lost_gpu_is_that_of_its_evidence(tmp_path: Path, facts: NodeFacts) -> None:
    found = parts_of(gathered(tmp_path, {"node-parts/gpus.json": {"gpus": []}}), facts, ["A0", "unread:gpu1", "A2"])
    assert [(part.place, part.serial, part.pci, part.by) for part in found] == [
        ("gpu0", "A0", facts.platform.gpu_pci[0], "evidence"),
        ("gpu2", "A2", facts.platform.gpu_pci[2], "evidence"),
    ]


def test_a_nic_without_a_serial_has_its_guid_and_modules_have_theirs(tmp_path: Path, facts: NodeFacts) -> None:
    files = {
        "node-parts/identity.json": {
            "driver": "580.1", "nics": [{"device": "mlx5_0", "guid": "a0:88", "firmware": "28.39"}], "gpus": [],
        },
        "node-parts/parts.json": {
            "parts": {
                "module of mlx5_0": {"module of mlx5_0": "NVIDIA MCP4Y10 MT77"},
                "memory modules": {"memory module A1": "64 GB M321 ABC"},
                "drives": {"drive S5X": "MZ 1.0"},
                "BIOS": {"BIOS": "AMI 1.2"},
            },
            "numbers": {
                "module of mlx5_0": {
                    "module of mlx5_0": {"vendor": "NVIDIA", "part": "MCP4Y10", "serial": "MT77"}
                },
                "memory modules": {
                    "memory module A1": {"slot": "A1", "size": "64 GB", "part": "M321 R8", "serial": "AB C"}
                },
                "drives": {"drive S5X": {"serial": "S5X", "model": "MZ 1.0"}},
            },
        },
    }  # fmt: skip
    case = gathered(tmp_path, files)
    assert {(part.kind, part.place, part.serial, part.number) for part in parts_of(case, facts)} == {
        ("nic", "mlx5_0", "a0:88", ""),
        ("module", "module of mlx5_0", "MT77", "MCP4Y10"),
        ("memory module", "A1", "AB C", "M321 R8"),
        ("drive", "S5X", "S5X", ""),
    }
    assert versions(case) == {"driver": "580.1", "NIC firmware": "28.39", "BIOS": "AMI 1.2"}


def test_what_an_earlier_release_gathered_of_parts_is_in_words_and_no_number_is_guessed(
    tmp_path: Path, facts: NodeFacts
) -> None:
    words = {"memory modules": {"memory module A1": "64 GB M321 ABC"}, "drives": {"drive S5X": "MZ 1.0"}}
    assert parts_of(gathered(tmp_path, {"node-parts/parts.json": {"parts": words}}), facts) == []


def test_the_page_of_a_summary() -> None:
    document = {
        "node": "node01", "platform": "DGX H100 (dgx_h100)", "serial": "S1", "case": "node01-1",
        "begun": "2026-11-28T01:00:00Z",
        "reason": "GPU | lost", "answers": {"node": "yes"},
        "field_diagnostic": {"verdict": "FAIL", "why": "exit code 1"},
        "accused": [
            {"kind": "gpu", "place": "gpu2", "slot": "PCIE3", "serial": "1650", "number": "699", "firmware": "96",
             "by_finding": ["xid"], "returned_before": 1}
        ],
        "accused_and_not_listed": ["gpu7"], "faults": [], "not_read": [], "measured": [], "gathered": [],
        "versions": {}, "parts": [], "cables": [],
        "ticket": {},
    }  # fmt: skip
    text = as_markdown(document)
    assert text.startswith(
        "# node01: DGX H100 (dgx_h100), serial S1\n\nCase node01-1, begun 2026-11-28T01:00:00Z: GPU \\| lost\n\n"
        "## Field diagnostic\n\nFAIL: exit code 1\n\n## Accused parts\n\n"
        "| Part | Slot | Serial | Part number | Firmware | Finding | Returned before |\n|---|---|---|---|---|---|---|\n"
        "| gpu gpu2 | PCIE3 | 1650 | 699 | 96 | xid | 1 |\n\n"
        "Accused, and listed by neither node nor BMC: gpu7.\n\n## Faults\n\n"
        "No fail is on record since the last repair.\n"
    )


def test_a_lost_gpu_never_gets_the_serial_of_its_neighbour(tmp_path: Path, facts: NodeFacts) -> None:
    pci = facts.platform.gpu_pci
    there = [{"serial": f"S{at}", "pci": f"0000{pci[at]}:00.0"} for at in (0, 1, 3, 4, 5, 6, 7)]
    closed_up = [gpu["serial"] for gpu in there]
    found = parts_of(gathered(tmp_path, {"node-parts/gpus.json": {"gpus": there}}), facts, closed_up)
    assert [(part.place, part.serial) for part in found] == [(f"gpu{at}", f"S{at}") for at in (0, 1, 3, 4, 5, 6, 7)]
    whole = [f"S{at}" for at in range(8)]
    then = fingerprint(node="node01", gpus=whole)
    now = fingerprint(node="node01", gpus=closed_up)
    records = [record("a/gpu/sanity/x").model_copy(update={"fingerprints": [item]}) for item in (then, now)]
    assert summary._last_gpus("node01", records, 8) == whole


def test_a_number_that_firmware_invents_is_no_serial(tmp_path: Path, facts: NodeFacts) -> None:
    told = {f"A{at}": ("M321", "To Be Filled By O.E.M.") for at in range(2)}
    told |= {f"B{at}": ("Not Specified", "Not Specified") for at in range(2)}
    told |= {f"C{at}": ("M321", "80AD0123") for at in range(3)}
    told |= {f"D{at}": ("M321", f"80AD777{at}") for at in range(2)}
    modules = {
        f"memory module {slot}": {"slot": slot, "size": "64 GB", "part": part, "serial": number}
        for slot, (part, number) in told.items()
    }
    supplies = {f"/p{at}": {"Id": f"PSU{at}", "SerialNumber": "1A2B3C4D"} for at in range(4)}
    listed = {"trails": {"Chassis/*/PowerSubsystem/PowerSupplies/*": list(supplies)}, "documents": supplies}
    files = {"node-parts/parts.json": {"numbers": {"memory modules": modules}}, "bmc-parts/parts.json": listed}
    found = parts_of(gathered(tmp_path, files), facts)
    assert {part.place: part.serial for part in found if part.serial} == {"D0": "80AD7770", "D1": "80AD7771"}
    assert len(found) == 9 + 4


def test_a_gpu_whose_board_number_is_nought_has_its_uuid(tmp_path: Path, facts: NodeFacts) -> None:
    gpu = {"index": 0, "serial": "0", "uuid": "GPU-5a", "pci": f"0000{facts.platform.gpu_pci[0]}:00.0"}
    (part,) = parts_of(gathered(tmp_path, {"node-parts/gpus.json": {"gpus": [gpu]}}), facts)
    assert part.serial == "GPU-5a"


def test_xids_of_before_the_last_repair_do_not_count(facts: NodeFacts) -> None:
    lines = [
        f"2026-11-{day}T01:02:03+0000 node01 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
        for day in (26, 28)
    ]
    log = kernel_log.parse("2026-11-25T03:00:00+0000 node01 kernel: Linux version 6.8.0\n" + "".join(lines))
    (fault,) = from_kernel(log, facts, "c", datetime(2026, 11, 27, tzinfo=UTC).timestamp())
    assert (fault.times, fault.first) == (1, datetime(2026, 11, 28, 1, 2, 3, tzinfo=UTC))


def test_what_a_bmc_writes_in_odd_shapes_ends_nothing(tmp_path: Path, facts: NodeFacts) -> None:
    odd = {"/a": {"Id": "1", "Controllers": [{"Links": None}, 7]}, "/p": {"PowerSupplies": 3, "Fans": {"x": 1}}}
    trails = {"Chassis/*/NetworkAdapters/*": ["/a"], "Chassis/*/Power": ["/p"]}
    files = {
        "node-parts/gpus.json": {"gpus": None},
        "node-parts/identity.json": {"nics": None, "gpus": None},
        "bmc-parts/parts.json": {"trails": trails, "documents": odd},
    }
    assert [(part.kind, part.place) for part in parts_of(gathered(tmp_path, files), facts)] == [("nic", "1")]
