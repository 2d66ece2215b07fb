"""What the check on a node finds, in the gates' words; and that it passes a healthy node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from rackready.gates.nodecheck import bundle
from rackready.gates.nodecheck.judge import CODES, GATES, OWN, Check, ToolEnd
from tests.gates.support import text

SMI = text("smi/dgx_h100_healthy.xml").replace(
    "<gpu_recovery_action>N/A</gpu_recovery_action>", "<gpu_recovery_action>None</gpu_recovery_action>"
)
NOISE = text("kernel/dgx_h100_noise.txt")
TABLE = bundle.table()
NODE: dict[str, Any] = {
    "format": "rackready/slurm-check/v1",
    "node": "node01",
    "gpus": re.findall(r"<serial>(\d+)</serial>", SMI),
    "skips": [],
    "ecc": "Enabled",
    "persistence": "Enabled",
    "fabric": "reported",
    "nvlinks": 18,
    "units": ["nvidia-fabricmanager.service", "nvidia-persistenced.service"],
    "filesystems": ["/", "/var"],
    "least_free_pct": 2,
    "limit_s": 30,
}
DF = "Mounted on 1B-blocks Avail Inodes IFree\n/ 1000 500 1000 900\n/var 1000 20 - -\n"


def links(down: Mapping[int, int] | None = None) -> str:
    out = ""
    for gpu in range(8):
        out += f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000000{gpu}-0000-0000-0000-000000000000)\n"
        lost = (down or {}).get(gpu, 0)
        out += "".join(f"\t Link {at}: {'<inactive>' if at < lost else '26.562 GB/s'}\n" for at in range(18))
    return out


GOOD = {
    "smi": ToolEnd(0, SMI),
    "nvlink": ToolEnd(0, links()),
    "log": ToolEnd(0, NOISE),
    "units": ToolEnd(0, "active\nactive\n"),
    "disks": ToolEnd(0, DF),
}


def judged(node: Mapping[str, Any] = NODE, /, **changed: ToolEnd) -> list[str]:
    return [found.text() for found in Check(node, TABLE).judge({**GOOD, **changed})]


def smi(old: str, new: str, count: int = 1) -> ToolEnd:
    assert old in SMI, old
    return ToolEnd(0, SMI.replace(old, new, count))


def log(line: str) -> ToolEnd:
    return ToolEnd(0, f"{NOISE}2026-11-21T07:00:00+0000 node01 kernel: {line}\n")


def test_a_healthy_node_has_no_finding() -> None:
    assert judged() == []


def without_gpu(at: int) -> ToolEnd:
    blocks = re.split(r"(?=\t<gpu id=)", SMI)
    del blocks[at + 1]
    return ToolEnd(0, "".join(blocks).replace("<attached_gpus>8<", "<attached_gpus>7<"))


GONE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
PENDING = "<remapped_row_pending>No</remapped_row_pending>"
FAILED = "<remapped_row_failure>No</remapped_row_failure>"
CASES: list[tuple[str, dict[str, ToolEnd], list[str]]] = [
    (
        "a GPU is gone",
        {"smi": without_gpu(2)},
        ["GPUs in nvidia-smi (7 of 8)", "GPU that was handed over is missing (1650000000003)"],
    ),
    (
        "a GPU was exchanged",
        {"smi": smi("<serial>1650000000002<", "<serial>1650000000099<")},
        [
            "gpu1: not the GPU that was handed over (1650000000099)",
            "GPU that was handed over is missing (1650000000002)",
        ],
    ),
    (
        "remap pending",
        {"smi": smi(PENDING, PENDING.replace("No<", "Yes<"))},
        ["gpu0: row remapping waits for a reset (Xid 63)"],
    ),
    ("remap failed", {"smi": smi(FAILED, FAILED.replace("No<", "Yes<"))}, ["gpu0: row remapping failed (Xid 64)"]),
    (
        "remap unknown",
        {"smi": smi(PENDING, PENDING.replace("No<", "N/A<"))},
        ["gpu0: row remapping not reported (nothing)"],
    ),
    (
        "uncorrected ECC",
        {"smi": smi("<dram_uncorrectable>0<", "<dram_uncorrectable>3<")},
        ["gpu0: uncorrected DRAM errors since the driver was loaded (3)"],
    ),
    (
        "ECC off",
        {"smi": smi("<current_ecc>Enabled<", "<current_ecc>Disabled<")},
        ["gpu0: ECC mode (Disabled)"],
    ),
    (
        "recovery action",
        {"smi": smi("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<")},
        ["gpu0: GPU recovery action (Reset)"],
    ),
    (
        "persistence off",
        {"smi": smi("<persistence_mode>Enabled<", "<persistence_mode>Disabled<")},
        ["gpu0: persistence mode (Disabled)"],
    ),
    ("fabric", {"smi": smi("<state>Completed<", "<state>In Progress<")}, ["gpu0: fabric state (In Progress)"]),
    (
        "fabric health",
        {"smi": smi("<summary>N/A<", "<summary>Unhealthy<")},
        ["gpu0: fabric health (Unhealthy)"],
    ),
    ("NVLink down", {"nvlink": ToolEnd(0, links({5: 1}))}, ["gpu5: NVLink down (17 of 18 active)"]),
    (
        "the driver is gone",
        {"smi": ToolEnd(9, f"{GONE}\n")},
        [f"nvidia-smi cannot reach the driver ({GONE})"],
    ),
    (
        "nvidia-smi is cut off",
        {"smi": ToolEnd(0, SMI[:5000])},
        ["nvidia-smi unreadable (the report is cut off: its last element is missing (exit code 0))"],
    ),
    ("nvidia-smi exit code", {"smi": ToolEnd(6, SMI)}, ["nvidia-smi contradicts itself (exit code 6)"]),
    (
        "nvidia-smi hangs",
        {"smi": ToolEnd(-1, "", "no answer within 22 s"), "nvlink": ToolEnd(-1, "", "no answer within 22 s")},
        [
            "nvidia-smi -q -x did not measure (no answer within 22 s)",
            "nvidia-smi nvlink -s did not measure (no answer within 22 s)",
        ],
    ),
    (
        "Xid 48",
        {
            "log": log(
                "NVRM: Xid (PCI:0000:43:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error"
            )
        },
        ["0000:43:00: Xid 48 (Double Bit ECC Error) (2026-11-21T07:00:00+0000)"],
    ),
    (
        "an Xid that nobody knows",
        {"log": log("NVRM: Xid (PCI:0000:43:00): 9999, what")},
        ["0000:43:00: Xid 9999 (not in the vendor's catalogue) (2026-11-21T07:00:00+0000)"],
    ),
    (
        "Xid 154",
        {
            "log": log(
                "NVRM: Xid (PCI:0000:43:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset "
                "Required)"
            )
        },
        ["0000:43:00: Xid 154 (GPU recovery action changed) (GPU Reset Required)"],
    ),
    (
        "a fatal SXid",
        {"log": log("nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")},
        ["0000:05:00: SXid 20034 (LTSSM Fault Up) (2026-11-21T07:00:00+0000)"],
    ),
    (
        "fallen off the bus, without an Xid",
        {"log": log("NVRM: GPU 0000:43:00.0: GPU has fallen off the bus.")},
        ["0000:43:00: GPU has fallen off the bus"],
    ),
    ("no log", {"log": ToolEnd(1, "")}, ["kernel log unreadable (empty output (exit code 1))"]),
    ("log cut by an error", {"log": ToolEnd(1, NOISE)}, ["kernel log contradicts itself (exit code 1)"]),
    ("a service", {"units": ToolEnd(3, "failed\nactive\n")}, ["nvidia-fabricmanager.service (failed)"]),
    (
        "systemd mute",
        {"units": ToolEnd(1, "Failed to connect to bus\n")},
        ["states of services not understood ('Failed to connect to bus\\n' (exit code 1))"],
    ),
    (
        "disk full",
        {"disks": ToolEnd(0, DF.replace("/var 1000 20", "/var 1000 19"))},
        ["file system /var is full (1.9 % of bytes free)"],
    ),
    (
        "no inodes",
        {"disks": ToolEnd(0, DF.replace("1000 900", "1000 3"))},
        ["file system / is full (0.3 % of inodes free)"],
    ),
    (
        "df lacks a row",
        {"disks": ToolEnd(1, DF.rsplit("/var", 1)[0])},
        ["df did not measure ('Mounted on 1B-blocks Avail Inodes IFree\\n/ 1000 500 1000 900\\n' (exit code 1))"],
    ),
]


@pytest.mark.parametrize(("changed", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_fault_is_named(changed: dict[str, ToolEnd], wanted: list[str]) -> None:
    assert judged(**changed) == wanted


def test_harmless_events_do_not_drain() -> None:
    # the noise has Xids of applications (13, 31, 43) and a non-fatal SXid
    assert "Xid" in NOISE
    assert judged(log=log("NVRM: Xid (PCI:0000:43:00): 31, pid=1, name=python, MMU fault")) == []
    back = "NVRM: Xid (PCI:0000:43:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert judged(log=log(back)) == []


def test_a_log_that_no_longer_reaches_back_to_the_boot_is_judged_as_far_as_it_goes() -> None:
    line = "2026-11-21T07:00:00+0000 node01 kernel: audit: something\n"
    assert judged(log=ToolEnd(0, line)) == []
    bad = line + "2026-11-21T07:00:00+0000 node01 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
    assert len(judged(log=ToolEnd(0, bad))) == 1


@pytest.mark.parametrize(
    ("gate", "changed"),
    [
        ("node/gpu/sanity/row-remap", "remap failed"),
        ("node/gpu/sanity/ecc", "uncorrected ECC"),
        ("node/gpu/sanity/recovery-action", "recovery action"),
        ("node/gpu/sanity/settings", "persistence off"),
        ("node/gpu/sanity/fabric", "fabric"),
        ("node/gpu/sanity/nvlink", "NVLink down"),
        ("node/gpu/sanity/xid", "Xid 48"),
    ],
)
def test_a_gate_that_the_site_skips_is_skipped_here_and_no_other(gate: str, changed: str) -> None:
    [outputs] = [case[1] for case in CASES if case[0] == changed]
    assert judged({**NODE, "skips": [gate]}, **outputs) == []
    assert judged({**NODE, "skips": sorted(set(GATES) - {gate})}, **outputs) != []


def test_a_site_without_ecc_or_persistence_gets_what_it_wants() -> None:
    off = {**NODE, "ecc": "Disabled", "persistence": "Disabled"}
    without = SMI.replace("<current_ecc>Enabled<", "<current_ecc>Disabled<").replace(
        "<persistence_mode>Enabled<", "<persistence_mode>Disabled<"
    )
    assert judged(off, smi=ToolEnd(0, without)) == []
    assert len(judged(off)) == 16


def test_an_ampere_gpu_may_be_silent_about_the_fabric() -> None:
    mute = ToolEnd(0, SMI.replace("<state>Completed<", "<state>N/A<").replace("<status>Success<", "<status>N/A<"))
    assert judged({**NODE, "fabric": "silent"}, smi=mute) == []
    assert len(judged(smi=mute)) == 8


def test_every_code_has_its_words() -> None:
    assert set(TABLE["titles"]) == set(CODES)
    assert not set(OWN) & set(CODES)
    found = {one.code for _, changed, _ in CASES for one in Check(NODE, TABLE).judge({**GOOD, **changed})}
    assert found <= set(CODES) | set(OWN)


def test_nvlink5_events_are_decoded_as_the_gate_does() -> None:
    node = {**NODE, "gpus": re.findall(r"<serial>(\d+)</serial>", text("smi/gb200_tray_healthy.xml"))}
    lines = text("kernel/gb200_nvlink5.txt")
    words = [found for found in Check(node, TABLE).judge({**GOOD, "log": ToolEnd(0, lines)}) if found.code == "xid"]
    assert words
    assert all("Xid 14" in found.text() or "Xid 150" in found.text() for found in words)
