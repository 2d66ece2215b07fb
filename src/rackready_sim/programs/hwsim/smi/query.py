"""nvidia-smi --query-*: one line per GPU, comma separated."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from itertools import product

from .. import machine
from ..machine import Gpu
from . import mig

Value = Callable[[Gpu], object]
_YES = {True: "Active", False: "Not Active"}


def _watts(read: Callable[[Gpu], float]) -> Value:
    return lambda gpu: f"{read(gpu):.2f}"


def _ecc(period: str, kind: str, place: str) -> Value:
    def read(gpu: Gpu) -> object:
        sram = gpu.part["sram"][period]
        inside = sram["correctable"] if kind == "corrected" else sram["parity"] + sram["secded"]
        outside = gpu.part["ecc"][period][kind]
        return inside if place == "sram" else inside + outside if place == "total" else outside

    return read


def _event(bit: int) -> Value:
    return lambda gpu: _YES[bool(gpu.events & bit)]


def _rows(key: str) -> Value:
    def read(gpu: Gpu) -> object:
        value = gpu.part["remapped_rows"][key]
        return {True: "Yes", False: "No"}[value] if isinstance(value, bool) else value

    return read


_FIELDS: dict[str, tuple[str, Value]] = {
    "timestamp": ("", lambda _gpu: time.strftime("%Y/%m/%d %H:%M:%S.000")),
    "driver_version": ("", lambda _gpu: machine.driver_version()),
    "count": ("", lambda _gpu: len(machine.gpus())),
    "name": ("", lambda gpu: gpu.part["name"]),
    "serial": ("", lambda gpu: gpu.part["serial"]),
    "uuid": ("", lambda gpu: gpu.part["uuid"]),
    "index": ("", lambda gpu: gpu.index),
    "pci.bus_id": ("", lambda gpu: gpu.bus_id),
    "pci.bus": ("", lambda gpu: f"0x{gpu.part['pci'][5:7].upper()}"),
    "pci.device_id": ("", lambda gpu: gpu.part["device_id"]),
    "pci.sub_device_id": ("", lambda gpu: gpu.part["subsystem_id"]),
    "pcie.link.gen.current": ("", lambda gpu: gpu.part["pcie"]["gen"]),
    "pcie.link.gen.gpucurrent": ("", lambda gpu: gpu.part["pcie"]["gen"]),
    "pcie.link.gen.max": ("", lambda gpu: gpu.part["pcie"]["max_gen"]),
    "pcie.link.gen.gpumax": ("", lambda gpu: gpu.part["pcie"]["max_gen"]),
    "pcie.link.width.current": ("", lambda gpu: gpu.part["pcie"]["width"]),
    "pcie.link.width.max": ("", lambda gpu: gpu.part["pcie"]["max_width"]),
    "vbios_version": ("", lambda gpu: gpu.part["vbios"]),
    "inforom.image": ("", lambda gpu: gpu.part["inforom"]["image"]),
    "persistence_mode": ("", lambda gpu: "Enabled" if gpu.persistence else "Disabled"),
    "compute_mode": ("", lambda gpu: gpu.compute_mode),
    "compute_cap": (
        "",
        lambda gpu: {"hopper": "9.0", "blackwell": "10.0", "ampere": "8.0", "ada": "8.9"}.get(
            gpu.part["architecture"], "[N/A]"
        ),
    ),
    "pstate": ("", lambda _gpu: "P0"),
    "mig.mode.current": ("", mig.mode),
    "mig.mode.pending": ("", mig.mode),
    "ecc.mode.current": ("", lambda gpu: gpu.part["ecc_mode"]),
    "ecc.mode.pending": ("", lambda gpu: gpu.part["ecc_mode"]),
    "memory.total": ("MiB", lambda gpu: gpu.part["memory_mib"]),
    "memory.reserved": ("MiB", lambda _gpu: 636),
    "memory.used": ("MiB", lambda _gpu: 0),
    "memory.free": ("MiB", lambda gpu: gpu.part["memory_mib"] - 636),
    "utilization.gpu": ("%", lambda _gpu: 0),
    "utilization.memory": ("%", lambda _gpu: 0),
    "temperature.gpu": ("", lambda gpu: gpu.temperature),
    "temperature.memory": ("", lambda gpu: gpu.temperature + 8),
    "power.management": ("", lambda _gpu: "Enabled"),
    "power.draw": ("W", _watts(lambda gpu: gpu.power_draw + random.uniform(-0.4, 0.4))),
    "power.draw.instant": ("W", _watts(lambda gpu: gpu.power_draw + random.uniform(-0.4, 0.4))),
    "power.draw.average": ("W", _watts(lambda gpu: gpu.power_draw)),
    "power.limit": ("W", _watts(lambda gpu: gpu.power_limit)),
    "enforced.power.limit": ("W", _watts(lambda gpu: gpu.power_limit)),
    "power.default_limit": ("W", _watts(lambda gpu: gpu.part["power"]["default_w"])),
    "power.min_limit": ("W", _watts(lambda gpu: gpu.part["power"]["min_w"])),
    "power.max_limit": ("W", _watts(lambda gpu: gpu.part["power"]["max_w"])),
    "clocks.current.graphics": ("MHz", lambda gpu: gpu.sm_clock),
    "clocks.current.sm": ("MHz", lambda gpu: gpu.sm_clock),
    "clocks.current.memory": ("MHz", lambda gpu: gpu.part["clocks"]["memory_mhz"]),
    "clocks.current.video": ("MHz", lambda _gpu: 765),
    "clocks.max.graphics": ("MHz", lambda gpu: gpu.part["clocks"]["sm_max_mhz"]),
    "clocks.max.sm": ("MHz", lambda gpu: gpu.part["clocks"]["sm_max_mhz"]),
    "clocks.max.memory": ("MHz", lambda gpu: gpu.part["clocks"]["memory_mhz"]),
    "clocks.applications.graphics": ("MHz", lambda gpu: gpu.part["clocks"]["sm_max_mhz"]),
    "clocks.applications.memory": ("MHz", lambda gpu: gpu.part["clocks"]["memory_mhz"]),
    "clocks_event_reasons.active": ("", lambda gpu: f"0x{gpu.events:016x}"),
    "clocks_event_reasons.gpu_idle": ("", _event(0x1)),
    "clocks_event_reasons.sw_power_cap": ("", _event(0x4)),
    "clocks_event_reasons.hw_slowdown": ("", _event(0x8)),
    "clocks_event_reasons.sw_thermal_slowdown": ("", _event(0x20)),
    "clocks_event_reasons.hw_thermal_slowdown": ("", _event(0x40)),
    "clocks_event_reasons.hw_power_brake_slowdown": ("", _event(0x80)),
    "fabric.state": ("", machine.fabric_state),
    "fabric.status": ("", lambda gpu: {"Completed": "Success"}.get(machine.fabric_state(gpu), "N/A")),
    "gpu_recovery_action": ("", lambda gpu: gpu.part["recovery_action"]),
    **{
        f"ecc.errors.{kind}.{period}.{place}": ("", _ecc(period, kind, place))
        for kind, period, place in product(
            ("corrected", "uncorrected"), ("volatile", "aggregate"), ("sram", "dram", "total", "device_memory")
        )
    },
}
_ALIASES = {
    "gpu_name": "name", "gpu_serial": "serial", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory", "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory", "clocks_throttle_reasons.active": "clocks_event_reasons.active",
    "pci.domain": "pci.bus",
}  # fmt: skip
_REMAPPED: dict[str, tuple[str, Value]] = {
    "gpu_name": _FIELDS["name"],
    "gpu_bus_id": _FIELDS["pci.bus_id"],
    "gpu_serial": _FIELDS["serial"],
    "gpu_uuid": _FIELDS["uuid"],
    "remapped_rows.correctable": ("", _rows("correctable")),
    "remapped_rows.uncorrectable": ("", _rows("uncorrectable")),
    "remapped_rows.pending": ("", _rows("pending")),
    "remapped_rows.failure": ("", _rows("failure")),
}
_FIELDS |= {name: value for name, value in _REMAPPED.items() if name.startswith("remapped_rows.")}
"""Driver 580 answers --query-gpu for these, too (a real H200)."""
_APPS = {
    **{name: name for name in ("pid", "process_name", "gpu_uuid", "gpu_bus_id", "gpu_name", "gpu_serial", "timestamp")},
    "name": "process_name",
    "used_gpu_memory": "used_gpu_memory [MiB]",
    "used_memory": "used_gpu_memory [MiB]",
}
"""Field of --query-compute-apps -> its heading, as driver 580.159.04 prints it."""


def main(kind: str, wanted: str, layout: str, gpus: list[Gpu]) -> int:
    """Print the requested fields; return 2 for a field or a format that does not exist."""
    formats = {item.strip() for item in layout.split(",")}
    if "csv" not in formats:
        sys.stdout.write("\"--format=\" switch is missing or has no csv. Please run 'nvidia-smi -h'.\n")
        return 2
    names = [item.strip() for item in wanted.split(",")]
    if kind == "apps":
        return (
            _header([_APPS[name] for name in names], formats)
            if all(name in _APPS for name in names)
            else _unknown(next(name for name in names if name not in _APPS))
        )
    fields = _FIELDS if kind == "gpu" else _REMAPPED
    resolved = [_ALIASES.get(name, name) if kind == "gpu" else name for name in names]
    for name, known in zip(names, resolved, strict=True):
        if known not in fields:
            return _unknown(name)
    units = [fields[name][0] for name in resolved]
    _header(
        [
            f"{name} [{unit}]" if unit and "nounits" not in formats else name
            for name, unit in zip(names, units, strict=True)
        ],
        formats,
    )
    for gpu in gpus:
        cells = []
        for name, unit in zip(resolved, units, strict=True):
            cells.append(f"{fields[name][1](gpu)}{' ' + unit if unit and 'nounits' not in formats else ''}")
        sys.stdout.write(", ".join(cells) + "\n")
    return 0


def _header(names: list[str], formats: set[str]) -> int:
    if "noheader" not in formats:
        sys.stdout.write(", ".join(names) + "\n")
    return 0


def _unknown(name: str) -> int:
    sys.stdout.write(f'Field "{name}" is not a valid field to query.\n\n')
    return 2
