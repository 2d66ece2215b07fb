"""Findings of node/gpu/sanity/nvlink."""

from __future__ import annotations

from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/nvlink-down.md"

_STEP = f"Power the node off and on once; if that does not help, reseat the GPU, then replace it: {_RUNBOOK}."

NVLINK_ERRORS_NOT_REPORTED = ErrorKind(
    "nvlink-errors-not-reported",
    "NVLink error counters not reported",
    meaning="nvidia-smi lists no error counters for this GPU's links, so their errors are unknown.",
    next_step="Run `nvidia-smi nvlink -e` by hand.",
)

NVLINK_NONE_ACTIVE = FailKind(
    "nvlink-none-active",
    "no NVLink active",
    meaning="No NVLink of this GPU is active: it reaches its peers over PCIe only, or not at all.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)

NVLINK_INACTIVE = FailKind(
    "nvlink-inactive",
    "NVLink down",
    meaning="Some NVLinks of this GPU are inactive: it reaches its peers with less bandwidth, and slows every "
    "collective.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)

NVLINK_SPEED = FailKind(
    "nvlink-speed",
    "NVLink speed",
    meaning="A link runs at another speed than the GPU model's.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)

NVLINK_COUNTER_UNREADABLE = ErrorKind(
    "nvlink-counter-unreadable",
    "NVLink counter {name} unreadable",
    meaning="An error counter of a link is not a number.",
    next_step="Run `nvidia-smi nvlink -e` by hand.",
)

NVLINK_ERRORS = FailKind(
    "nvlink-errors",
    "NVLink {name}",
    meaning="A link counted errors since the driver was loaded.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)

NVLINK_COUNTER_UNKNOWN = ErrorKind(
    "nvlink-counter-unknown",
    "unknown NVLink counter {name}",
    meaning="A counter that rackready does not know is above 0, so it cannot be judged.",
    next_step="Read the vendor's manual of nvidia-smi, and update rackready.",
)

NVLINK_CRC = FailKind(
    "nvlink-crc",
    "NVLink {name}",
    meaning="A link counted more CRC errors than the gate set allows.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)

NVLINK_FAULTS_NOT_COUNTED = ErrorKind(
    "nvlink-faults-not-counted",
    "NVLink faults not counted",
    meaning="The driver does not count faults of the links, so their errors are unknown.",
    next_step="Run `nvidia-smi nvlink -e` by hand; update the driver.",
)

NVLINK_RATE_UNREADABLE = ErrorKind(
    "nvlink-ber-unreadable",
    "NVLink {name} unreadable",
    meaning="The bit error rate of a link cannot be read.",
    next_step="Run `nvidia-smi nvlink -e` by hand.",
)

NVLINK_EFFECTIVE_BER = FailKind(
    "nvlink-effective-ber",
    "NVLink effective bit error rate",
    meaning="A link has bit errors that its error correction does not correct.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)

NVLINK_GPU_LOST = FailKind(
    "nvlink-gpu-lost",
    "GPU lost",
    meaning="The driver lost this GPU: it no longer answers.",
    next_step="Power the node off and on; if the GPU is lost again, replace it: docs/runbooks/gpu.md.",
    runbook="docs/runbooks/gpu.md",
)

NVLINK_UNREADABLE = ErrorKind(
    "nvlink-unreadable",
    "{what} unreadable",
    meaning="nvidia-smi printed something other than GPUs and their links.",
    next_step="Run `{what}` by hand on the node.",
)

NVLINK_EXIT_CODE = ErrorKind(
    "nvlink-exit-code",
    "{what} contradicts itself",
    meaning="nvidia-smi listed links and still ended with an error.",
    next_step="Run `{what}` by hand on the node.",
)

NVLINK_GPUS_MISSING = FailKind(
    "nvlink-gpus-missing",
    "GPUs in nvidia-smi nvlink",
    meaning="nvidia-smi nvlink lists fewer GPUs than the platform has.",
    next_step=parts.FEWER,
)

NVLINK_GPUS_MORE = FailKind(
    "nvlink-gpus-too-many",
    "GPUs in nvidia-smi nvlink",
    meaning="nvidia-smi nvlink lists more GPUs than the platform has.",
    next_step=parts.MORE,
)

NVLINK_GPUS_OTHER = FailKind(
    "nvlink-gpus-other",
    "GPUs in nvidia-smi nvlink",
    meaning="nvidia-smi nvlink lists as many GPUs as the platform has, but with other numbers.",
    next_step="Give the links of every GPU: run `nvidia-smi nvlink -s` without -i.",
)

NVLINK_ERRORS_OTHER_GPUS = ErrorKind(
    "nvlink-errors-other-gpus",
    "NVLink error counters from other GPUs",
    meaning="The error counters are from other GPUs than the links, so the outputs are not from one node.",
    next_step="Run `nvidia-smi nvlink -s` and `nvidia-smi nvlink -e` on the same host, one after the other.",
)

NVLINK_ERRORS_NOT_WHOLE = ErrorKind(
    "nvlink-errors-not-whole",
    "NVLink error counters incomplete",
    meaning="Some links have fewer counters than others: the output is cut off.",
    next_step="Run `nvidia-smi nvlink -e` by hand.",
)

FINDINGS = (
    NVLINK_ERRORS_NOT_REPORTED,
    NVLINK_NONE_ACTIVE,
    NVLINK_INACTIVE,
    NVLINK_SPEED,
    NVLINK_COUNTER_UNREADABLE,
    NVLINK_ERRORS,
    NVLINK_COUNTER_UNKNOWN,
    NVLINK_CRC,
    NVLINK_FAULTS_NOT_COUNTED,
    NVLINK_RATE_UNREADABLE,
    NVLINK_EFFECTIVE_BER,
    NVLINK_GPU_LOST,
    NVLINK_UNREADABLE,
    NVLINK_EXIT_CODE,
    NVLINK_GPUS_MISSING,
    NVLINK_GPUS_MORE,
    NVLINK_GPUS_OTHER,
    NVLINK_ERRORS_OTHER_GPUS,
    NVLINK_ERRORS_NOT_WHOLE,
)
