"""Findings of the gate on the parts that a BMC lists."""

from __future__ import annotations

from rackready.gates.bmc.parts_seen import RMA
from rackready.gates.judging.finding_kinds import FailKind, Kinds

_NOT_ALL = "If this server has another number by order, state it in a platform profile of your own. If its BMC never "
_LEAVE_OUT = "lists all of them, leave {what} out (gates.also, input `parts`)."
_COUNTED = f"{RMA} {_NOT_ALL}{_LEAVE_OUT}"


GPUS_MISSING = FailKind(
    "bmc-gpus-missing",
    "GPUs missing",
    meaning="The BMC lists fewer GPUs than the platform has.",
    next_step=RMA,
)
GPUS_TOO_MANY = FailKind(
    "bmc-gpus-too-many",
    "more GPUs than the platform has",
    meaning="The BMC lists more GPUs than the platform has: the node is of another model.",
    next_step="Correct the node's platform in the site file.",
)
GPU_MODEL = FailKind(
    "bmc-gpu-model",
    "GPU model",
    meaning="The GPU's PCI device id is that of another model.",
    next_step="Correct the node's platform in the site file, or replace the GPU.",
)
NIC_NOT_THERE = FailKind(
    "bmc-nic-not-in-its-slot",
    "no NIC in its slot",
    meaning="The slot of a compute NIC is empty: the card is missing, or sits in another slot.",
    next_step="Power the node off, put the card into this slot, or reseat it; replace it (RMA) if it stays missing. "
    "A NIC in another slot is on another GPU's PCIe switch.",
)
PROCESSORS = FailKind(
    "bmc-processors",
    "processors",
    meaning="The BMC lists another number of processors than the platform has.",
    next_step=RMA,
)
PROCESSOR_MODEL = FailKind(
    "bmc-processor-model",
    "processor model",
    meaning="A processor is of another model than the platform's.",
    next_step="Correct the node's platform in the site file, or replace the processor.",
)
PROCESSOR_CORES = FailKind(
    "bmc-processor-cores",
    "cores of a processor",
    meaning="A processor has another number of cores than the platform's.",
    next_step="Set all cores active in the BIOS, or correct the node's platform in the site file.",
)
MODULES = FailKind(
    "bmc-memory-modules",
    "memory modules",
    meaning="The BMC lists another number of memory modules than the platform has.",
    next_step=_COUNTED.format(what="memory"),
)
MEMORY = FailKind(
    "bmc-memory-size",
    "memory",
    meaning="The memory modules have less capacity in all than the platform's.",
    next_step=_COUNTED.format(what="memory"),
)
DRIVES = FailKind(
    "bmc-drives",
    "drives",
    meaning="The BMC lists another number of drives than the platform has.",
    next_step=_COUNTED.format(what="drives"),
)

FINDINGS: Kinds = (
    GPUS_MISSING,
    GPUS_TOO_MANY,
    GPU_MODEL,
    NIC_NOT_THERE,
    PROCESSORS,
    PROCESSOR_MODEL,
    PROCESSOR_CORES,
    MODULES,
    MEMORY,
    DRIVES,
)
