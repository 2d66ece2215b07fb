"""Driver side of the NVML library: a dump of all readable values, and the few settings."""

from __future__ import annotations

import os
import sys

from . import machine
from .machine import Gpu

_OK, _INVALID, _NO_PERMISSION, _NOT_LOADED, _MISMATCH = 0, 2, 4, 9, 18
_FABRIC = {"N/A": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
_RECOVERY = {"None": 0, "Reset": 1, "Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
_ARCHITECTURE = {"ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
_COMPUTE_MODE = {"Default": 0, "Prohibited": 2, "Exclusive_Process": 3}
"""nvmlComputeMode_t."""
_CAPABILITY = {"ampere": 80, "ada": 89, "hopper": 90, "blackwell": 100}
_CUDA = {535: 12020, 550: 12040, 570: 12080, 580: 13000, 590: 13010, 595: 13020}
_MIB = 1 << 20


def main(argv: list[str]) -> int:
    """Run ``dump VERSION`` or ``set INDEX KEY A B``.

    The first prints values, the second changes one and exits with NVML's code.
    """
    if argv[:1] == ["dump"]:
        return dump(argv[1])
    if argv[:1] == ["set"]:
        return assign(int(argv[1]), argv[2], int(argv[3]), int(argv[4]))
    return _INVALID


def cuda_version(driver: str) -> int:
    """Return the CUDA version that a driver supports, as NVML counts (13000 for 13.0)."""
    branch = int(driver.split(".", maxsplit=1)[0])
    return _CUDA[max((known for known in _CUDA if known <= branch), default=535)]


def dump(library: str) -> int:
    """Print every value as ``index key value``; index -1 is the system."""
    try:
        driver = machine.open_driver()
    except machine.DriverNotLoadedError:
        return _rows([(-1, "rc", _NOT_LOADED)])
    except (machine.VersionMismatchError, machine.LibraryMissingError):
        driver = machine.driver_version() or ""
    if driver != library:
        return _rows([(-1, "rc", _MISMATCH)])
    gpus = machine.gpus()
    cuda = cuda_version(driver)
    rows: list[tuple[int, str, object]] = [
        (-1, "rc", _OK),
        (-1, "driver", driver),
        (-1, "cuda", cuda),
        (-1, "cuda_major", cuda // 1000),
        (-1, "count", len(gpus)),
    ]
    for gpu in gpus:
        rows += [(gpu.index, key, value) for key, value in values(gpu).items()]
    return _rows(rows)


def values(gpu: Gpu) -> dict[str, object]:
    """Return all values of one GPU under the names that the library uses."""
    if gpu.lost:
        return {"lost": 1, "bus_id": gpu.bus_id}
    return {"lost": 0, **_identity(gpu), **_power(gpu), **_health(gpu), **_links(gpu)}


def _identity(gpu: Gpu) -> dict[str, object]:
    part = gpu.part
    total = part["memory_mib"] * _MIB
    return {
        "bus_id": gpu.bus_id,
        "name": part["name"],
        "uuid": part["uuid"],
        "serial": part["serial"],
        "vbios": part["vbios"],
        "board_part": part["board_part"],
        "inforom": "G520.0200.00.05",
        "minor": gpu.index,
        "module": gpu.slot + 1,
        "numa": part.get("numa", 0),
        "architecture": _ARCHITECTURE.get(part["architecture"], 0),
        "compute_capability": _CAPABILITY.get(part["architecture"], 0),
        "brand": 14,
        "device_id": part["device_id"],
        "subsystem_id": part["subsystem_id"],
        "memory_bytes": total,
        "memory_used_bytes": 0,
        "memory_reserved_bytes": 636 * _MIB,
        "compute_mode": _COMPUTE_MODE[gpu.compute_mode],
        "pstate": 0,
    }


def _power(gpu: Gpu) -> dict[str, object]:
    power, clocks = gpu.part["power"], gpu.part["clocks"]
    rows: dict[str, object] = {
        "power_limit_mw": int(gpu.power_limit * 1000),
        "power_default_mw": power["default_w"] * 1000,
        "power_min_mw": power["min_w"] * 1000,
        "power_max_mw": power["max_w"] * 1000,
        "power_usage_mw": int(gpu.power_draw * 1000),
        "persistence": int(gpu.persistence),
        "temperature": gpu.part["temperature_c"],
        "clock_events": gpu.events,
    }
    for kind in ("graphics", "sm"):
        rows[f"clock_{kind}_mhz"], rows[f"clock_max_{kind}_mhz"] = gpu.sm_clock, clocks["sm_max_mhz"]
    rows.update(
        clock_mem_mhz=clocks["memory_mhz"],
        clock_max_mem_mhz=clocks["memory_mhz"],
        clock_video_mhz=765,
        clock_max_video_mhz=1830,
    )
    return rows


def _health(gpu: Gpu) -> dict[str, object]:
    part = gpu.part
    rows: dict[str, object] = {
        "ecc_mode": 1,
        "recovery_action": _RECOVERY.get(part["recovery_action"], 0),
        "fabric_state": _FABRIC[machine.fabric_state(gpu)],
    }
    for period in ("volatile", "aggregate"):
        for kind in ("corrected", "uncorrected"):
            rows[f"ecc_{period}_{kind}"] = part["ecc"][period][kind]
    for key in ("correctable", "uncorrectable", "pending", "failure"):
        rows[f"remap_{key}"] = int(part["remapped_rows"][key])
    pcie = part["pcie"]
    return {
        **rows,
        "pcie_gen": pcie["gen"],
        "pcie_width": pcie["width"],
        "pcie_max_gen": pcie["max_gen"],
        "pcie_max_width": pcie["max_width"],
        "pcie_replay": pcie["replay"],
    }


def _links(gpu: Gpu) -> dict[str, object]:
    rows: dict[str, object] = {"link_count": len(gpu.part["nvlink"]["links"])}
    for link in gpu.part["nvlink"]["links"]:
        active = link["state"] == "active"
        name = f"link{link['id']}"
        rows.update(
            {
                f"{name}_active": int(active),
                f"{name}_speed": link["speed_mb_s"] if active else 0,
                f"{name}_version": gpu.part["nvlink"]["version"],
            }
        )
        rows.update({f"{name}_replay": link["replay"], f"{name}_crc": link["crc"]})
    return rows


def assign(index: int, key: str, first: int, second: int) -> int:
    """Change one setting of a GPU; return NVML's code."""
    if os.geteuid() != 0:
        return _NO_PERMISSION
    gpu = next((item for item in machine.gpus() if item.index == index), None)
    if gpu is None:
        return _INVALID
    if key == "persistence":
        machine.set_persistence(gpu, on=bool(first))
    elif key == "power_limit_mw":
        if not gpu.part["power"]["min_w"] * 1000 <= first <= gpu.part["power"]["max_w"] * 1000:
            return _INVALID
        machine.set_gpu(gpu, power_limit_w=first / 1000)
    elif key == "locked_clocks":
        machine.set_gpu(gpu, locked_sm_mhz=[first, second])
    elif key == "reset_clocks":
        machine.set_gpu(gpu, locked_sm_mhz=None)
    else:
        return _INVALID
    return _OK


def _rows(rows: list[tuple[int, str, object]]) -> int:
    sys.stdout.write("".join(f"{index} {key} {value}\n" for index, key, value in rows))
    return 0
