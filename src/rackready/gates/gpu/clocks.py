"""Reduced clocks and their reasons, and the temperatures of GPUs and their memory."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiGpu
from rackready.gates.gpu import smi
from rackready.gates.gpu.smi import RUNBOOK, SmiGate, number
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op

_EVENTS = "clocks_event_reasons/clocks_event_reason_"
_OLD_EVENTS = "clocks_throttle_reasons/clocks_throttle_reason_"
"""Drivers before 535.54.03 call these throttle reasons."""
COOLING = f"Check fans or coolant flow, inlet temperature and the heat sink: {RUNBOOK}."
SUPPLY = f"Check the power supplies and the rack's power cap (BMC event log); the board asserts the brake: {RUNBOOK}."
_HOT_IDLE = 70.0
_HOT_IDLE_SOURCE = "oracle-quickstart/oci-hpc alert 'hot idle': above 70 C with less than 10 % utilisation"
_BUSY = 10.0


HELD_BY_HARDWARE_HEAT = FailKind(
    "clocks-held-hw-thermal",
    "clocks reduced: hardware thermal slowdown",
    meaning="The GPU is so hot that its hardware slows it down.",
    next_step=COOLING,
    runbook="docs/runbooks/gpu.md",
)
HELD_BY_POWER_BRAKE = FailKind(
    "clocks-held-power-brake",
    "clocks reduced: power brake",
    meaning="The server board makes the GPU slow down because power is short.",
    next_step=SUPPLY,
    runbook="docs/runbooks/gpu.md",
)
HELD_BY_DRIVER_HEAT = FailKind(
    "clocks-held-sw-thermal",
    "clocks reduced: software thermal slowdown",
    meaning="The GPU or its memory is so hot that the driver slows it down.",
    next_step=COOLING,
    runbook="docs/runbooks/gpu.md",
)
HELD_BY_HARDWARE = FailKind(
    "clocks-held-hw",
    "clocks reduced: hardware slowdown",
    meaning="The GPU's hardware slows it down and does not report whether heat or power is the reason.",
    next_step=f"Check temperature, power supplies and the board's power cables: {RUNBOOK}.",
    runbook="docs/runbooks/gpu.md",
)
_REASONS = {
    "hw_thermal_slowdown": HELD_BY_HARDWARE_HEAT,
    "hw_power_brake_slowdown": HELD_BY_POWER_BRAKE,
    "sw_thermal_slowdown": HELD_BY_DRIVER_HEAT,
    "hw_slowdown": HELD_BY_HARDWARE,
}
"""Reasons that name a fault.

