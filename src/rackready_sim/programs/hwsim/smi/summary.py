"""nvidia-smi without a query: the table, -L and --version."""

from __future__ import annotations

import sys
import time

from .. import machine
from ..machine import Gpu
from ..nvml import cuda_version
from . import mig

_WIDE = "-" * 89
_ROW = f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"


def cuda_text() -> str:
    """Return the CUDA version of the loaded driver as text, e.g. 13.0."""
    value = cuda_version(machine.driver_version() or "0")
    return f"{value // 1000}.{value % 1000 // 10}"


def versions(version: str) -> int:
    """Print --version."""
    sys.stdout.write(
        f"NVIDIA-SMI version  : {version}\nNVML version        : {version.rsplit('.', 1)[0]}\n"
        f"DRIVER version      : {machine.driver_version()}\nCUDA Version        : {cuda_text()}\n"
    )
    return 0


def listing(gpus: list[Gpu]) -> int:
    """Print -L, with MIG devices as in the MIG user guide, "Device Enumeration"."""
    for gpu in gpus:
        sys.stdout.write(f"GPU {gpu.index}: {gpu.part['name']} (UUID: {gpu.part['uuid']})\n")
        for number, (profile, uuid) in enumerate(mig.devices(gpu)):
            sys.stdout.write(f"  MIG {profile:<11} Device {number:>2}: (UUID: {uuid})\n")
    return 0


def table(gpus: list[Gpu], version: str) -> int:
    """Print the table."""
    head = f"NVIDIA-SMI {version:<22} Driver Version: {machine.driver_version():<14} CUDA Version: {cuda_text():<8}"
    rows = [
        f"{time.strftime('%a %b %e %H:%M:%S %Y'):<31}",
        f"+{_WIDE}+",
        f"| {head:<88}|",
        _ROW,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|",
    ]
    for gpu in gpus:
        rows += _gpu(gpu)
    rows += [
        "",
        f"+{_WIDE}+",
        f"| {'Processes:':<88}|",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        f"|{'=' * 89}|",
        f"|  {'No running processes found':<87}|",
        f"+{_WIDE}+",
    ]
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


def _gpu(gpu: Gpu) -> list[str]:
    part = gpu.part
    usage = f"{gpu.power_draw:.0f}W / {gpu.power_limit:>4.0f}W"
    ecc = part["ecc"]["volatile"]["uncorrected"]
    return [
        (
            f"| {gpu.index:>3}  {part['name'][:25]:<25} {'On' if gpu.persistence else 'Off':>7}  |"
            f"   {gpu.bus_id} Off | {ecc:>20} |"
        ),
        (
            f"| N/A {part['temperature_c']:>4}C    P0{usage:>24} | "
            f"{'0MiB / ' + str(part['memory_mib']).rjust(6) + 'MiB':>22} | {'0%':>7}      Default |"
        ),
        f"| {'':39} | {'':22} | {'Disabled':>20} |",
        _ROW,
    ]
