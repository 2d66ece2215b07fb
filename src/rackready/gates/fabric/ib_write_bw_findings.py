"""Findings of ib_write_bw, and of the start and end of perftest's programs."""

from __future__ import annotations

from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/rail-slow.md"

WRITE_UNREADABLE = ErrorKind(
    "ib-write-bw-unreadable",
    "ib_write_bw unreadable",
    meaning="ib_write_bw exited with 0 and left no complete result.",
    next_step="Run the gate again; if that does not help, read its raw output in the report.",
)
WRITE_SOMETHING_ELSE = ErrorKind(
    "ib-write-bw-something-else",
    "ib_write_bw measured something else",
    meaning="ib_write_bw measured with other settings than the gate asked for.",
    next_step="Run the gate again.",
)
WRITE_NO_PEAK = ErrorKind(
    "ib-write-bw-no-peak",
    "ib_write_bw measured no peak",
    meaning="The output has no peak, so its figures cannot be checked against each other.",
    next_step="Run the gate again, without --noPeak.",
)
PATH_MTU = FailKind(
    "rdma-path-mtu",
    "RDMA path MTU",
    meaning="The RDMA path uses another MTU than it should: messages are cut into smaller packets.",
    next_step="Check the MTU of the interface and of the switch ports on both ends, and run fabric again.",
)
GPU_MEMORY_NOT_USED = ErrorKind(
    "ib-write-bw-host-memory",
    "GPU memory was not used{end}",
    meaning="The data lay in host memory, so GPUDirect RDMA was not measured.",
    next_step="Install a perftest built with CUDA.",
)
OTHER_MEMORY = ErrorKind(
    "ib-write-bw-other-memory",
    "ib_write_bw measured another memory{end}",
    meaning="The NIC reached the memory in another way than the gate asked for.",
    next_step="Run the gate again; the gate's inputs gpu_memory and gpudirect choose the way.",
)
OTHER_GPU = ErrorKind(
    "ib-write-bw-other-gpu",
    "ib_write_bw measured another GPU's memory{end}",
    meaning="The data lay in the memory of another GPU than the NIC's own.",
    next_step="Unset CUDA_VISIBLE_DEVICES on the node.",
)
WRITE_OTHER_PORT = FailKind(
    "ib-write-bw-port-bytes",
    "bytes sent by the port",
    meaning="The port did not send the bytes that ib_write_bw reports as written.",
    next_step="The data used another port, or something else used this one: check that no job runs, and "
    f"the node's RDMA devices: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
WRITE_SLOW = FailKind(
    "rdma-write-slow",
    "RDMA write is slow",
    meaning="This rail carries less than its NIC and PCIe link must carry.",
    next_step=f"Check {{cable}}, errors of the port and PCIe width of the NIC: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
WRITE_SLOW_TO_GPU = FailKind(
    "rdma-write-slow-to-gpu",
    "RDMA write is slow",
    meaning="This rail carries less than the PCIe link of its GPU must carry, which is slower than the NIC's port.",
    next_step="Run gates node/gpu/sanity/pcie-path and pair/fabric/performance/ib-write-bw-host: a slow GPU link shows "
    f"in the first, a slow port also in the second: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
WRITE_IMPLAUSIBLE = ErrorKind(
    "rdma-write-implausible",
    "RDMA write bandwidth is implausible",
    meaning="The figure is more than the NIC's line rate, or than the PCIe link of its GPU carries.",
    next_step="Check the NIC's rate in the platform profile, and the PCIe link in the GPU's.",
)
ONE_OUTPUT_BOTH_WAYS = ErrorKind(
    "rdma-one-output-both-ways",
    "{program} has one output for both directions",
    meaning="Both directions have the same output, so one of them was not measured.",
    next_step="Give each direction its own output, or run the gate again.",
)
TOOL_CONTRADICTS = ErrorKind(
    "rdma-tool-contradicts",
    "{program} contradicts itself",
    meaning="The tool printed a result and also reports a failure.",
    next_step=f"Read the raw outputs of both ends in the report, and the errors of both ports: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
TOOL_LACKS_OPTION = ErrorKind(
    "rdma-tool-lacks-option",
    "{program} lacks an option",
    meaning="The installed perftest does not know an option that the gate needs.",
    next_step="Run install again: it installs the right perftest.",
)
ROCE_VERSION = FailKind(
    "roce-version",
    "RoCE version",
    meaning="The port speaks RoCE v1 only, which switches do not route.",
    next_step="Set RoCE v2: `cma_roce_mode -d {device} -p 1 -m 2`; if there is still no v2 GID, reset the NIC "
    "(`mlxfwreset`).",
)
RAIL_ADDRESS_MISSING = FailKind(
    "rail-address-missing",
    "address missing",
    meaning="The rail's interface has no address, or a wrong one.",
    next_step="Run fabric again: it sets the rail's address.",
)
GPUDIRECT_REFUSED = FailKind(
    "gpudirect-refused",
    "GPUDirect RDMA",
    meaning="The NIC could not register GPU memory: transfers would go through host memory, much slower.",
    next_step=(
        "Check ACS (`lspci -vvv | grep ACSCtl`), the IOMMU (iommu=pt), dma-buf (kernel and open driver) or "
        "nvidia_peermem: docs/runbooks/nccl-transport.md"
    ),
    runbook="docs/runbooks/nccl-transport.md",
)
RAIL_NOT_REACHABLE = FailKind(
    "rail-not-reachable",
    "rail not reachable",
    meaning="The other end does not answer over this rail.",
    next_step="Check VLAN {vlan} on {switch} {port} and {far_switch} {far_port}: run fabric again.",
)
TOOL_FAILED = ErrorKind(
    "rdma-tool-failed",
    "{program} failed",
    meaning="The tool ended with an error of unknown cause.",
    next_step="Read its raw output in the report; check that perftest is installed and the GPU is free.",
)

CLIENT = (
    GPUDIRECT_REFUSED,
    RAIL_ADDRESS_MISSING,
    RAIL_NOT_REACHABLE,
    ROCE_VERSION,
    TOOL_CONTRADICTS,
    TOOL_FAILED,
    TOOL_LACKS_OPTION,
)
"""Findings of a perftest client that did not end well."""
FINDINGS = (
    *CLIENT,
    WRITE_UNREADABLE,
    WRITE_SOMETHING_ELSE,
    WRITE_NO_PEAK,
    PATH_MTU,
    GPU_MEMORY_NOT_USED,
    OTHER_MEMORY,
    OTHER_GPU,
    WRITE_OTHER_PORT,
    WRITE_SLOW,
    WRITE_SLOW_TO_GPU,
    WRITE_IMPLAUSIBLE,
    ONE_OUTPUT_BOTH_WAYS,
)
