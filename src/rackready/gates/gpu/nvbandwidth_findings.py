"""Findings of node/gpu/performance/nvbandwidth."""

from __future__ import annotations

from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

PEER = "device_to_device_memcpy_read_ce"
STEP = (
    "Check the PCIe path (gate node/gpu/sanity/pcie-path), the NUMA and IOMMU settings, and that no other work runs "
    "on the node: docs/runbooks/gpu.md."
)
OTHER_STEP = (
    "Check NVLinks and fabric manager (gates node/gpu/sanity/nvlink and fabric), the memory clock, and that no other "
    "work runs on the node. Replace a GPU that is still slow after a power cycle: docs/runbooks/gpu.md."
)
_REPLAY_STEP = "Reseat the GPU's board and riser; if the link still replays, replace the board: docs/runbooks/gpu.md."

NVBANDWIDTH_UNREADABLE = ErrorKind(
    "nvbandwidth-unreadable",
    "nvbandwidth unreadable",
    meaning="nvbandwidth left no result, often because it is not installed.",
    next_step="Install package datacenter-gpu-manager-4-cuda{major}, or name the program in the gate's input `binary`.",
)
NVBANDWIDTH_EXIT_CODE = ErrorKind(
    "nvbandwidth-exit-code",
    "nvbandwidth contradicts itself",
    meaning="nvbandwidth printed bandwidths and still ended with an error.",
    next_step="Run nvbandwidth by hand on the node.",
)
NVBANDWIDTH_GPUS = ErrorKind(
    "nvbandwidth-gpus",
    "GPUs of nvbandwidth",
    meaning="nvbandwidth did not measure all GPUs of the node.",
    next_step="Unset CUDA_VISIBLE_DEVICES, and run gate node/gpu/sanity/inventory: it reports how many GPUs the node "
    "has.",
)
NVBANDWIDTH_ORDER = ErrorKind(
    "nvbandwidth-gpu-order",
    "nvbandwidth numbers the GPUs in another order",
    meaning="nvbandwidth does not number the GPUs by PCI address, so its figures would be assigned to the wrong GPUs.",
    next_step="Run nvbandwidth with CUDA_DEVICE_ORDER=PCI_BUS_ID.",
)
NVBANDWIDTH_TEST_NOT_RUN = ErrorKind(
    "nvbandwidth-test-not-run",
    "nvbandwidth test {test} did not run",
    meaning="One of the tests gave no result, so the bandwidth of that path is unknown.",
    next_step="Run nvbandwidth by hand on the node.",
)
NVBANDWIDTH_NO_NUMBER = ErrorKind(
    "nvbandwidth-no-number",
    "nvbandwidth test {test} has no number",
    meaning="A test has no figure for some GPUs.",
    next_step=STEP,
    runbook="docs/runbooks/gpu.md",
)
PEER_NO_NUMBER = ErrorKind(
    "nvbandwidth-peer-no-number",
    f"{PEER} has no number",
    meaning="There is no figure between these two GPUs: perhaps they cannot reach each other directly.",
    next_step="Run `nvidia-smi topo -p2p r`, then run the gate again.",
)
PEER_SLOW = FailKind(
    "nvbandwidth-peer-slow",
    f"{PEER} is slow between two GPUs",
    meaning="Copies between these two GPUs are slower than between all others.",
    next_step=OTHER_STEP,
    runbook="docs/runbooks/gpu.md",
)
PEER_IMPLAUSIBLE = ErrorKind(
    "nvbandwidth-peer-implausible",
    f"{PEER} is implausible between two GPUs",
    meaning="Copies between these two GPUs are faster than between all others, which NVSwitches do not allow: the "
    "figures are wrong.",
    next_step="Run the gate again.",
)
BANDWIDTH_IMPLAUSIBLE = ErrorKind(
    "nvbandwidth-implausible",
    "{test} is implausible",
    meaning="The figure is more than this link can carry: the profile or the output is of another GPU.",
    next_step="Check the node's GPU profile.",
)
BANDWIDTH_LOW = FailKind(
    "nvbandwidth-slow",
    "{test} is slow",
    meaning="Copies to or from this GPU are slower than its link should allow.",
    next_step="{step}",
    steps=(STEP, OTHER_STEP),
    runbook="docs/runbooks/gpu.md",
)
REPLAYS = FailKind(
    "pcie-replays-under-load",
    "PCIe replays while data moves",
    meaning="The GPU's PCIe link replays packets while data moves: it has errors and loses bandwidth.",
    next_step=_REPLAY_STEP,
    runbook="docs/runbooks/gpu.md",
)
NVBANDWIDTH_OTHER_GPUS = ErrorKind(
    "nvbandwidth-other-gpus",
    "nvbandwidth ran on other GPUs than nvidia-smi reports",
    meaning="nvbandwidth and nvidia-smi name different GPUs, so the outputs are not from one node.",
    next_step="Give outputs from one node. On a node: run the gate again.",
)
REPLAYS_UNREADABLE = ErrorKind(
    "pcie-replays-unreadable",
    "PCIe replays unreadable",
    meaning="The replay counter is not a number, so the errors of the PCIe link are unknown.",
    next_step="Run `nvidia-smi -q -x` by hand.",
)
REPLAYS_NOT_REPORTED = ErrorKind(
    "pcie-replays-not-reported",
    "PCIe replays not reported",
    meaning="The driver does not count replays of the PCIe link, so its errors are unknown.",
    next_step="Update the driver.",
)
REPLAYS_NO_RATE = ErrorKind(
    "pcie-replays-no-rate",
    "PCIe replays unreadable",
    meaning="The replay counter went back or its time is unknown, so no rate can be computed.",
    next_step="The driver was reloaded in between, or the outputs were captured without their time: run the gate "
    "again.",
)

FINDINGS = (
    NVBANDWIDTH_UNREADABLE,
    NVBANDWIDTH_EXIT_CODE,
    NVBANDWIDTH_GPUS,
    NVBANDWIDTH_ORDER,
    NVBANDWIDTH_TEST_NOT_RUN,
    NVBANDWIDTH_NO_NUMBER,
    PEER_NO_NUMBER,
    PEER_SLOW,
    PEER_IMPLAUSIBLE,
    BANDWIDTH_IMPLAUSIBLE,
    BANDWIDTH_LOW,
    REPLAYS,
    NVBANDWIDTH_OTHER_GPUS,
    REPLAYS_UNREADABLE,
    REPLAYS_NOT_REPORTED,
    REPLAYS_NO_RATE,
)
