"""GPU settings as the site wants them: persistence, display, MIG, compute mode, power limit, application clocks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats.smi_xml import SmiGpu
from rackready.gates.gpu import smi
from rackready.gates.gpu.smi import SmiGate, number
from rackready.gates.judging.finding_kinds import FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op

_INSTALL = "Run install again: it sets this."
_MPS_MODE: Literal["Exclusive_Process"] = "Exclusive_Process"
"""With MPS, NVIDIA recommends it (Multi-Process Service, "When to Use MPS", GPU compute modes)."""
_TOLERANCE_W = 0.5
"""nvidia-smi prints watts with two digits; a limit is set in whole watts."""


PERSISTENCE = FailKind(
    "persistence-mode",
    "persistence mode",
    meaning="Persistence mode is not as the site wants. Without it the driver unloads when idle, and the first job "
    "after that starts late.",
    next_step=f"Start nvidia-persistenced. {_INSTALL}",
)
DISPLAY = FailKind(
    "display-active",
    "display active",
    meaning="A display runs on the GPU: it takes memory and time that jobs should have, and their figures vary.",
    next_step="Stop the graphical session and boot without one (`systemctl set-default multi-user.target`), then run "
    "the gate again.",
)
MIG = FailKind(
    "mig-mode",
    "MIG mode",
    meaning="MIG is not as the site wants: jobs see other GPU slices than they expect.",
    next_step="Set it (`nvidia-smi -mig 0` or 1), then reset the GPU.",
)
MIG_PENDING = FailKind(
    "mig-mode-pending",
    "MIG mode after the next reset",
    meaning="At the next reset MIG changes to a mode that the site does not want.",
    next_step="Set it (`nvidia-smi -mig 0` or 1).",
)
COMPUTE_MODE = FailKind(
    "compute-mode",
    "compute mode",
    meaning="The compute mode is not as the site wants: it decides how many processes may share a GPU.",
    next_step="Set it (`nvidia-smi -c {mode}`).",
)
POWER_LIMIT = FailKind(
    "gpu-power-limit",
    "power limit",
    meaning="The GPU's power limit is not the wanted one. With a lower limit it computes slower.",
    next_step="Set it (`nvidia-smi -pl {wanted:.0f}`). If the site lowered the limit on purpose, declare it under the "
    "gate's input `power_limit_w`.",
)
APPLICATION_CLOCK = FailKind(
    "application-clock-lowered",
    "application clock of {name} lowered",
    meaning="The GPU's application clock was lowered: it computes slower.",
    next_step="Reset the application clocks (`nvidia-smi -rac`). They are deprecated: lock the clocks instead if the "
    "site wants lower ones (`nvidia-smi -lgc`).",
)

FINDINGS = (
    PERSISTENCE,
    DISPLAY,
    MIG,
    MIG_PENDING,
    COMPUTE_MODE,
    POWER_LIMIT,
    APPLICATION_CLOCK,
)


class Settings(SmiGate):
    """Persistence, MIG, compute mode and power limit of every GPU are as wanted; no display is on, no clock lowered."""

    id = "node/gpu/sanity/settings"
    findings = (
        *smi.FINDINGS,
        smi.NUMBER_NOT_REPORTED,
        *FINDINGS,
    )
    looks = True

    class Inputs(base.Inputs):
        """Wanted settings."""

        persistence: bool | None = Field(
            default=None,
            description="persistence mode is on: the driver stays loaded without a client; null: as the site declares "
            "it (software.persistence)",
        )
        mig: bool = Field(default=False, description="MIG mode is on")
        compute_mode: Literal["Default", "Exclusive_Process", "Prohibited"] = Field(
            "Default", description="who may use a GPU"
        )
        mps: bool = Field(default=False, description="role mps runs CUDA MPS on nodes: Exclusive_Process is right, too")
        power_limit_w: float | None = Field(
            None,
            gt=0,
            le=10_000,
            description="wanted power limit of one GPU, W, at most 10^4 (judgement); "
            "null: the limit as shipped, from the GPU profile",
        )

    inputs: Inputs

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        """Compare each setting with the wanted one."""
        words = {True: "Enabled", False: "Disabled"}
        persistence = facts.persistence if self.inputs.persistence is None else self.inputs.persistence
        judge.equal(where, PERSISTENCE, words[persistence], gpu.text("persistence_mode"))
        # Active means that memory is allocated for a screen. display_mode is deprecated (driver 580) and "Enabled" on
        # healthy H100s, display_attached is "Yes" on an H200 without a screen: neither tells (nvidia-smi(1), captures).
        judge.equal(where, DISPLAY, "Disabled", gpu.text("display_active"))
        if facts.gpu.mig is not None:
            judge.equal(where, MIG, words[self.inputs.mig], gpu.text("mig_mode/current_mig"))
            judge.equal(where, MIG_PENDING, words[self.inputs.mig], gpu.text("mig_mode/pending_mig"))
        mode, wanted = gpu.text("compute_mode"), self.inputs.compute_mode
        if self.inputs.mps and mode == _MPS_MODE:  # not while gates measure: MPS stands still then
            wanted = _MPS_MODE
        judge.equal(where, COMPUTE_MODE, wanted, mode, mode=wanted.upper())
        self._power(judge, facts, where, gpu)
        _application_clocks(judge, where, gpu)

    def _power(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        actual = number(judge, where, gpu, "gpu_power_readings/current_power_limit", "power limit")
        if actual is None:
            return
        wanted, source = facts.gpu.power.limit.value, facts.gpu.power.limit.source
        if self.inputs.power_limit_w is not None:
            wanted, source = self.inputs.power_limit_w, "gate input power_limit_w"
        judge.metric("power_limit", where, actual, "W")
        criterion = Criterion(metric="power_limit", op=Op.EQ, bound=wanted, unit="W", label="identity", source=source)
        if criterion not in judge.criteria:
            judge.criterion(criterion)
        if abs(actual - wanted) > _TOLERANCE_W:
            judge.fail(where, POWER_LIMIT, f"{wanted:.0f} W ({source})", f"{actual:.0f} W", wanted=wanted)


def _application_clocks(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """Compare application clocks with the driver's defaults.

    Many models have none and newer drivers report none: then they lower nothing. Locked clocks (`nvidia-smi -lgc`) are
    in no report; the gates gemm and burn find a GPU that they slow down.
    """
    for name, kind in (("graphics", "graphics_clock"), ("memory", "mem_clock")):
        actual, least = (
            gpu.number(f"{group}/{kind}") for group in ("applications_clocks", "default_applications_clocks")
        )
        if actual is None or least is None:
            continue
        judge.judged += 1
        if actual < least:
            judge.fail(
                where,
                APPLICATION_CLOCK,
                f"at least {least:.0f} MHz (the driver's default)",
                f"{actual:.0f} MHz",
                name=name,
            )
