"""The NVLink fabric as each GPU sees it: state, status and health."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import parts, smi
from rackready.gates.gpu.smi import SmiGate
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.nodecheck.rules import FABRIC_PARTS, HEALTHY_FABRIC, NOT_SUPPORTED
from rackready.model.place import Place

_RUNBOOK = "docs/runbooks/nvlink-down.md"
_LOCAL = (
    "Check `systemctl status nvidia-fabricmanager` and /var/log/fabricmanager.log; "
    f"the fabric manager must be the driver's version: {_RUNBOOK}."
)
_REMOTE = f"Check the NVLink switch trays (NMX-C configured, all trays up) before the compute trays: {_RUNBOOK}."
HEALTH_NOT_REPORTED = ErrorKind(
    "fabric-health-not-reported",
    "fabric health: {what} not reported",
    meaning="The report lacks a fabric health field for this GPU that it has for others, so it is damaged.",
    next_step="A driver reports the same fields for every GPU: use the report as nvidia-smi printed it, or run the "
    "gate again.",
)
FABRIC_STATE = FailKind(
    "fabric-state",
    "fabric state",
    meaning="The GPU is not registered with the NVLink fabric: CUDA does not start on it.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
    runbook=_RUNBOOK,
)
FABRIC_STATUS = FailKind(
    "fabric-status",
    "fabric status",
    meaning="The GPU's registration with the NVLink fabric ended with an error.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
    runbook=_RUNBOOK,
)
FABRIC_HEALTH = FailKind(
    "fabric-health-bad",
    "fabric health",
    meaning="The driver's summary of the GPU's NVLink fabric is not healthy.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
    runbook=_RUNBOOK,
)
FABRIC_HEALTH_PART = FailKind(
    "fabric-health-part-bad",
    "fabric health: {what}",
    meaning="One aspect of the GPU's NVLink fabric is not healthy, for example its bandwidth or a route.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
    runbook=_RUNBOOK,
)

STATE = (FABRIC_STATE, FABRIC_STATUS, FABRIC_HEALTH, FABRIC_HEALTH_PART)
"""Findings of ``state``."""


class Fabric(SmiGate):
    """The NVSwitch fabric is set up for every GPU, and healthy if it reports its health."""

    id = "node/gpu/sanity/fabric"
    findings = (
        *smi.FINDINGS,
        *STATE,
        HEALTH_NOT_REPORTED,
    )
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        """Judge state, status and each field of the health mask that the GPU reports."""
        if facts.platform.nvswitch and not _silent(facts, gpu):
            state(judge, facts, where, gpu)

    def together(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        """Judge the GPUs that report no state, or note why there is nothing to judge."""
        silent = [gpu for gpu in log.gpus if _silent(facts, gpu)]
        if not facts.platform.nvswitch:
            judge.nothing(f"platform {facts.platform.id} has no NVSwitches: there is no fabric to judge")
        elif silent and len(silent) == len(log.gpus):
            judge.nothing(
                f"GPU {facts.gpu.id} reports no fabric state: node/gpu/sanity/nvlink judges its links, "
                "node/gpu/sanity/versions its fabric manager"
            )
        else:
            for gpu in silent:
                part = parts.name(facts, gpu.pci, gpu.position)
                judge.measured.discard(f"{node}/{part}")
                state(judge, facts, Place(node, part), gpu)
        if facts.platform.nvswitch:
            _missing_health(judge, facts, node, log)


def _missing_health(judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
    """Add an error for each health field that one GPU lacks and another has: the report is damaged."""
    for path, what in (("health/summary", "summary"), *((path, what) for path, (_, what) in FABRIC_PARTS.items())):
        lacking = [gpu for gpu in log.gpus if not gpu.names(f"fabric/{path}")]
        if not lacking or len(lacking) == len(log.gpus):
            continue
        for gpu in lacking:
            part = parts.name(facts, gpu.pci, gpu.position)
            judge.measured.discard(f"{node}/{part}")
            judge.error(Place(node, part), HEALTH_NOT_REPORTED, "reported as for the other GPUs", "nothing", what=what)


def _silent(facts: NodeFacts, gpu: SmiGpu) -> bool:
    """Return whether a GPU reports no fabric state, and its model need not report one."""
    return not facts.gpu.registers and gpu.text("fabric/state") is None


def state(judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
    """Judge one GPU's fabric registration."""
    step = _LOCAL if facts.platform.runs_fabric_manager else _REMOTE
    if judge.equal(
        where,
        FABRIC_STATE,
        "Completed",
        gpu.text("fabric/state"),
        step=step,
    ):
        judge.equal(
            where,
            FABRIC_STATUS,
            "Success",
            gpu.text("fabric/status"),
            step=step,
        )
    summary = gpu.text("fabric/health/summary")
    if summary is not None and summary not in HEALTHY_FABRIC:
        judge.fail(where, FABRIC_HEALTH, "Healthy", summary, step=step)
    for path, (good, what) in FABRIC_PARTS.items():
        value = gpu.text(f"fabric/{path}")
        if value is not None and value not in good | {NOT_SUPPORTED}:
            judge.fail(
                where,
                FABRIC_HEALTH_PART,
                " or ".join(sorted(good)),
                value,
                what=what,
                step=step,
            )
