"""Findings of the gates that load the GPUs with DCGM: node/gpu/stress/burn and compute-integrity."""

from __future__ import annotations

from rackready.gates.gpu import clocks
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/gpu.md"

LOAD_TIME_UNKNOWN = ErrorKind(
    "burn-time-unknown",
    "length of the load not reported",
    meaning="The length of the load was not recorded, so a pass would prove nothing.",
    next_step="Give the time that the command took (`gate evaluate --seconds dcgmi=S`, or `seconds` in a manifest), "
    "or run the gate again.",
)
LOAD_TOO_SHORT = ErrorKind(
    "burn-too-short",
    "the load ended early",
    meaning="The load ended before its time, so the GPUs were not loaded for as long as asked.",
    next_step="Read DCGM's log on the node (nvvs.log), then run the gate again.",
)
WATCH_UNREADABLE = ErrorKind(
    "burn-watch-unreadable",
    "watch under load unreadable",
    meaning="The program that watches the GPUs under load left no complete report.",
    next_step="Run the gate again.",
)
NO_LOAD_SEEN = ErrorKind(
    "burn-no-load-seen",
    "GPUs not seen under load",
    meaning="No reading found every GPU busy, so clocks and power under load were not measured.",
    next_step="Run the gate again with a longer `power_s`.",
)
WATCH_NUMBERS = ErrorKind(
    "burn-watch-not-numbers",
    "watch under load unreadable",
    meaning="nvidia-smi printed something other than numbers while the load ran.",
    next_step="Run `nvidia-smi -q -x` by hand.",
)
SM_CLOCK_UNKNOWN = ErrorKind(
    "sm-clock-not-reported",
    "SM clock under load not reported",
    meaning="The driver does not report the SM clock under load, so it is unknown whether the GPU keeps its clock.",
    next_step="Update the driver.",
)
SM_CLOCK_LOW = FailKind(
    "sm-clock-low",
    "SM clock under load",
    meaning="The GPU runs below the clock that its model keeps under load: it computes slower than its siblings.",
    next_step=f"Look for locked clocks (`nvidia-smi -rgc`), a power cap and the clock event reasons: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
POWER_UNKNOWN = ErrorKind(
    "gpu-power-not-reported",
    "power under load not reported",
    meaning="The driver does not report draw and limit under load, so it is unknown whether the GPU gets its power.",
    next_step="Update the driver, then run the gate again.",
)
POWER_IMPLAUSIBLE = ErrorKind(
    "gpu-power-implausible",
    "power under load is implausible",
    meaning="The reported power is more than such a GPU can draw: the reading or the profile is wrong.",
    next_step="Check the node's GPU profile, and update the driver.",
)
POWER_LOW = FailKind(
    "gpu-power-low",
    "power drawn under load",
    meaning="The GPU draws far less power than a full load needs: something limits it, or the load did not reach it.",
    next_step="Check for reduced clocks, high temperatures and faulty power supplies (gate node/gpu/sanity/clocks), "
    f"and for other work on the node: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
GPU_GONE = FailKind(
    "gpu-gone-after-load",
    "GPU gone after the load",
    meaning="A GPU that was there before the load is no longer in nvidia-smi: it fell off the bus or hangs.",
    next_step=f"Read the kernel log: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
COUNTERS_UNREADABLE = ErrorKind(
    "burn-counters-unreadable",
    "counters unreadable",
    meaning="Counters before or after the load are not numbers, so errors under load cannot be counted.",
    next_step="Run `nvidia-smi -q -x` by hand.",
)
ECC_NOT_COUNTED = ErrorKind(
    "burn-ecc-not-reported",
    "ECC counters not reported",
    meaning="The GPU does not count ECC errors, so memory errors under load would not be seen.",
    next_step="Turn ECC on (gate node/gpu/sanity/ecc): without it memory errors are not counted.",
)
SLOWDOWNS_NOT_COUNTED = ErrorKind(
    "burn-slowdowns-not-reported",
    "clock slowdown counters not reported",
    meaning="The driver does not count how long the clocks were reduced, so a slowdown between two readings would not "
    "be seen.",
    next_step="Update the driver (580 counts them).",
)
COUNTERS_WENT_BACK = ErrorKind(
    "burn-counters-went-back",
    "counters went back under load",
    meaning="A counter is smaller after the load than before it: the driver was reloaded or the GPU was reset.",
    next_step="Read the kernel log (gate node/gpu/sanity/xid), then run the gate again.",
)
ECC_UNCORRECTED = FailKind(
    "burn-ecc-uncorrected",
    "uncorrected ECC errors under load",
    meaning="The GPU's memory lost data under load. Results of jobs on it cannot be trusted.",
    next_step=f"Reset the GPU, then run the field diagnostic: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
CLOCKS_HELD_UNDER_LOAD = FailKind(
    "burn-clocks-held-down",
    "clocks reduced under load: {what}",
    meaning="Heat or lack of power reduced the GPU's clocks under load: every job on it runs slower.",
    next_step="{step}",
    steps=(clocks.SUPPLY, clocks.COOLING),
    runbook=_RUNBOOK,
)
ECC_CORRECTED = FailKind(
    "burn-ecc-corrected",
    "corrected ECC errors under load",
    meaning="The GPU corrects memory errors so often that a part of its memory is probably wearing out.",
    next_step=f"Run the field diagnostic: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)

LENGTH = (LOAD_TIME_UNKNOWN, LOAD_TOO_SHORT)
"""Findings about the length of the load."""
FINDINGS = (
    *LENGTH,
    WATCH_UNREADABLE,
    NO_LOAD_SEEN,
    WATCH_NUMBERS,
    SM_CLOCK_UNKNOWN,
    SM_CLOCK_LOW,
    POWER_UNKNOWN,
    POWER_IMPLAUSIBLE,
    POWER_LOW,
    GPU_GONE,
    COUNTERS_UNREADABLE,
    ECC_NOT_COUNTED,
    SLOWDOWNS_NOT_COUNTED,
    COUNTERS_WENT_BACK,
    ECC_UNCORRECTED,
    CLOCKS_HELD_UNDER_LOAD,
    ECC_CORRECTED,
)
