"""What node/gpu/performance/nvbandwidth can find."""

from __future__ import annotations

from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

PEER = "device_to_device_memcpy_read_ce"
STEP = (
    "Look at the PCIe path (gate node/gpu/sanity/pcie-path), at NUMA and IOMMU settings and at other work on the "
    "node: docs/runbooks/gpu.md."
)
OTHER_STEP = (
    "Look at NVLinks and Fabric Manager (gates node/gpu/sanity/nvlink and fabric), at the memory clock and at other "
    "work on the node; a GPU that stays slow "
    "after a power cycle is replaced: docs/runbooks/gpu.md."
)
_REPLAY_STEP = (
    "Reseat the GPU's board and riser; a link that goes on replaying is replaced with its board: docs/runbooks/gpu.md."
)

NVBANDWIDTH_UNREADABLE = ErrorKind(
    "nvbandwidth-unreadable",
    "nvbandwidth unreadable",
    meaning="nvbandwidth left no result, often because it is not installed.",
    next_step="Install package datacenter-gpu-manager-4-cuda{major}, or name the "
    "program under the gate's input `binary`.",
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
    next_step="Unset CUDA_VISIBLE_DEVICES, and see the gate "
    "node/gpu/sanity/inventory: it says how many GPUs the node has.",
)
NVBANDWIDTH_ORDER = ErrorKind(
    "nvbandwidth-gpu-order",
    "nvbandwidth numbers the GPUs otherwise",
    meaning="nvbandwidth numbers the GPUs in another order, so its figures would be given to the wrong GPU.",
    next_step="Run it with CUDA_DEVICE_ORDER=PCI_BUS_ID: else gpu3 is another GPU than nvidia-smi's.",
)
NVBANDWIDTH_TEST_NOT_RUN = ErrorKind(
    "nvbandwidth-test-not-run",
    "nvbandwidth test {test} did not run",
    meaning="One of the tests gave no result, so nothing is known of that path.",
    next_step="Run nvbandwidth by hand; without the test nothing is known.",
)
NVBANDWIDTH_NO_NUMBER = ErrorKind(
    "nvbandwidth-no-number",
    "nvbandwidth test {test} has no number",
    meaning="A test has no figure for some GPUs.",
    next_step=STEP,
)
PEER_NO_NUMBER = ErrorKind(
    "nvbandwidth-peer-no-number",
    f"{PEER} has no number",
    meaning="There is no figure between these two GPUs: they may not reach each other directly.",
    next_step="Look at `nvidia-smi topo -p2p r`, then run the gate again.",
)
PEER_SLOW = FailKind(
    "nvbandwidth-peer-slow",
    f"{PEER} is slow between two GPUs",
    meaning="These two GPUs reach each other slower than all others do.",
    next_step=OTHER_STEP,
)
PEER_IMPLAUSIBLE = ErrorKind(
    "nvbandwidth-peer-implausible",
    f"{PEER} is implausible between two GPUs",
    meaning="These two GPUs reach each other faster than all others do, which NVSwitches do not allow: the figures are "
    "wrong.",
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
    meaning="Copies to or from this GPU are slower than its link must allow.",
    next_step="{step}",
    steps=(STEP, OTHER_STEP),
)
REPLAYS = FailKind(
    "pcie-replays-under-load",
    "PCIe replays while data moves",
    meaning="The GPU's PCIe link repeats packets while data moves: it has errors and loses bandwidth.",
    next_step=_REPLAY_STEP,
)
NVBANDWIDTH_OTHER_GPUS = ErrorKind(
    "nvbandwidth-other-gpus",
    "nvbandwidth ran on other GPUs than nvidia-smi reports",
    meaning="nvbandwidth and nvidia-smi name different GPUs, so the outputs are not of one node.",
    next_step="Give outputs of one node. On a node: run the gate again.",
)
REPLAYS_UNREADABLE = ErrorKind(
    "pcie-replays-unreadable",
    "PCIe replays unreadable",
    meaning="The replay counter is no number, so errors of the PCIe link are not known.",
    next_step="Run `nvidia-smi -q -x` by hand.",
)
REPLAYS_NOT_REPORTED = ErrorKind(
    "pcie-replays-not-reported",
    "PCIe replays not reported",
    meaning="The driver does not count replays of the PCIe link, so its errors are not known.",
    next_step="Update the driver; without the value nothing is known.",
)
REPLAYS_NO_RATE = ErrorKind(
    "pcie-replays-no-rate",
    "PCIe replays unreadable",
    meaning="The replay counter went back or its time is not known, so no rate can be computed.",
    next_step="The driver was loaded anew in between, or the outputs were captured "
    "without their time: run the gate again.",
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
