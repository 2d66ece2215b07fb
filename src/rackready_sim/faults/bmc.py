"""Faults that a BMC reports: supplies, fans, air, leaks, power limits, logs, BIOS, firmware and lost parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rackready_sim.bmc_state import entry
from rackready_sim.faults.base import Fault, FaultError, Params, State, part


def _bmc(state: State) -> State:
    found: State | None = state.get("bmc")
    if found is None:
        raise FaultError(
            f"{state.get('node', 'node')} bmc",
            expected="a BMC that lists its parts",
            actual="none",
            next_step="Run `rackready sim up` again.",
        )
    return found


def _one(state: State, kind: str, index: int) -> State:
    """Return the n-th part of a kind. Raise FaultError if there is none."""
    rows = [{"index": number, "row": row} for number, row in enumerate(_bmc(state)[kind])]
    found: State = part({kind: rows, "node": state.get("node")}, kind, index)["row"]
    return found


def _now(seconds: int = 0) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _say(state: State, severity: str, sensor: str, message: str) -> None:
    _bmc(state)["log"]["entries"].append(entry(_now(), severity, sensor, message))


def _psu_failed(state: State, psu: int) -> None:
    _one(state, "psus", psu).update(health="Critical", state="UnavailableOffline")


def _psu_input(state: State, psu: int) -> None:
    _one(state, "psus", psu).update(input="LossOfInput", volts=0, state="UnavailableOffline", health="Critical")


def _psu_removed(state: State, psu: int) -> None:
    _one(state, "psus", psu)["state"] = "Removed"


def _redundancy(state: State) -> None:
    _bmc(state)["psu_redundancy"] = "Warning"


def _fan_failed(state: State, fan: int) -> None:
    _one(state, "fans", fan).update(rpm=0, health="Critical")


def _fan_slow(state: State, fan: int, rpm: int) -> None:
    _one(state, "fans", fan)["rpm"] = rpm


def _hot(state: State, name: str, reading: int) -> None:
    next(item for item in _bmc(state)["temperatures"] if item["id"] == name)["reading"] = reading


def _inlet(state: State, celsius: int) -> None:
    _hot(state, "TEMP_AMBIENT", celsius)


def _outlet(state: State, celsius: int) -> None:
    _hot(state, "TEMP_MB_OUTLET", celsius)


def _sensor_missing(state: State) -> None:
    next(item for item in _bmc(state)["temperatures"] if item["id"] == "TEMP_AMBIENT")["reading"] = None


def _leak(state: State) -> None:
    bmc = _bmc(state)
    bmc["leaks"] = bmc["leaks"] or [{"id": "Manifold_0", "state": "OK", "type": "Moisture"}]
    bmc["leaks"][0]["state"] = "Critical"


def _cap(state: State, watts: int) -> None:
    _bmc(state)["power_limit_w"] = watts


def _sel_memory(state: State) -> None:
    _say(state, "Critical", "Memory", "Uncorrectable ECC error, CPU0 channel C DIMM 0")


def _sel_pcie(state: State) -> None:
    _say(state, "Critical", "Critical Interrupt", "PCIe bus fatal error, slot 3")


def _sel_cpu(state: State) -> None:
    _say(state, "Critical", "Processor", "CPU1 IERR asserted")


def _log_full(state: State) -> None:
    log = _bmc(state)["log"]
    log.update(size=len(log["entries"]), policy="NeverOverWrites")


def _log_cleared(state: State) -> None:
    _bmc(state)["log"]["entries"] = [entry(_now(), "OK", "Event Logging Disabled", "Log Area Reset/Cleared")]


def _log_wrapped(state: State) -> None:
    log = _bmc(state)["log"]
    log.update(size=5, entries=[entry(_now(second), "OK", "System Event", f"Event {second}") for second in range(5)])


def _bios_changed(state: State, setting: str, value: str) -> None:
    bios = _bmc(state)["bios"]
    if setting not in bios:
        raise FaultError(
            f"{state.get('node')} bios",
            expected=f"one of {', '.join(sorted(bios))}",
            actual=setting,
            next_step="Name a setting that the BIOS has.",
        )
    bios[setting] = value


def _firmware(state: State, version: str) -> None:
    state["chassis"]["bmc"] = version


def _bios_version(state: State, version: str) -> None:
    state["chassis"]["bios"] = version


def _rollup(state: State) -> None:
    _one(state, "psus", 0)["health"] = "Warning"
    _bmc(state)["health"]["follows"] = False


def _part_lost(state: State, kind: str, index: int) -> None:
    """Remove the part from the next boot on."""
    if kind not in {"dimms", "drives"}:
        raise FaultError(
            f"{state.get('node')} part", expected="dimms or drives", actual=kind, next_step="Name one of them."
        )
    _one(state, kind, index)["missing_from_boot"] = state.get("boot_count", 0) + 1


def _gpus_late(state: State, seconds: float) -> None:
    state.setdefault("bmc_faults", {})["gpus_late"] = seconds


def _nic_slot(state: State, nic: int, pci: str) -> None:
    part(state, "nics", nic, "rail")["pci"] = pci


_SUPPLIES, _FANS, _AIR = "bmc/power/sanity/supplies", "bmc/cooling/sanity/fans", "bmc/cooling/sanity/temperatures"
_LOG, _CYCLES = "bmc/log/sanity/events", "bmc/power/stress/cycles"
_PSU: Params = {"psu": 2}

FAULTS = (
    Fault("psu-failed", "psu", "a power supply has failed", _psu_failed, _PSU, _SUPPLIES),
    Fault("psu-input-lost", "psu", "a power supply has no input", _psu_input, _PSU, _SUPPLIES),
    Fault("psu-missing", "psu", "a power supply was taken out", _psu_removed, _PSU, _SUPPLIES),
    Fault(
        "psu-redundancy-lost", "psu", "the BMC reports that the supplies are not redundant", _redundancy, {}, _SUPPLIES
    ),
    Fault("fan-failed", "fan", "a fan does not turn", _fan_failed, {"fan": 3}, _FANS),
    Fault("fan-slow", "fan", "a fan turns slower than its threshold", _fan_slow, {"fan": 3, "rpm": 1800}, _FANS),
    Fault("inlet-hot", "thermal", "the air at the inlet is too hot", _inlet, {"celsius": 39}, _AIR),
    Fault("outlet-hot", "thermal", "the air at the outlet is too hot", _outlet, {"celsius": 76}, _AIR),
    Fault("sensor-missing", "thermal", "the sensor of the inlet gives no reading", _sensor_missing, {}, _AIR),
    Fault("leak", "leak", "a leak detector sees liquid", _leak, {}, "bmc/cooling/sanity/leaks"),
    Fault(
        "bmc-power-cap-low",
        "power",
        "somebody left a low power limit in the BMC, W",
        _cap,
        {"watts": 5000},
        "bmc/power/sanity/limit",
    ),
    Fault("sel-memory", "log", "the event log has an uncorrectable memory error", _sel_memory, {}, _LOG),
    Fault("sel-pcie", "log", "the event log has a fatal PCIe error", _sel_pcie, {}, _LOG),
    Fault("sel-cpu-ierr", "log", "the event log has an internal error of a CPU", _sel_cpu, {}, _LOG),
    Fault("sel-full", "log", "the event log is full and accepts no more entries", _log_full, {}, _LOG),
    Fault("sel-cleared", "log", "somebody cleared the event log", _log_cleared, {}, _LOG),
    Fault("sel-wrapped", "log", "the event log overwrote old entries", _log_wrapped, {}, _LOG),
    Fault(
        "bios-changed",
        "bios",
        "a BIOS setting is not as wanted",
        _bios_changed,
        {"setting": "SriovSupport", "value": "Disabled"},
        "bmc/firmware/sanity/bios-settings",
    ),
    Fault(
        "bmc-firmware-other",
        "firmware",
        "the BMC has another firmware than its siblings",
        _firmware,
        {"version": "24.09.17"},
        "bmc/firmware/sanity/versions",
    ),
    Fault(
        "bios-version-other",
        "firmware",
        "the BIOS has another version than wanted",
        _bios_version,
        {"version": "1.1.3"},
        "bmc/firmware/sanity/versions",
    ),
    Fault(
        "health-rollup-lies",
        "firmware",
        "the BMC's health summary reports OK for a bad part",
        _rollup,
        {},
        "bmc/health/sanity/rollup",
    ),
    Fault(
        "bmc-gpus-late",
        "inventory",
        "the BMC lists GPUs only from so many seconds after power-on",
        _gpus_late,
        {"seconds": 20.0},
    ),
    Fault(
        "nic-wrong-slot",
        "inventory",
        "a compute NIC sits in another slot",
        _nic_slot,
        {"nic": 3, "pci": "0000:b1:00.0"},
    ),
    Fault(
        "part-missing-after-power-cycle",
        "pcie",
        "a DIMM or drive is missing after the next boot",
        _part_lost,
        {"kind": "dimms", "index": 7},
        _CYCLES,
    ),
)