gpu_idle, sw_power_cap, sync_boost, applications_clocks_setting and display_clocks_setting are normal operation.
"""
REASON_UNKNOWN = ErrorKind(
    "clock-reason-not-reported",
    "clock event reason {key} not reported",
    meaning="The driver does not report whether this reason reduces the clocks.",
    next_step="Update the driver.",
)
TEMPERATURE_MARGIN = FailKind(
    "gpu-near-slowdown-margin",
    "temperature at the GPU's slowdown threshold",
    meaning="The GPU is so hot that it is about to slow itself down.",
    next_step=COOLING,
    runbook="docs/runbooks/gpu.md",
)
TEMPERATURE_HIGH = FailKind(
    "gpu-at-slowdown-threshold",
    "temperature at the GPU's slowdown threshold",
    meaning="The GPU is as hot as the threshold at which it slows itself down.",
    next_step=COOLING,
    runbook="docs/runbooks/gpu.md",
)
THRESHOLD_UNKNOWN = ErrorKind(
    "gpu-slowdown-threshold-not-reported",
    "slowdown threshold not reported",
    meaning="The driver does not report at which temperature the GPU slows itself down, so its temperature cannot be "
    "judged.",
    next_step="Update the driver.",
)
MEMORY_TEMPERATURE_UNKNOWN = ErrorKind(
    "gpu-memory-temperature-not-reported",
    "memory temperature not reported",
    meaning="The driver does not report the memory temperature, though this model has a sensor.",
    next_step="Update the driver.",
)
MEMORY_HOT = FailKind(
    "gpu-memory-hot",
    "memory above its operating temperature",
    meaning="The GPU's memory is hotter than it may be: it slows down and ages faster.",
    next_step=COOLING,
    runbook="docs/runbooks/gpu.md",
)
HOT_IDLE = FailKind(
    "gpu-hot-idle",
    "hot while idle",
    meaning="The GPU is hot although nothing runs on it: its cooling does not work.",
    next_step=COOLING,
    runbook="docs/runbooks/gpu.md",
)

UNDER_LOAD = (
    *_REASONS.values(),
    REASON_UNKNOWN,
    TEMPERATURE_MARGIN,
    TEMPERATURE_HIGH,
    THRESHOLD_UNKNOWN,
    MEMORY_TEMPERATURE_UNKNOWN,
    MEMORY_HOT,
)
"""Findings about clocks and temperatures of a loaded GPU."""
FINDINGS = (*UNDER_LOAD, HOT_IDLE)


class Clocks(SmiGate):
    """No GPU slows down for heat or power, its memory is not too hot, and none is hot while it is idle."""

    id = "node/gpu/sanity/clocks"
    findings = (
        *smi.FINDINGS,
        smi.NUMBER_NOT_REPORTED,
        *FINDINGS,
    )
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        """Judge the reasons that are active now, then the temperatures."""
        reasons(judge, where, gpu)
        temperature(judge, where, gpu)
        memory(judge, facts, where, gpu)
        _idle(judge, where, gpu)


def reasons(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """Fail for every active reason that names a fault; a reason that is not reported is an error.

    The general hardware slowdown is not repeated beside a specific one.
    """
    named = False
    for key, kind in _REASONS.items():
        judge.judged += 1
        value = gpu.text(_EVENTS + key) or gpu.text(_OLD_EVENTS + key)
        if value == "Active":
            if key != "hw_slowdown" or not named:
                judge.fail(where, kind, "Not Active", value)
            named = True
        elif value != "Not Active":
            judge.error(where, REASON_UNKNOWN, "Active or Not Active", value or "nothing", key=key)


def temperature(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """Compare the temperature with the GPU's own thresholds: as a margin (T.Limit, Hopper and later) or in degrees."""
    value = number(judge, where, gpu, "temperature/gpu_temp", "temperature")
    if value is None:
        return
    judge.metric("temperature", where, value, "C")
    margin, least = gpu.number("temperature/gpu_temp_tlimit"), gpu.number("temperature/gpu_temp_slow_tlimit_threshold")
    limit = gpu.number("temperature/gpu_temp_slow_threshold")
    judge.judged += 1
    if margin is not None and least is not None:
        judge.metric("temperature_margin", where, margin - least, "C")
        if margin <= least:
            judge.fail(
                where, TEMPERATURE_MARGIN, f"T.Limit margin above {least:.0f} C", f"{margin:.0f} C at {value:.0f} C"
            )
    elif limit is not None:
        if value >= limit:
            judge.fail(where, TEMPERATURE_HIGH, f"below {limit:.0f} C", f"{value:.0f} C")
    else:
        judge.error(where, THRESHOLD_UNKNOWN, "a threshold of the GPU", "nothing")


def memory(judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
    """Compare the memory temperature with the GPU's own threshold, in degrees, else with its model's published one.

    Hopper and later report no such threshold. If none is published, the driver judges: memory above it is a software
    thermal slowdown (NVML, nvmlClocksEventReasonSwThermalSlowdown), which `reasons` fails. Cards without a sensor have
    nothing to judge.
    """
    value, own, known = (
        gpu.number("temperature/memory_temp"),
        gpu.number("temperature/gpu_temp_max_mem_threshold"),
        facts.gpu.memory_temp_max,
    )
    if value is None and known is not None:
        judge.error(where, MEMORY_TEMPERATURE_UNKNOWN, "degrees Celsius", "nothing")
    if value is None:
        return
    judge.metric("memory_temperature", where, value, "C")
    limit, source = (
        (own, "the GPU's own threshold")
        if own is not None
        else (known.value, known.source)
        if known is not None
        else (None, "")
    )
    if limit is None:
        return
    judge.judged += 1
    key = ("memory_temperature", limit, source)
    judge.criterion_once(
        key,
        lambda: Criterion(metric="memory_temperature", op=Op.LE, bound=limit, unit="C", label="ceiling", source=source),
    )
    if value > limit:
        judge.fail(where, MEMORY_HOT, f"at most {limit:.0f} C ({source})", f"{value:.0f} C")


def _idle(judge: Judge, where: str, gpu: SmiGpu) -> None:
    value, busy = gpu.number("temperature/gpu_temp"), gpu.number("utilization/gpu_util")
    if value is None or (busy is not None and busy >= _BUSY):
        return
    criterion = Criterion(
        metric="temperature", op=Op.LE, bound=_HOT_IDLE, unit="C", label="ceiling", source=_HOT_IDLE_SOURCE
    )
    if criterion not in judge.criteria:
        judge.criterion(criterion)
    if value > _HOT_IDLE:
        judge.fail(where, HOT_IDLE, f"at most {_HOT_IDLE:.0f} C", f"{value:.0f} C")
