"""nvidia-smi's setters: persistence mode, compute mode, power limit, locked clocks, reset.

Words of -c: MicrosoftDocs/azure-docs, azure-stack-edge (Start-HcsGpuMPS), and public outputs of a container that sets
it before MPS; its values: nvidia-smi's manual. With MIG on it is not supported: MIG user guide, "MIG with CUDA MPS".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .. import kmod, machine
from ..machine import Gpu
from . import mig

_DONE = "All done.\n"
_EARLY = "Terminating early due to previous errors.\n"
_MODES = {
    "0": "Default", "DEFAULT": "Default", "2": "Prohibited", "PROHIBITED": "Prohibited",
    "3": "Exclusive_Process", "EXCLUSIVE_PROCESS": "Exclusive_Process",
}  # fmt: skip


def main(values: dict[str, str], flags: set[str], gpus: list[Gpu]) -> int | None:
    """Run a setter; return None if there was none."""
    act: Callable[[Gpu], tuple[int, str]] | None = None
    if "pm" in values:
        act = lambda gpu: _persistence(gpu, values["pm"])  # noqa: E731
    elif "pl" in values:
        act = lambda gpu: _power(gpu, values["pl"])  # noqa: E731
    elif "lgc" in values:
        act = lambda gpu: _lock(gpu, values["lgc"])  # noqa: E731
    elif "rgc" in flags:
        act = _unlock
    elif "reset" in flags:
        act = _reset
    elif "mig" in values:
        act = lambda gpu: mig.set_mode(gpu, values["mig"])  # noqa: E731
    elif "compute" in values:
        act = lambda gpu: _compute(gpu, values["compute"])  # noqa: E731
    elif any(key in values for key in ("ac", "lmc", "lmcd", "ecc")) or flags & {"rmc", "rac"}:
        act = _unsupported
    return None if act is None else _each(gpus, act)


def _each(gpus: list[Gpu], act: Callable[[Gpu], tuple[int, str]]) -> int:
    for gpu in gpus:
        code, text = act(gpu)
        if os.geteuid() != 0:
            code, text = 4, f"Unable to change settings for GPU {gpu.bus_id}: Insufficient Permissions\n"
        sys.stdout.write(text)
        if code:
            sys.stdout.write(_EARLY)
            return code
    sys.stdout.write(_DONE)
    return 0


def _warn(gpu: Gpu) -> str:
    if gpu.persistence:
        return ""
    return (
        f"Warning: persistence mode is disabled on device {gpu.bus_id}. "
        "See the Known Issues section of the nvidia-smi(1) man page for more information. "
        "Run with [--help | -h] switch to get more information on how to enable persistence mode.\n"
    )


def _persistence(gpu: Gpu, value: str) -> tuple[int, str]:
    wanted = {"0": False, "disabled": False, "1": True, "enabled": True}.get(value.lower())
    if wanted is None:
        return 2, f'"{value}" is not a valid persistence mode.\n'
    word = "Enabled" if wanted else "Disabled"
    if gpu.persistence == wanted:
        return 0, f"Persistence mode is already {word} for GPU {gpu.bus_id}.\n"
    if os.geteuid() == 0:
        machine.set_persistence(gpu, on=wanted)
    return 0, f"{word} persistence mode for GPU {gpu.bus_id}.\n"


def _compute(gpu: Gpu, value: str) -> tuple[int, str]:
    word = _MODES.get(value.upper())
    if word is None:
        return 2, f'"{value}" is not a valid compute mode.\n'
    if word == "Exclusive_Process" and mig.mode(gpu) == "Enabled":
        return _unsupported(gpu)
    if gpu.compute_mode == word:
        return 0, f"Compute mode is already set to {word.upper()} for GPU {gpu.bus_id}.\n"
    if os.geteuid() == 0:
        machine.set_gpu(gpu, compute_mode=word)
    return 0, f"Set compute mode to {word.upper()} for GPU {gpu.bus_id}.\n"


def _power(gpu: Gpu, value: str) -> tuple[int, str]:
    try:
        watts = float(value)
    except ValueError:
        return 2, f'"{value}" is not a valid power limit.\n'
    low, high = gpu.part["power"]["min_w"], gpu.part["power"]["max_w"]
    if not low <= watts <= high:
        return (
            2,
            (
                f"Provided power limit {watts:.2f} W is not a valid power limit which should be between {low:.2f} W "
                f"and {high:.2f} W for GPU {gpu.bus_id}\n"
            ),
        )
    before = gpu.power_limit
    if os.geteuid() == 0:
        machine.set_gpu(gpu, power_limit_w=watts)
    if before == watts:
        return 0, f"Power limit for GPU {gpu.bus_id} was set to {watts:.2f} W from {before:.2f} W.\n" + _warn(gpu)
    return 0, f"Power limit for GPU {gpu.bus_id} was set to {watts:.2f} W from {before:.2f} W.\n" + _warn(gpu)


def _lock(gpu: Gpu, value: str) -> tuple[int, str]:
    try:
        bounds = [int(item) for item in value.split(",")]
    except ValueError:
        return 2, f'"{value}" is not a valid clock or pair of clocks.\n'
    low, high = bounds[0], bounds[-1]
    if low > high:
        return 2, "The minimum clock is above the maximum clock.\n"
    top = gpu.part["clocks"]["sm_max_mhz"]
    if os.geteuid() == 0:
        machine.set_gpu(gpu, locked_sm_mhz=[min(low, top), min(high, top)])
    return 0, f'GPU clocks set to "(gpuClkMin {low}, gpuClkMax {high})" for GPU {gpu.bus_id}\n' + _warn(gpu)


def _unlock(gpu: Gpu) -> tuple[int, str]:
    if os.geteuid() == 0:
        machine.set_gpu(gpu, locked_sm_mhz=None)
    return 0, f"All GPU clocks were reset to default for GPU {gpu.bus_id}\n"


def _reset(gpu: Gpu) -> tuple[int, str]:
    if kmod.clients():
        return 255, f"The following GPUs could not be reset:\n  GPU {gpu.bus_id}: In use by another client\n\n"
    return 0, f"GPU {gpu.bus_id} was successfully reset.\n"


def _unsupported(gpu: Gpu) -> tuple[int, str]:
    return 3, f"Changing this setting is not supported for GPU {gpu.bus_id}.\nTreating as warning and moving on.\n"
