"""The NVLink fabric as each GPU sees it: state, status and health."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import parts, smi
from rackready.gates.gpu.smi import SmiGate
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge

_RUNBOOK = "docs/runbooks/nvlink-down.md"
_LOCAL = (
    "Check `systemctl status nvidia-fabricmanager` and /var/log/fabricmanager.log; "
    f"it must be the driver's version: {_RUNBOOK}."
)
_REMOTE = f"Check the NVLink switch trays (NMX-C configured, all trays up) before the compute trays: {_RUNBOOK}."
_BAD = {
    "health/bandwidth": ({"Full"}, "bandwidth"),
    "health/route_recovery_in_progress": ({"False"}, "route recovery in progress"),
    "health/route_unhealthy": ({"False"}, "route unhealthy"),
    "health/access_timeout_recovery": ({"False"}, "access timeout recovery"),
    "health/incorrect_configuration": ({"None"}, "incorrect configuration"),
}
"""Fields of the fabric health mask and their good words (NVML nvmlGpuFabricInfo health mask; nvidia-smi of 580)."""

_UNREGISTERED = "ampere"
"""GPUs of this architecture do not register with the fabric: NVML gives its state for Hopper or newer (nvmlDeviceGetGpuFabricInfo), and nvidia-smi N/A on
servers whose fabric manager runs (bottlerocket-os/bottlerocket pull request 3873, p4d)."""


HEALTH_NOT_REPORTED = ErrorKind(
    "fabric-health-not-reported",
    "fabric health: {what} not reported",
    meaning="The report tells less of this GPU's fabric health than of the others', so it is damaged.",
    next_step="One driver reports the same of every GPU: take the report as "
    "nvidia-smi printed it, or run the gate again.",
)
FABRIC_STATE = FailKind(
    "fabric-state",
    "fabric state",
    meaning="The GPU is not registered with the NVLink fabric: CUDA does not start on it.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
)
FABRIC_STATUS = FailKind(
    "fabric-status",
    "fabric status",
    meaning="The GPU's registration with the NVLink fabric ended with an error.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
)
FABRIC_HEALTH = FailKind(
    "fabric-health-bad",
    "fabric health",
    meaning="The driver sums up that the GPU's NVLink fabric is not healthy.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
)
FABRIC_HEALTH_PART = FailKind(
    "fabric-health-part-bad",
    "fabric health: {what}",
    meaning="One aspect of the GPU's NVLink fabric is not healthy, for example its bandwidth or a route.",
    next_step="{step}",
    steps=(_LOCAL, _REMOTE),
)

STATE = (FABRIC_STATE, FABRIC_STATUS, FABRIC_HEALTH, FABRIC_HEALTH_PART)
"""What ``state`` can find."""


class Fabric(SmiGate):
    """The NVSwitch fabric is set up for every GPU, and healthy as far as it reports health."""

    id = "node/gpu/sanity/fabric"
    findings = (
        *smi.FINDINGS,
        *STATE,
        HEALTH_NOT_REPORTED,
    )
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        """Judge state, status and, where the GPU reports it, each field of the health mask."""
        if facts.platform.nvswitch and not _silent(facts, gpu):
            state(judge, facts, where, gpu)

    def together(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        """Say why there is nothing to judge: a server without NVSwitches, or GPUs none of which tells of the fabric."""
        silent = [gpu for gpu in log.gpus if _silent(facts, gpu)]
        if not facts.platform.nvswitch:
            judge.nothing(f"platform {facts.platform.id} has no NVSwitches: there is no fabric to judge")
        elif silent and len(silent) == len(log.gpus):
            judge.nothing(
                f"GPU {facts.gpu.id} tells nothing of the fabric: its links are judged by node/gpu/sanity/nvlink, "
                "its fabric manager by versions"
            )
        else:
            for gpu in silent:
                part = parts.name(facts, gpu.pci, gpu.position)
                judge.measured.discard(f"{node}/{part}")
                state(judge, facts, f"{node} {part}", gpu)
        if facts.platform.nvswitch:
            _untold(judge, facts, node, log)


def _untold(judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
    """Add an error for a field of the health mask that a GPU lacks and another one has, with or without a value: the report is damaged."""
    for path, what in (("health/summary", "summary"), *((path, what) for path, (_, what) in _BAD.items())):
        lacking = [gpu for gpu in log.gpus if not gpu.names(f"fabric/{path}")]
        if not lacking or len(lacking) == len(log.gpus):
            continue
        for gpu in lacking:
            part = parts.name(facts, gpu.pci, gpu.position)
            judge.measured.discard(f"{node}/{part}")
            judge.error(f"{node} {part}", HEALTH_NOT_REPORTED, "reported as for the other GPUs", "nothing", what=what)


def _silent(facts: NodeFacts, gpu: SmiGpu) -> bool:
    """Whether a GPU tells no fabric state, and its model is not expected to."""
    return facts.gpu.architecture == _UNREGISTERED and gpu.text("fabric/state") is None


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
    if summary is not None and summary not in {"Healthy", "Not Supported"}:
        judge.fail(where, FABRIC_HEALTH, "Healthy", summary, step=step)
    for path, (good, what) in _BAD.items():
        value = gpu.text(f"fabric/{path}")
        if value is not None and value not in good | {"Not Supported"}:
            judge.fail(
                where,
                FABRIC_HEALTH_PART,
                " or ".join(sorted(good)),
                value,
                what=what,
                step=step,
            )
