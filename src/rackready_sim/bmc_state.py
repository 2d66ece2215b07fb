"""Hardware state that a simulated node's BMC reports: supplies, fans, temperatures, leaks, logs, BIOS and parts.

Figures come from the platform profile if it has them. Readings and thresholds are in the range of a DGX H100's BMC, and
vary between nodes.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from rackready.design.facts import NodeFacts
from rackready_sim import host_state

State = dict[str, Any]

_MADE = datetime(2026, 1, 12, 8, 0, tzinfo=UTC)
"""Time when the node left the factory: its log starts here."""
_AIR_FANS, _PSU_COUNT, _PSU_W = 12, 6, 3300
_TEMPERATURES = (
    ("TEMP_AMBIENT", 22, 6, (37, 40, 42)),
    ("TEMP_MB_OUTLET", 41, 7, (72, 75, 77)),
    ("TEMP_CPU0", 44, 9, (95, 99, 103)),
    ("TEMP_CPU1", 44, 9, (95, 99, 103)),
)
"""Name, lowest healthy reading, spread, and upper thresholds (caution, critical, fatal), degrees C."""
_LIQUID = ("ColdPlate_0", "ColdPlate_1", "Manifold_0", "Manifold_1")


def build_bmc(facts: NodeFacts) -> State:
    """Return what the BMC of a healthy node reports; equal input gives equal output."""
    name, platform = facts.node.name, facts.platform
    count = platform.psus.count if platform.psus is not None else _PSU_COUNT
    host = host_state.parts_of(facts)
    modules = host.dimms or host.sockets  # soldered memory is one module of each processor
    mib = host.memory_gib * 1024 // modules
    liquid = platform.cooling is not None and platform.cooling.kind != "air"
    return {
        "schema": "subsystem",
        "psus": [
            _psu(name, index, int(platform.psus.max_w.value) if platform.psus and platform.psus.max_w else _PSU_W)
            for index in range(count)
        ],
        "psu_redundancy": "OK",
        "fan_modules": 2 if platform.product.startswith("SYS-821GE") else 0,
        "fans": [_fan(name, index) for index in range(_AIR_FANS)],
        "temperatures": [_temperature(name, *row) for row in _TEMPERATURES],
        "leaks": [{"id": word, "state": "OK", "type": "Moisture"} for word in _LIQUID] if liquid else [],
        "power_limit_w": None,
        "max_power_w": int(platform.max_power.value),
        "consumed_w": int(platform.max_power.value * 0.24) + _spread(name, 180),
        "bios": _bios(facts),
        "bios_pending": {},
        "log": {
            "size": 3640,
            "policy": "WrapsWhenFull",
            "entries": _first_entries(name),
            "errors": _first_errors(name),
        },
        "dimms": [
            {
                "id": f"DIMM{index}",
                "serial": _serial(f"{name}/dimm{index}"),
                "mib": mib,
                "present": True,
            }
            for index in range(modules)
        ],
        "drives": [
            {"id": f"NVMe{index}", "serial": _serial(f"{name}/nvme{index}"), "present": True}
            for index in range(host.drives)
        ],
        "processors": [_processor(facts, index) for index in range(host.sockets)],
        "health": {"system": "OK", "chassis": "OK"},
    }


def gpu_name(facts: NodeFacts, index: int) -> str:
    """Return the id of a GPU over Redfish.

    NVIDIA/libredfish c094c9e6, mockups nvidia_viking, nvidia_gb200, supermicro and dell.
    """
    if facts.platform.manufacturer == "NVIDIA":
        return f"GPU_{index}" if facts.gpu.form == "superchip" else f"GPU_SXM_{index + 1}"
    return f"GPU{index + 1}" if facts.platform.manufacturer == "Supermicro" else f"Video.Slot.{index + 1}-1"


def _processor(facts: NodeFacts, index: int) -> State:
    """Return a processor. A DGX reports no model (mockup nvidia_viking)."""
    host = host_state.parts_of(facts)
    model = {} if facts.platform.manufacturer == "NVIDIA" else {"Model": host_state.model_of(host)}
    return {"id": f"DevType1_CPU{index}", "facts": {"TotalCores": host.cores, **model}}


def entry(at: datetime, severity: str, sensor: str, message: str) -> State:
    """Return one entry of the event log."""
    return {"at": at.isoformat(timespec="seconds"), "severity": severity, "sensor": sensor, "message": message}


def _psu(node: str, index: int, watts: int) -> State:
    return {
        "id": f"PSU{index}",
        "serial": _serial(f"{node}/psu{index}"),
        "state": "Enabled",
        "health": "OK",
        "input": "Normal",
        "volts": 228 + _spread(f"{node}/psu{index}", 11),
        "capacity_w": watts,
    }


def _fan(node: str, index: int) -> State:
    return {
        "id": f"SPD_FAN_SYS{index + 1}_F",
        "rpm": 5300 + _spread(f"{node}/fan{index}", 700),
        "low_critical": 2436,
        "health": "OK",
    }


def _temperature(node: str, name: str, least: int, spread: int, thresholds: tuple[int, int, int]) -> State:
    context = "Exhaust" if "OUTLET" in name else "Intake" if "AMBIENT" in name else "CPU"
    reading = least + _spread(f"{node}/{name}", spread)
    return {
        "id": name,
        "context": context,
        "reading": reading,
        "thresholds": list(thresholds),
        "state": "Enabled",
        "health": "OK",
    }


def _bios(facts: NodeFacts) -> State:
    """Return BIOS attributes: those of a baseline, and some that no baseline names."""
    wanted = dict(facts.platform.baseline.bios_settings) if facts.platform.baseline is not None else {}
    return {
        "BaudRate0": "115200",
        "BootOption1": "Network",
        "AdminPassword": None,
        "TurboMode": "Enable",
        "NumaEn": "Enable",
        **wanted,
    }


def _first_entries(node: str) -> list[State]:
    shift = timedelta(seconds=_spread(node, 3600))
    return [
        entry(_MADE + shift, "OK", "Event Logging Disabled", "Log Area Reset/Cleared"),
        entry(_MADE + shift + timedelta(minutes=4), "OK", "Drive Slot/Bay", "Drive Presence: NVMe0"),
        entry(_MADE + shift + timedelta(minutes=9), "OK", "System ACPI Power State", "S0/G0: working"),
    ]


def _first_errors(node: str) -> list[State]:
    """Return the first entries of the board's log of hardware errors: link training and memory tests."""
    shift = timedelta(seconds=_spread(node, 3600))
    return [
        hardware_error(_MADE + shift + timedelta(minutes=5), "DRAM-CHANNELS", "Informational"),
        hardware_error(_MADE + shift + timedelta(minutes=6), "PCIe", "Corrected"),
    ]


def hardware_error(at: datetime, signature: str, severity: str) -> State:
    """Return one entry of the log of hardware errors.

    ``signature`` is the unit that reports it, ``severity`` that of a CPER.
    """
    return {"at": at.isoformat(timespec="seconds"), "signature": signature, "severity": severity}


def _serial(name: str) -> str:
    return f"{int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10**12:012d}"


def _spread(name: str, width: int) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) % width
