"""dcgmproftester: load GPUs with matrix multiplications and print their rates, one line per GPU and second."""

from __future__ import annotations

import random
import sys
import time

from .. import machine
from ..machine import Gpu

_RATES = {
    "hopper": {1004: 6.83e5, 1007: 5.12e4, 1006: 6.01e4},
    "blackwell": {1004: 1.52e6, 1007: 7.1e4, 1006: 3.6e4},
    "ampere": {1004: 2.53e5, 1007: 1.86e4, 1006: 1.88e4},
}
"""GFLOPS of a healthy simulated GPU at full power, by field; not a vendor's published figure."""
_HEADERS = {1004: "TensorEngineActive", 1006: "Fp64EngineActive", 1007: "Fp32EngineActive", 1008: "Fp16EngineActive"}
_FP32 = 1007
_READING_NOISE, _LAUNCH_NOISE, _SILICON = 0.004, 0.004, 0.003
_REAL_S = 0.4
_VALUED = {"-t", "--fieldId", "-i", "--gpuIds", "-d", "--duration", "-r", "--report", "--max-processes", "-m", "--mode"}


def main(argv: list[str]) -> int:
    """Run one load; options as of DCGM 4.6."""
    options: dict[str, str] = {}
    queue = list(argv)
    while queue:
        name, _, value = queue.pop(0).partition("=")
        options[name] = value or (queue.pop(0) if name in _VALUED and queue else "")
    field = int(options.get("-t") or options.get("--fieldId") or "1004")
    if field not in _HEADERS:
        sys.stdout.write(f"A test for fieldId {field} has not been implemented yet.\n")
        return 255
    try:
        machine.open_driver()
    except (machine.DriverNotLoadedError, machine.LibraryMissingError, machine.VersionMismatchError):
        sys.stdout.write("Error: Unable to initialize DCGM. Return: -6.\n")
        return 255
    gpus = _chosen(options.get("-i") or options.get("--gpuIds") or "")
    if not gpus or not machine.fabric_usable():
        sys.stdout.write(
            "Error: cuInit failed. Return: 802. Please check the fabric manager.\n"
            if gpus
            else "Error: no supported GPUs found.\n"
        )
        return 255
    _run(
        gpus,
        field,
        float(options.get("-d") or options.get("--duration") or 30),
        told=field != _FP32 or "--cublas" in options,
    )
    return 0


def _chosen(wanted: str) -> list[Gpu]:
    seen = [gpu for gpu in machine.gpus() if not gpu.lost]
    return [gpu for gpu in seen if not wanted or str(gpu.index) in wanted.split(",")]


def _run(gpus: list[Gpu], field: int, duration: float, *, told: bool) -> None:
    """``told``: FP32 without cuBLAS keeps the cores busy, and no line has a figure (RunSubtestDataTypeActive)."""
    machine.load(gpus, duration, _REAL_S)
    time.sleep(_REAL_S)
    for line in (
        "Skipping CreateDcgmGroups() since DCGM validation is disabled",
        "Skipping WatchFields() since DCGM validation is disabled",
    ):
        sys.stdout.write(f"{line}\n" * len(gpus))
    reached = {gpu.index: speed(gpu, field) * random.gauss(1, _LAUNCH_NOISE) for gpu in gpus}
    for second in range(int(duration) + 1):
        for gpu in gpus:
            value = (
                reached[gpu.index]
                * (0.62 if second == 0 else 0.97 if second == 1 else 1.0)
                * random.gauss(1, _READING_NOISE)
            )
            figure = f"  generated ???, dcgm 0.000 ({value:#.3g} gflops).\n" if told else " target max, dcgm 0.000\n"
            sys.stdout.write(f"Worker {gpu.index}:0 [{field}]: {_HEADERS[field]}:{figure}")
    sys.stdout.write("".join(f"GPU {gpu.index}, TestField {field} test PASSED.\n" for gpu in gpus))


def speed(gpu: Gpu, field: int) -> float:
    """Return this GPU's rate, GFLOPS: healthy GPUs differ a little, and always in the same way."""
    rates = _RATES.get(gpu.part["architecture"], _RATES["hopper"])
    own = 1 + _SILICON * (int(gpu.part["serial"][-3:]) / 500 - 1)
    held = 0.55 if int(gpu.part["clock_events"]) & 0xE8 and gpu.part["compute_factor"] == 1.0 else 1.0
    return rates.get(field, rates[1004]) * gpu.speed * own * held
