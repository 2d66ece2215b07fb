"""nvbandwidth: copies between host and GPUs, between GPUs, and inside a GPU, as JSON or as text."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

from .. import machine
from ..machine import Gpu

_TESTS = (
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "device_to_device_memcpy_read_ce",
    "device_local_copy",
)
_TEXTS = {
    "host_to_device_memcpy_ce": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
    "device_to_host_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)",
    "device_to_device_memcpy_read_ce": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
    "device_local_copy": "memcpy local GPU(column) bandwidth (GB/s)",
}
_HOST, _BACK = 55.2, 54.6
"""GB/s of a healthy GPU of this machine at PCIe generation 5 x16."""
_HOST_GEN = 5
"""Generation of the processors: Xeon 6, EPYC Turin and Grace have 5, also with GPUs of 6 (servethehome.com, ConnectX-8
C8240 review, page 2)."""
_PEER_OWN = {"hopper": (372.0, 1390.0), "blackwell": (768.0, 3310.0), "ampere": (276.0, 1010.0)}
"""GB/s between two healthy simulated GPUs with all NVLinks, and inside one; not a vendor's published figures."""
_NOISE = 0.004
_REAL_S = 1.0


def main(argv: list[str]) -> int:
    """Run the tests of -t, or all; -j prints JSON."""
    names = [arg for arg in argv if not arg.startswith("-")]
    bad = next((name for name in names if name not in _TESTS), None)
    if bad is not None:
        sys.stdout.write(f"ERROR: Testcase {bad} not found!\n")
        return 1
    try:
        driver = machine.open_driver()
    except (machine.DriverNotLoadedError, machine.LibraryMissingError, machine.VersionMismatchError):
        return _refused("CUDA_ERROR_NO_DEVICE")
    gpus = [gpu for gpu in machine.gpus() if not gpu.lost]
    if not gpus or not machine.fabric_usable():
        return _refused("CUDA_ERROR_SYSTEM_NOT_READY")
    machine.load(gpus, _REAL_S, _REAL_S)
    time.sleep(_REAL_S)
    cases = [_case(name, gpus) for name in names or _TESTS]
    if "-j" in argv or "--json" in argv:
        devices = [f"{gpu.index}: {_device(gpu)}: ({os.uname().nodename})" for gpu in gpus]
        head = {"CUDA Runtime Version": 13000, "Driver Version": driver, "GPU Device list": devices}
        body = {**head, "git_version": "v0.8", "testcases": cases, "version": "v0.8"}
        sys.stdout.write(json.dumps({"nvbandwidth": body}, indent="\t") + "\n")
    else:
        sys.stdout.write(_text(cases, driver, gpus))
    return 0


def _refused(word: str) -> int:
    sys.stdout.write(f"[{word}] cuInit returned an error\n")
    return 1


def _case(name: str, gpus: list[Gpu]) -> dict[str, Any]:
    if name == "device_to_device_memcpy_read_ce":
        rows = [["N/A" if other is gpu else f"{_noisy(_peer(gpu, other)):.2f}" for other in gpus] for gpu in gpus]
        if len(gpus) < 2:  # noqa: PLR2004 - one GPU has no peer
            return {"name": name, "status": "Waived"}
    else:
        rows = [[f"{_noisy(_one(name, gpu)):.2f}" for gpu in gpus]]
    values = [float(cell) for row in rows for cell in row if cell != "N/A"]
    figures = {"average": sum(values) / len(values), "max": max(values), "min": min(values), "sum": sum(values)}
    return {
        **figures,
        "bandwidth_description": _TEXTS[name],
        "bandwidth_matrix": rows,
        "name": name,
        "status": "Passed",
    }


def _one(name: str, gpu: Gpu) -> float:
    if name == "device_local_copy":
        return _silicon(gpu)[1] * float(gpu.part["memory_factor"])
    link = gpu.part["pcie"]
    share: float = link["width"] / 16 / 2 ** (5 - min(link["gen"], _HOST_GEN)) * float(gpu.part.get("host_factor", 1.0))
    return (_HOST if name == "host_to_device_memcpy_ce" else _BACK) * share


def _peer(one: Gpu, other: Gpu) -> float:
    shares = [[link["state"] == "active" for link in gpu.part["nvlink"]["links"]] for gpu in (one, other)]
    active = min(sum(links) / max(1, len(links)) for links in shares)
    return _silicon(one)[0] * active if active else _HOST * 0.8


def _silicon(gpu: Gpu) -> tuple[float, float]:
    return _PEER_OWN.get(gpu.part["architecture"], _PEER_OWN["hopper"])


def _noisy(value: float) -> float:
    return value * random.gauss(1, _NOISE)


def _device(gpu: Gpu) -> str:
    """Return a device as nvbandwidth lists it from 0.8 on: its address without the function.

    Source: output.cpp, getDeviceDisplayInfo.
    """
    return f"{gpu.part['name']} ({gpu.bus_id.lower().split('.', 1)[0]})"


def _text(cases: list[dict[str, Any]], driver: str, gpus: list[Gpu]) -> str:
    lines = [
        "nvbandwidth Version: v0.8",
        "Built from Git version: v0.8",
        "",
        "CUDA Runtime Version: 13000",
        "CUDA Driver Version: 13000",
        f"Driver Version: {driver}",
        "",
    ]
    lines += [os.uname().nodename, *(f"Device {gpu.index}: {_device(gpu)}" for gpu in gpus)]
    for case in cases:
        if case["status"] != "Passed":
            lines += ["", "Waived:"]
            continue
        lines += [
            "",
            f"Running {case['name']}.",
            case["bandwidth_description"],
            " " * 3 + "".join(f"{index:>10}" for index in range(len(gpus))),
        ]
        lines += [
            f" {index} " + "".join(f"{cell:>10}" for cell in row) for index, row in enumerate(case["bandwidth_matrix"])
        ]
        lines += ["", f"SUM {case['name']} {case['sum']:.2f}"]
    return "\n".join(lines) + "\n"
