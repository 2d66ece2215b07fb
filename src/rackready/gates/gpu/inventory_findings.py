"""Findings of node/gpu/sanity/inventory."""

from __future__ import annotations

from rackready.gates.base import AGAIN
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/gpu.md"
_MODEL_STEP = "Correct the node's platform in the site file, or replace the GPU."

INVENTORY_UNREADABLE = ErrorKind(
    "gpu-inventory-unreadable",
    "GPU inventory unreadable",
    meaning="The inventory document is not complete, so nothing is known about the GPUs.",
    next_step=AGAIN,
)
NVML_REFUSED = ErrorKind(
    "nvml-cannot-be-asked",
    "NVML does not answer",
    meaning="NVML returned an error: the driver is not loaded or does not work.",
    next_step="Check that the driver is loaded (`nvidia-smi` on the node), then run install again.",
)
INVENTORY_CONTRADICTS = ErrorKind(
    "gpu-inventory-contradicts",
    "GPU inventory contradicts itself",
    meaning="NVML counts another number of GPUs than it lists.",
    next_step="Run the gate again.",
)
GPUS_TOO_MANY = FailKind(
    "gpu-too-many",
    "too many GPUs",
    meaning="The node has more GPUs than its platform: the site file names the wrong platform.",
    next_step="Correct the node's platform in the site file ({platform}). "
    "For a check of this machine alone (`--local`), give `--gpus {count}`.",
)
GPUS_MISSING = FailKind(
    "gpu-missing",
    "GPUs missing",
    meaning="The driver does not see all GPUs of the platform.",
    next_step=f"Power the node off and on; if the GPU is still missing, reseat it: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
INVENTORY_GPU_LOST = FailKind(
    "gpu-inventory-lost",
    "GPU lost",
    meaning="The driver lost this GPU: it no longer answers.",
    next_step=f"Power the node off and on; if the GPU is lost again, replace it: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
NOT_UNIQUE = FailKind(
    "gpu-identity-not-unique",
    "{field} not unique",
    meaning="Several GPUs report the same identity, so evidence cannot name the part.",
    next_step="Reseat the GPUs and run the gate again; a board's InfoROM may be damaged.",
)
MODEL = FailKind(
    "gpu-model",
    "model",
    meaning="The GPU is of another model than the platform's.",
    next_step=_MODEL_STEP,
)
PCI_DEVICE = FailKind(
    "gpu-pci-device-id",
    "PCI device id",
    meaning="The GPU has another PCI device id than its model's.",
    next_step=_MODEL_STEP,
)
IDENTITY_UNREADABLE = ErrorKind(
    "gpu-identity-unreadable",
    "{label} unreadable",
    meaning="A serial, UUID, VBIOS version or address of the GPU contains characters that it cannot have.",
    next_step=AGAIN,
)
IDENTITY_NOT_REPORTED = ErrorKind(
    "gpu-identity-not-reported",
    "{label} not reported",
    meaning="The GPU does not report a serial, UUID, VBIOS version or address, so evidence cannot name the part.",
    next_step="Update the driver.",
)
PCIE_WIDTH = FailKind(
    "gpu-pcie-width-current",
    "PCIe width",
    meaning="The GPU's PCIe link has another width than the site wants.",
    next_step=f"Reseat the GPU board; check the riser: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
BOARD_PART_NOT_REPORTED = ErrorKind(
    "gpu-board-part-not-reported",
    "board part number not reported",
    meaning="The GPU does not report its board part number, which the site declares.",
    next_step="Update the driver. If this model reports no board, remove `board_parts` from the gate's inputs.",
)
BOARD_PART = FailKind(
    "gpu-board-part",
    "board part number",
    meaning="The GPU's board is not one of those that the site accepts.",
    next_step="Ask the supplier, or add the number to the gate's input `board_parts`.",
)
MEMORY_NOT_REPORTED = ErrorKind(
    "gpu-memory-not-reported",
    "memory not reported",
    meaning="The driver does not report how much memory the GPU has.",
    next_step="Update the driver.",
)
MEMORY = FailKind(
    "gpu-memory-size",
    "memory",
    meaning="The GPU has another amount of memory than its model: parts of it may be retired.",
    next_step="Check for retired or remapped memory (`nvidia-smi -q -d ROW_REMAPPER`), then replace the GPU: "
    f"{_RUNBOOK}.",
    runbook=_RUNBOOK,
)
PCIE_GENERATION_NOT_REPORTED = ErrorKind(
    "gpu-pcie-generation-not-reported",
    "PCIe generation not reported",
    meaning="The driver does not report which PCIe generation GPU and slot support.",
    next_step="Update the driver.",
)
PCIE_GENERATION = FailKind(
    "gpu-pcie-generation-slot",
    "PCIe generation",
    meaning="The GPU's PCIe link runs at a lower generation than GPU and slot support: copies to the host are slower.",
    next_step=f"Reseat the GPU board; check the riser and the BIOS link speed: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
NVLINK_STATE_NOT_GIVEN = ErrorKind(
    "gpu-nvlink-state-not-given",
    "NVLink state not reported",
    meaning="The given outputs do not contain the state of the NVLinks.",
    next_step="Also give the output of `nvidia-smi nvlink -s`: --input nvlink=FILE.",
)
NVLINK_STATE_NOT_REPORTED = ErrorKind(
    "gpu-nvlink-state-not-reported",
    "NVLink state not reported",
    meaning="The driver does not report the state of the NVLinks, often because the fabric manager does not run.",
    next_step="Check that the fabric manager runs (`systemctl status nvidia-fabricmanager`).",
)
NVLINK_DOWN = FailKind(
    "gpu-nvlink-down",
    "NVLink down",
    meaning="Some NVLinks of this GPU are inactive: it reaches its peers with less bandwidth.",
    next_step="Power the node off and on once; if the link stays down, reseat the GPU, then replace it: "
    "docs/runbooks/nvlink-down.md.",
    runbook="docs/runbooks/nvlink-down.md",
)
BOARD_PARTS_DIFFER = FailKind(
    "gpu-board-parts-differ",
    "board part numbers differ",
    meaning="The node's GPUs have boards of different part numbers.",
    next_step="Ask the supplier. If the site bought several, name them all in the gate's input `board_parts`.",
)
SIBLINGS_TELL_BOARD = ErrorKind(
    "gpu-board-part-odd-one",
    "board part number not reported",
    meaning="This GPU does not report its board part number, but its siblings do.",
    next_step="Update the driver; if that does not help, replace the GPU.",
)

FINDINGS = (
    INVENTORY_UNREADABLE,
    NVML_REFUSED,
    INVENTORY_CONTRADICTS,
    GPUS_TOO_MANY,
    GPUS_MISSING,
    INVENTORY_GPU_LOST,
    NOT_UNIQUE,
    MODEL,
    PCI_DEVICE,
    IDENTITY_UNREADABLE,
    IDENTITY_NOT_REPORTED,
    PCIE_WIDTH,
    BOARD_PART_NOT_REPORTED,
    BOARD_PART,
    MEMORY_NOT_REPORTED,
    MEMORY,
    PCIE_GENERATION_NOT_REPORTED,
    PCIE_GENERATION,
    NVLINK_STATE_NOT_GIVEN,
    NVLINK_STATE_NOT_REPORTED,
    NVLINK_DOWN,
    BOARD_PARTS_DIFFER,
    SIBLINGS_TELL_BOARD,
)
