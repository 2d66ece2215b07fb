"""Gates on the InfoROM and on the recovery action that the driver asks for."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import parts, smi
from rackready.gates.gpu.smi import RUNBOOK, SmiGate
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.place import Place

_RESET = f"Drain the node and reset the GPU (`nvidia-smi -r -i N`): {RUNBOOK}."
_REBOOT = f"Drain and reboot the node: {RUNBOOK}."
_END_P2P_JOBS = "End the jobs that use NVLink between GPUs, then reset the GPU: docs/runbooks/nvlink-down.md."
_IMEX = "Restart nvidia-imex on all nodes of the NVLink domain."
_POWER = f"Power the node off and on: {RUNBOOK}."
ACTIONS = {
    **dict.fromkeys(("Reset", "GPU Reset", "GPU Reset Required", "PF FLR"), _RESET),
    **dict.fromkeys(("Reboot", "Node Reboot", "Node Reboot Required", "OS Reboot"), _REBOOT),
    "Drain P2P": _END_P2P_JOBS,
    "Drain and Reset": f"Drain the node, then reset the GPU (`nvidia-smi -r -i N`): {RUNBOOK}.",
    "Recover IMEX Domain": _IMEX,
    **dict.fromkeys(("Bus Reset", "System Reboot", "System Reboot Required"), _POWER),
}
"""The action that the driver asks for -> the next step.

Values of nvidia-smi's 'GPU Recovery Action' (its manual; NVML nvmlDeviceGpuRecoveryAction_t) and of Xid 154. Drivers of
R610 write in Xid 154 'PF FLR' for 0x1, for which nvidia-smi still prints Reset, and 'OS Reboot' for 0x2 (published
kernel logs).
"""


ACTION_NOT_REPORTED = ErrorKind(
    "gpu-recovery-not-reported",
    "GPU recovery action not reported",
    meaning="The driver does not report whether the GPU must be reset.",
    next_step="Update the driver (570 or later).",
)
ACTION_WANTED = FailKind(
    "gpu-recovery-action",
    "GPU recovery action",
    meaning="The driver asks for a repair action; until it is done, the GPU is not fit for jobs.",
    next_step="{step}",
    steps=tuple(dict.fromkeys(ACTIONS.values())),
    runbook="docs/runbooks/gpu.md",
)
ACTION_UNKNOWN = ErrorKind(
    "gpu-recovery-unknown-word",
    "GPU recovery action unknown",
    meaning="The driver asks for an action that rackready does not know.",
    next_step="Read the vendor's manual of nvidia-smi, and update rackready.",
)
INFOROM_NOT_REPORTED = ErrorKind(
    "inforom-not-reported",
    "{what} not reported",
    meaning="The GPU's InfoROM lacks a value that every good one has.",
    next_step=f"Run `nvidia-smi -q`; if the value is missing there too, contact the vendor: {RUNBOOK}.",
    runbook="docs/runbooks/gpu.md",
)
INFOROM_CORRUPT = FailKind(
    "inforom-corrupt",
    "InfoROM corrupt",
    meaning="The GPU's InfoROM is damaged: its serial, ECC history and power limits cannot be trusted.",
    next_step="Power the node off and on; if that does not help, have the vendor replace the board or reflash its "
    f"InfoROM: {RUNBOOK}.",
    runbook="docs/runbooks/gpu.md",
)

FINDINGS = (
    ACTION_NOT_REPORTED,
    ACTION_WANTED,
    ACTION_UNKNOWN,
    INFOROM_NOT_REPORTED,
    INFOROM_CORRUPT,
)


class RecoveryAction(SmiGate):
    """The driver asks for no reset, drain or reboot of any GPU."""

    id = "node/gpu/sanity/recovery-action"
    findings = (
        *smi.FINDINGS,
        ACTION_NOT_REPORTED,
        ACTION_WANTED,
        ACTION_UNKNOWN,
    )
    stops_load = True
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Compare the action with 'None'; an unknown action is an error."""
        judge.judged += 1
        wanted = gpu.text("gpu_recovery_action")
        if wanted is None:
            judge.error(where, ACTION_NOT_REPORTED, "None", "nothing")
        elif wanted in ACTIONS:
            judge.fail(where, ACTION_WANTED, "None", wanted, step=ACTIONS[wanted])
        elif wanted != "None":
            judge.error(where, ACTION_UNKNOWN, "None", wanted)


class InfoRom(SmiGate):
    """The InfoROM of every GPU is valid, so its serial, ECC history and power limits can be trusted."""

    id = "node/gpu/sanity/inforom"
    findings = (
        *smi.FINDINGS,
        INFOROM_NOT_REPORTED,
        INFOROM_CORRUPT,
    )
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Add an error unless the InfoROM has a version, an ECC object and a serial. `together` finds corrupt ones."""
        for path, what in (
            ("inforom_version/img_version", "InfoROM version"),
            ("inforom_version/ecc_object", "InfoROM ECC object"),
            ("serial", "serial"),
        ):
            judge.judged += 1
            if gpu.text(path) is None:
                judge.error(where, INFOROM_NOT_REPORTED, "a value", "nothing", what=what)

    def together(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        """Fail the GPUs whose InfoROM nvidia-smi reports as corrupt; they are not measured."""
        for pci in log.corrupt_inforom:
            position = next((gpu.position for gpu in log.gpus if parts.short(gpu.pci) == parts.short(pci)), None)
            part = parts.name(facts, pci, position)
            judge.measured.discard(f"{node}/{part}")
            judge.fail(
                Place(node, part), INFOROM_CORRUPT, "a valid InfoROM", f"nvidia-smi: infoROM is corrupted at {pci}"
            )
