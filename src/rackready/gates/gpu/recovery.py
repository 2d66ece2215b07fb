"""InfoROM and the recovery action that the driver asks for."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import parts
from rackready.gates.gpu.smi import RUNBOOK, SmiGate
from rackready.gates.judge import Judge

_RESET = f"Drain the node and reset the GPU (`nvidia-smi -r -i N`): {RUNBOOK}."
_REBOOT = f"Drain and reboot the node: {RUNBOOK}."
_DRAIN = "End the jobs that use NVLink between GPUs, then reset the GPU: docs/runbooks/nvlink-down.md."
_IMEX = "Restart nvidia-imex on all nodes of the NVLink domain."
_POWER = f"Power the node off and on: {RUNBOOK}."
ACTIONS = {
    **dict.fromkeys(("Reset", "GPU Reset", "GPU Reset Required", "PF FLR"), _RESET),
    **dict.fromkeys(("Reboot", "Node Reboot", "Node Reboot Required", "OS Reboot"), _REBOOT),
    "Drain P2P": _DRAIN,
    "Drain and Reset": f"Drain the node, then reset the GPU (`nvidia-smi -r -i N`): {RUNBOOK}.",
    "Recover IMEX Domain": _IMEX,
    **dict.fromkeys(("Bus Reset", "System Reboot", "System Reboot Required"), _POWER),
}
"""What the driver asks for -> what to do, in the words of nvidia-smi's 'GPU Recovery Action' (its manual; NVML nvmlDeviceGpuRecoveryAction_t) and of Xid 154.

Drivers of R610 write in Xid 154 'PF FLR' for 0x1, where nvidia-smi still says Reset, and 'OS Reboot' for 0x2 (kernel logs that were published).
"""


class RecoveryAction(SmiGate):
    """The driver asks for no reset, drain or reboot of any GPU."""

    id = "node/gpu/sanity/recovery-action"
    stops_load = True
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Hold the field against 'None'; a word that is not known is an error."""
        judge.judged += 1
        wanted = gpu.text("gpu_recovery_action")
        if wanted is None:
            judge.error(where, "GPU recovery action not reported", "None", "nothing", "Update the driver (570 or later); without the value nothing is known.")
        elif wanted in ACTIONS:
            judge.fail(where, "GPU recovery action", "None", wanted, ACTIONS[wanted])
        elif wanted != "None":
            judge.error(where, "GPU recovery action: word not known", "None", wanted, "Read the vendor's manual of nvidia-smi, and update rackready.")


class InfoRom(SmiGate):
    """The InfoROM of every GPU is valid: serial, ECC history and power limits are what the board was made with."""

    id = "node/gpu/sanity/inforom"
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Every InfoROM has a version, an ECC object and a serial; corrupt ones are named by the report as a whole."""
        for path, what in (("inforom_version/img_version", "InfoROM version"), ("inforom_version/ecc_object", "InfoROM ECC object"), ("serial", "serial")):
            judge.judged += 1
            if gpu.text(path) is None:
                judge.error(
                    where,
                    f"{what} not reported",
                    "a value",
                    "nothing",
                    f"Read `nvidia-smi -q`; an InfoROM without it is to be looked at by the vendor: {RUNBOOK}.",
                )

    def together(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        """Name the GPUs whose InfoROM the tool says is corrupt; they are not measured."""
        for pci in log.corrupt_inforom:
            position = next((gpu.position for gpu in log.gpus if parts.short(gpu.pci) == parts.short(pci)), None)
            part = parts.name(facts, pci, position)
            judge.measured.discard(f"{node}/{part}")
            step = f"Power the node off and on; if it stays so, the vendor replaces the board or reflashes its InfoROM: {RUNBOOK}."
            judge.fail(f"{node} {part}", "InfoROM corrupt", "a valid InfoROM", f"nvidia-smi: infoROM is corrupted at {pci}", step)
