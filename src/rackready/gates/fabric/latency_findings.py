"""Findings of the gates on RDMA latency."""

from __future__ import annotations

from rackready.gates.fabric.perftest_call import FAR
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/rail-slow.md"

NO_COMMON_RAIL = ErrorKind(
    "latency-no-common-rail",
    "no rail in common",
    meaning="The two nodes have no rail in common, so there is no path to measure.",
    next_step="Run the gate with two nodes of one platform: `rackready gate run`, twice `--node`.",
)
LATENCY_PORT_BYTES = FailKind(
    "latency-port-bytes",
    "bytes sent by the port",
    meaning="The port carried fewer bytes than the messages have: they used another port.",
    next_step="The data used another port: check the node's RDMA devices; a NIC that was reset loses its "
    f"counters: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
LATENCY_UNREADABLE = ErrorKind(
    "latency-unreadable",
    "{program} unreadable",
    meaning="The tool exited with 0 and left no complete result.",
    next_step="Run the gate again; if that does not help, read its raw output in the report.",
)
LATENCY_SOMETHING_ELSE = ErrorKind(
    "latency-something-else",
    "{program} measured something else",
    meaning="The tool measured with other settings than the gate asked for.",
    next_step="Run the gate again.",
)
LATENCY_OTHER_MEMORY = ErrorKind(
    "latency-other-memory",
    f"{{program}} measured another memory{FAR}",
    meaning="The receiver's data lay in another memory than the gate asked for.",
    next_step="Run the gate again.",
)
LATENCY_OTHER_GPU = ErrorKind(
    "latency-other-gpu",
    "{program} measured another GPU's memory{end}",
    meaning="The data lay in the memory of another GPU than the NIC's own.",
    next_step="Unset CUDA_VISIBLE_DEVICES on the node.",
)
LATENCY_IMPLAUSIBLE = ErrorKind(
    "latency-implausible",
    "latency is implausible",
    meaning="The latency is less than the path can have: the tool's clock is wrong.",
    next_step="perftest counts the processor's cycles: look for 'CPU Frequency' in its raw output, and "
    "run the gate again.",
)
LATENCY_HIGH = FailKind(
    "latency-high",
    "latency",
    meaning="Messages on this path take longer than the published mark.",
    next_step=f"Check the path's hops, the PCIe link and the power saving of the NIC (ASPM, C-states): {_RUNBOOK}",
    runbook=_RUNBOOK,
)
LATENCY_NOT_JUDGED = ErrorKind(
    "latency-not-judged",
    "latency cannot be judged",
    meaning="There is no mark for this path and too few rails to compare with.",
    next_step="Measure a pair with more rails, or give the profile a mark with its source.",
)
LATENCY_BESIDE_RAILS = FailKind(
    "latency-behind-other-rails",
    "latency compared with the other rails",
    meaning="Messages take longer on this rail than on the node's others.",
    next_step=f"Only this NIC is late: check its PCIe link, switch port and firmware: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
LATENCY_TAIL = FailKind(
    "latency-tail-behind-other-rails",
    "99 % percentile of latency compared with the other rails",
    meaning="Most messages on this rail are as fast as on the others, but one in a hundred is late.",
    next_step="One message in a hundred is late on this rail only: check errors and pauses of its port, "
    f"its PCIe link and switch port: {_RUNBOOK}",
    runbook=_RUNBOOK,
)

FINDINGS = (
    NO_COMMON_RAIL,
    LATENCY_PORT_BYTES,
    LATENCY_UNREADABLE,
    LATENCY_SOMETHING_ELSE,
    LATENCY_OTHER_MEMORY,
    LATENCY_OTHER_GPU,
    LATENCY_IMPLAUSIBLE,
    LATENCY_HIGH,
    LATENCY_NOT_JUDGED,
    LATENCY_BESIDE_RAILS,
    LATENCY_TAIL,
)
