"""What node/gpu/sanity/inventory can find."""

from __future__ import annotations

from rackready.gates.base import AGAIN
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/gpu.md"
_MODEL_STEP = "Correct the node's platform in the site file, or replace the GPU."

INVENTORY_UNREADABLE = ErrorKind(
    "gpu-inventory-unreadable",
    "GPU inventory unreadable",
    meaning="The inventory document is not whole, so nothing is known of the GPUs.",
    next_step=AGAIN,
)
NVML_REFUSED = ErrorKind(
    "nvml-cannot-be-asked",
    "NVML cannot be asked",
    meaning="NVML does not answer: the driver is not loaded or does not work.",
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
    "more GPUs than the platform has",
    meaning="The node has more GPUs than its platform: the site file names the wrong platform.",
    next_step="Correct the node's platform in the site file ({platform}); "
    "alone on this machine (`--local`), give `--gpus {count}`.",
)
GPUS_MISSING = FailKind(
    "gpu-missing",
    "GPUs missing",
    meaning="The driver does not see all GPUs of the platform.",
    next_step=f"Power the node off and on; if it stays so, reseat the GPU: {_RUNBOOK}.",
)
INVENTORY_GPU_LOST = FailKind(
    "gpu-inventory-lost",
    "GPU lost",
    meaning="The driver lost this GPU: it does not answer any more.",
    next_step=f"Power the node off and on; if it comes back, replace the GPU: {_RUNBOOK}.",
)
NOT_UNIQUE = FailKind(
    "gpu-identity-not-unique",
    "{field} not unique",
    meaning="Several GPUs tell the same identity, so evidence cannot name the part.",
    next_step="Reseat the GPUs and read again; the board's InfoROM may be damaged.",
)
MODEL = FailKind(
    "gpu-model",
    "model",
    meaning="The GPU is of another model than the site's platform says.",
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
    meaning="A serial, UUID or part number of the GPU is no plain text.",
    next_step=AGAIN,
)
IDENTITY_NOT_REPORTED = ErrorKind(
    "gpu-identity-not-reported",
    "{label} not reported",
    meaning="The GPU does not tell a serial, UUID or part number, so evidence cannot name the part.",
    next_step="Update the driver; without it the evidence cannot name the part.",
)
PCIE_WIDTH = FailKind(
    "gpu-pcie-width-current",
    "PCIe width",
    meaning="The GPU's PCIe link has another width than the site wants.",
    next_step=f"Reseat the GPU board; check the riser: {_RUNBOOK}.",
)
BOARD_PART_NOT_REPORTED = ErrorKind(
    "gpu-board-part-not-reported",
    "board part number not reported",
    meaning="The GPU does not tell its board part number, which the site wants to know.",
    next_step="Update the driver; where this GPU tells no board, take `board_parts` out of the gate's inputs.",
)
BOARD_PART = FailKind(
    "gpu-board-part",
    "board part number",
    meaning="The GPU's board is none of those that the site accepts.",
    next_step="Ask who delivered it, or add the number to the gate's `board_parts`.",
)
MEMORY_NOT_REPORTED = ErrorKind(
    "gpu-memory-not-reported",
    "memory not reported",
    meaning="The driver does not tell how much memory the GPU has.",
    next_step="Update the driver.",
)
MEMORY = FailKind(
    "gpu-memory-size",
    "memory",
    meaning="The GPU has less memory than its model: parts of it may be retired.",
    next_step="Look for retired or remapped memory (`nvidia-smi -q -d "
    f"ROW_REMAPPER`), then replace the GPU: {_RUNBOOK}.",
)
PCIE_GENERATION_NOT_REPORTED = ErrorKind(
    "gpu-pcie-generation-not-reported",
    "PCIe generation not reported",
    meaning="The driver does not tell which PCIe generation GPU and slot can do.",
    next_step="Update the driver.",
)
PCIE_GENERATION = FailKind(
    "gpu-pcie-generation-slot",
    "PCIe generation",
    meaning="GPU and slot agree on a lower PCIe generation than the model's: copies to the host are slower.",
    next_step=f"Reseat the GPU board; check the riser and the BIOS link speed: {_RUNBOOK}.",
)
NVLINK_STATE_NOT_GIVEN = ErrorKind(
    "gpu-nvlink-state-not-given",
    "NVLink state not reported",
    meaning="The outputs that were handed in do not tell the state of the NVLinks.",
    next_step="Give what `nvidia-smi nvlink -s` prints, too: --input nvlink=FILE.",
)
NVLINK_STATE_NOT_REPORTED = ErrorKind(
    "gpu-nvlink-state-not-reported",
    "NVLink state not reported",
    meaning="The driver does not tell the state of the NVLinks, often because the fabric manager does not run.",
    next_step="Check that the fabric manager runs (`systemctl status nvidia-fabricmanager`).",
)
NVLINK_DOWN = FailKind(
    "gpu-nvlink-down",
    "NVLink down",
    meaning="Some NVLinks of this GPU are inactive: it reaches its peers with less bandwidth.",
    next_step="Power the node off and on once; if the link stays down, reseat the GPU, then replace it: "
    "docs/runbooks/nvlink-down.md",
)
BOARD_PARTS_DIFFER = FailKind(
    "gpu-board-parts-differ",
    "board part numbers differ",
    meaning="The node's GPUs have boards of different part numbers.",
    next_step="Ask who delivered it; where the site bought several, name them all in the gate's input `board_parts`.",
)
SIBLINGS_TELL_BOARD = ErrorKind(
    "gpu-board-part-odd-one",
    "board part number not reported",
    meaning="This GPU does not tell its board part number and its siblings do.",
    next_step="Update the driver; if it stays so, replace the GPU.",
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
