"""Lines of the kernel log: real and cited ones, each fault with its harmless twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.facts import node_facts
from rackready.design.monitoring.condition import Act
from rackready.design.site import load_site
from rackready.model.watch import Watch
from rackready.ondevice.watch_node import WANTED
from rackready.watch.kernel import sighting
from rackready.watch.sighting import act_of

ROOT = Path(__file__).resolve().parents[3]
MADE = ROOT / "tests" / "fixtures" / "made" / "kernel"
FACTS = node_facts(load_site("sim", root=ROOT), "node01")


def of(text: str) -> tuple[str, str, str] | None:
    found = sighting(FACTS, text)
    return None if found is None else (found.condition, found.part, act_of(found.condition, Watch()).value)


def xid(code: int, words: str, pci: str = "0000:43:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}, {words}"


PID = "pid='<unknown>', name=<unknown>, "
FAULTS = [
    (xid(79, PID + "GPU has fallen off the bus.", "0000:9d:00"), ("GpuXidRestartBm", "gpu4", "drain")),
    (xid(48, PID + "DBE (double bit error) ECC Error"), ("GpuXidWorkflowXid48", "gpu1", "drain")),
    (xid(95, "pid=7, name=python3, Uncontained: FBHUB"), ("GpuXidResetGpu", "gpu1", "drain")),
    (xid(94, "pid=7, name=python3, Contained: SM"), ("GpuXidResetGpuSoon", "gpu1", "drain")),
    (xid(94, "pid=7, name=python3, Contained: SM", "0000:43:00 GPU-I:05"), ("GpuXidResetGpuSoon", "gpu1", "drain")),
    (xid(119, PID + "Timeout", "0000:43:00 GPU-I:01 GPU-CI:02"), ("GpuXidResetGpu", "gpu1", "drain")),
    (xid(64, PID + "Row Remapper: failed"), ("GpuXidResetGpu", "gpu1", "drain")),
    (xid(74, PID + "NVLink: fatal error detected on link 2"), ("GpuXidWorkflowNvlinkErr", "gpu1", "drain")),
    (xid(119, "pid=7, name=python3, Timeout waiting for RPC from GSP!"), ("GpuXidResetGpu", "gpu1", "drain")),
    (
        xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        ("GpuXid154", "gpu1", "drain"),
    ),
    (
        "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        ("NvswitchSxidFatal", "nvswitch1", "drain"),
    ),
    (
        "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20999, Non-fatal, Link 2 something",
        ("NvswitchSxidUnlisted", "nvswitch1", "ticket"),
    ),
    ("NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.", ("GpuXidRestartBm", "gpu4", "drain")),
    (
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x12 offset:0x0)",
        ("NodeMemoryUncorrected", "memory", "drain"),
    ),
    (
        "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered",
        ("NodeMemoryUncorrected", "memory", "drain"),
    ),
    (xid(78, PID + "vGPU start error"), ("GpuXidUpdateSwfw", "gpu1", "ticket")),
    (xid(9999, "what"), ("GpuXidUnlisted", "gpu1", "ticket")),
    ("NVRM: Xid (invalid): some error", ("GpuXidUnlisted", "node", "ticket")),
]


@pytest.mark.parametrize(("text", "wanted"), FAULTS, ids=[wanted[0] for _, wanted in FAULTS])
def test_a_fault_has_its_condition_its_part_and_what_is_done(text: str, wanted: tuple[str, str, str]) -> None:
    assert of(text) == wanted
    assert WANTED.search(text), "the node sends the line"


def test_a_fault_in_a_mig_instance_names_it() -> None:
    found = sighting(FACTS, xid(94, "pid=7, name=python3, Contained: SM", "0000:43:00 GPU-I:05"))
    assert found is not None
    assert found.actual.endswith("GPU instance 5: pid=7, name=python3, Contained: SM")


TWINS = [
    xid(31, "pid=20211, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted"),
    xid(13, "pid=20211, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address"),
    xid(45, "pid=20211, name=python3, Ch 00000001 caused by previous Xid 31"),
]
SILENT = [
    xid(43, "pid=20211, name=python3, Ch 00000008"),
    xid(63, PID + "Row Remapper: New row marked for remapping"),
    xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
    "nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x12 offset:0x0)",
    "mlx5_core 0000:18:00.0 enp24s0np0: Link down",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.173.02  Release Build",
]


@pytest.mark.parametrize("text", TWINS)
def test_an_error_of_user_code_is_recorded_and_drains_nothing(text: str) -> None:
    found = of(text)
    assert found is not None
    assert found[2] == Act.RECORD


@pytest.mark.parametrize("text", SILENT)
def test_what_asks_for_nothing_is_no_fault(text: str) -> None:
    assert of(text) is None


def lines(name: str) -> list[str]:
    return [
        line.partition("kernel: ")[2] or line.partition("] ")[2]
        for line in (MADE / name).read_text(encoding="utf-8").splitlines()
    ]


def test_of_the_noise_of_a_machine_nothing_drains_it() -> None:
    found = [of(line) for line in lines("dgx_h100_noise.txt")]
    assert [one for one in found if one is not None] == [
        ("GpuXidRestartApp", "gpu2", "record"),
        ("GpuXidWorkflowXid45", "gpu2", "record"),
    ]


def test_a_fallen_gpu_is_named_by_its_place() -> None:
    found = [of(line) for line in lines("dgx_h100_gpu4_fallen.txt")]
    assert [one for one in found if one is not None] == [
        ("GpuXidRestartBm", "gpu4", "drain"),
        ("GpuXidRestartBm", "gpu4", "drain"),
        ("GpuXid154", "gpu4", "drain"),
    ]


def test_nvlink_5_is_judged_by_its_decoded_message() -> None:
    found = [of(line) for line in lines("gb200_nvlink5.txt")]
    assert [one[0] for one in found if one is not None] == ["GpuXidResetGpu", "GpuXid154", "GpuXidWorkflowNvlink5Err"]


def test_a_site_forbids_or_adds_a_drain() -> None:
    settings = Watch(never_drain=["GpuXidRestartBm"], also_drain=["GpuRowRemapPending"])
    assert act_of("GpuXidRestartBm", settings) is Act.TICKET
    assert act_of("GpuRowRemapPending", settings) is Act.DRAIN
    assert act_of("GpuRowRemapPending", Watch()) is Act.TICKET
    assert act_of("GpuXidRestartApp", Watch(never_drain=["GpuXidRestartApp"])) is Act.RECORD
