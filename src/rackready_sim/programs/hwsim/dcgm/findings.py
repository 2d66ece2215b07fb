"""Findings of DCGM's diagnostic plugins, computed from the machine's present condition.

Error numbers, severities and categories: dcgm_errors.h of DCGM 4.6; targets of the H100: nvvs/diag-skus.yaml.in.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from .. import machine, store
from ..machine import Gpu

MONITOR, ISOLATE, TRIAGE, CONFIG, RESET = 1, 2, 4, 5, 6
_PERFORMANCE, _CONFIGURATION, _XID, _THERMAL, _MEMORY, _NVLINK, _PCIE, _OTHER = 1, 3, 5, 9, 10, 11, 13, 15

_TARGETS = {
    "2330": (700.0, 29250.0, 1905000.0),
    "2331": (350.0, 15375.0, 1230000.0),
    "2335": (700.0, 37500.0, 2333.0),
    "2901": (1000.0, 36949.0, 4072500.0),
}
_HEALTHY_OVER_TARGET = 1 / 0.75
_POWER_RATIO, _STRESS_RATIO = 0.75, 0.95
_MIN_WIDTH, _MIN_GEN = 16, 3
_FULL_WIDTH_GB_S = 54.8
_MIN_PCIE_GB_S = 4.0


class Warning_(NamedTuple):  # noqa: N801  (Warning is a builtin)
    """One problem of one GPU."""

    text: str
    error: int
    severity: int
    category: int


Found = dict[int, list[Warning_]]
Check = Callable[[Gpu], list[Warning_]]


def software(gpu: Gpu) -> list[Warning_]:
    """Level 1: check that the machine is configured for valid tests."""
    found = []
    if "nouveau" in store.runtime()["modules"]:
        found.append(
            Warning_(
                "Found driver on the denylist: nouveau Unload or uninstall the denylisted driver.",
                23,
                CONFIG,
                _CONFIGURATION,
            )
        )
    if not gpu.persistence:
        text = (
            f"Persistence mode for GPU {gpu.index} is currently disabled. "
            "The DCGM diagnostic requires peristence mode to be enabled. "
            f'Enable persistence mode by running "nvidia-smi -i {gpu.index} -pm 1 " as root.'
        )
        found.append(Warning_(text, 29, CONFIG, _CONFIGURATION))
    return found + _rows(gpu) + _fabric(gpu)


def _rows(gpu: Gpu) -> list[Warning_]:
    rows = gpu.part["remapped_rows"]
    if rows["failure"]:
        text = (
            f"GPU {gpu.index} had uncorrectable memory errors and row remapping failed. "
            "Run a field diagnostic on the GPU."
        )
        return [Warning_(text, 80, RESET, _MEMORY)]
    if rows["pending"]:
        text = f"GPU {gpu.index} has pending row remappings. Reset the GPU to apply them."
        return [Warning_(text, 85, RESET, _MEMORY)]
    return []


def _fabric(gpu: Gpu) -> list[Warning_]:
    state = machine.fabric_state(gpu)
    if state == "N/A" or machine.fabric_usable():
        return []
    if state == "In Progress":
        text = (
            f"GPU {gpu.index} reports that the fabric manager did not finish training. "
            "Check the status and logs of the fabric manager."
        )
        return [Warning_(text, 112, CONFIG, _NVLINK)]
    text = (
        f"GPU {gpu.index} reports that the fabric manager is not initialized. "
        "Start the nvidia-fabricmanager service and check its status and logs."
    )
    return [Warning_(text, 108, CONFIG, _NVLINK)]


def memory(gpu: Gpu) -> list[Warning_]:
    """Level 2: check device memory."""
    errors = gpu.part["ecc"]["volatile"]["uncorrected"]
    if errors:
        text = (
            f"Detected {errors} volatile double-bit ECC error(s) in GPU {gpu.index}. "
            "Drain the GPU and reset it or reboot the node."
        )
        return [Warning_(text, 4, ISOLATE, _MEMORY)]
    if _declared(gpu, "memory"):
        text = f"Found 1 faulty memory elements on GPU {gpu.index} Run a field diagnostic on the GPU."
        return [Warning_(text, 52, ISOLATE, _MEMORY)]
    return []


def pcie(gpu: Gpu) -> list[Warning_]:
    """Level 2: check PCIe link and NVLink."""
    found, link = [], gpu.part["pcie"]
    if link["gen"] < _MIN_GEN:
        text = _below(gpu, "generation", str(link["gen"]), str(_MIN_GEN), "min_pci_generation")
        found.append(Warning_(text, 45, TRIAGE, _PCIE))
    if link["width"] < _MIN_WIDTH:
        text = _below(gpu, "width", f"{link['width']}X", f"{_MIN_WIDTH}X", "min_pci_width")
        found.append(Warning_(text, 46, CONFIG, _PCIE))
    down = [item["id"] for item in gpu.part["nvlink"]["links"] if item["state"] != "active"]
    for name in down:
        text = f"GPU {gpu.index}'s NvLink link {name} is currently down Run a field diagnostic on the GPU."
        found.append(Warning_(text, 14, TRIAGE, _NVLINK))
    speed = pcie_gb_s(gpu)
    if speed < _MIN_PCIE_GB_S:
        text = (
            f"Bandwidth of GPU {gpu.index} in direction Host to Device of {speed:.2f} did not exceed minimum "
            f"required bandwidth of {_MIN_PCIE_GB_S:.2f}."
        )
        found.append(Warning_(text, 30, TRIAGE, _PERFORMANCE))
    return found + _generic(gpu, "pcie")


def _below(gpu: Gpu, what: str, actual: str, least: str, parameter: str) -> str:
    return (
        f"GPU {gpu.index} is running at PCI link {what} {actual}, which is below the minimum allowed link {what} of "
        f"{least} (parameter '{parameter}')"
    )


def pcie_gb_s(gpu: Gpu) -> float:
    """Return the rate of a host-to-device copy, GB/s."""
    link = gpu.part["pcie"]
    return float(_FULL_WIDTH_GB_S * link["width"] / 16 / 2 ** (5 - link["gen"]) * random.gauss(1, 0.004))


def diagnostic(gpu: Gpu) -> list[Warning_]:
    """Level 3: run matrix multiplications on every engine; check results and thermal violations."""
    wrong = gpu.part.get("wrong_results", 0)
    if wrong:
        text = f"Found {wrong} faulty memory elements on GPU {gpu.index} Run a field diagnostic on the GPU."
        return [Warning_(text, 52, ISOLATE, _MEMORY), *_throttled(gpu)]
    return _throttled(gpu) + _generic(gpu, "diagnostic")


def targeted_stress(gpu: Gpu) -> list[Warning_]:
    """Level 3: check sustained compute."""
    target = _target(gpu)[1]
    reached = target * _HEALTHY_OVER_TARGET * gpu.speed * random.gauss(1, 0.004)
    if reached < target * _STRESS_RATIO:
        text = (
            f"Reached stress level of {reached:.2f} GFLOPS, which is below the minimum of "
            f"{target * _STRESS_RATIO:.2f} GFLOPS for GPU {gpu.index}"
        )
        return [Warning_(text, 50, TRIAGE, _PERFORMANCE), *_generic(gpu, "targeted_stress")]
    return _generic(gpu, "targeted_stress")


def targeted_power(gpu: Gpu) -> list[Warning_]:
    """Level 3: check that the GPU reaches its power."""
    target = _target(gpu)[0]
    top = gpu.power_limit * (0.25 + 0.75 * min(1.0, float(gpu.part["compute_factor"]))) * random.gauss(1, 0.003)
    if top < target * _POWER_RATIO:
        text = (
            f"Max power of {top:.1f} did not reach desired power minimum target_power_min_ratio of "
            f"{target * _POWER_RATIO:.1f} for GPU {gpu.index}"
        )
        return [Warning_(text, 63, TRIAGE, _PERFORMANCE), *_throttled(gpu)]
    return _throttled(gpu) + _generic(gpu, "targeted_power")


def memory_bandwidth(gpu: Gpu) -> list[Warning_]:
    """Level 3: check device memory bandwidth."""
    minimum = _target(gpu)[2]
    reached = minimum * _HEALTHY_OVER_TARGET * float(gpu.part["memory_factor"]) * random.gauss(1, 0.003)
    if reached < minimum:
        text = (
            f"GPU {gpu.index} only achieved a memory bandwidth of {reached / 1000:.2f} GB/s, failing to meet "
            f"{minimum / 1000:.2f} GB/s for test 0"
        )
        return [Warning_(text, 62, TRIAGE, _PERFORMANCE)]
    return _generic(gpu, "memory_bandwidth")


def quiet(gpu: Gpu) -> list[Warning_]:
    """Return no finding: this plugin reports and does not judge."""
    return _generic(gpu, "nvbandwidth")


def watched(gpu: Gpu) -> list[Warning_]:
    """Return what every plugin watches while it runs: Xids."""
    codes = sorted({xid["code"] for xid in store.hardware()["xids"] if xid["pci"] == gpu.part["pci"]})
    return [
        Warning_(f"GPU {gpu.index} - Detected XID {code} Please check the description of the Xid.", 101, TRIAGE, _XID)
        for code in codes
    ]


def _throttled(gpu: Gpu) -> list[Warning_]:
    if gpu.events & 0x60:
        return [
            Warning_(
                f"There were thermal violations totaling {random.uniform(3, 9):.1f} seconds for GPU {gpu.index}",
                36,
                MONITOR,
                _THERMAL,
            )
        ]
    return []


def _generic(gpu: Gpu, test: str) -> list[Warning_]:
    if not _declared(gpu, test):
        return []
    return [
        Warning_(f"The {test} test of GPU {gpu.index} failed. Run a field diagnostic on the GPU.", 95, ISOLATE, _OTHER)
    ]


def _declared(gpu: Gpu, test: str) -> bool:
    return any(item["gpu"] == gpu.slot and item["test"] == test for item in store.hardware()["dcgm"]["fail"])


def _target(gpu: Gpu) -> tuple[float, float, float]:
    return _TARGETS.get(gpu.part["device_id"][2:6].lower(), (float(gpu.part["power"]["default_w"]), 20000.0, 1000000.0))
