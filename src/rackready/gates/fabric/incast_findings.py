"""Findings of cluster/fabric/stress/incast."""

from __future__ import annotations

from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_RUNBOOK = "docs/runbooks/incast.md"

NOT_SIDE_BY_SIDE = ErrorKind(
    "incast-not-side-by-side",
    "no incast",
    meaning="The senders together claim more than the port can carry, so they did not write at the same time.",
    next_step="They did not write side by side: start them on idle nodes, and with more seconds.",
)
NOT_FILLED = ErrorKind(
    "incast-not-filled",
    "no incast",
    meaning="The senders together did not fill the port, so no queue built up and nothing was tested.",
    next_step="The port was not filled, so nothing was tested: check the senders' rates (gate "
    f"pair/fabric/performance/ib-write-bw): {_RUNBOOK}",
    runbook=_RUNBOOK,
)
INCAST_UNREADABLE = ErrorKind(
    "incast-unreadable",
    "ib_write_bw unreadable",
    meaning="A sender's ib_write_bw exited with 0 and left no complete result.",
    next_step="Run the gate again.",
)
INCAST_SOMETHING_ELSE = ErrorKind(
    "incast-something-else",
    "ib_write_bw measured something else",
    meaning="A sender measured with other settings than the gate asked for.",
    next_step="Run the gate again.",
)
INCAST_OTHER_TIME = ErrorKind(
    "incast-other-time",
    "ib_write_bw wrote for another time",
    meaning="A sender wrote for a longer or shorter time than asked, so the senders did not all write side by side.",
    next_step="Run the gate again.",
)
PACKETS_LOST = FailKind(
    "incast-packets-lost",
    "packets lost in incast",
    meaning="Packets were lost, but RoCE needs a lossless fabric: jobs see retransmissions and time-outs.",
    next_step="Packets were dropped on the way from or to it: check the findings on its switch port, and "
    f"PFC on both ends (`mlnx_qos -i {{netdev}}`): {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NO_CLASS_BYTES = ErrorKind(
    "incast-no-bytes-by-priority",
    "bytes by priority",
    meaning="The NIC does not count bytes by priority, so the class of the data is unknown.",
    next_step="Check `ethtool -S` on the node: the driver must count bytes by priority (rx_prio3_bytes).",
)
DATA_CLASS = FailKind(
    "incast-data-class",
    "class of RoCE data",
    meaning="RoCE data used a class that the fabric does not protect: it may be dropped when a queue fills.",
    next_step=f"Check the traffic class (cat /sys/class/infiniband/{{device}}/tc/1/traffic_class) and "
    f"trust, and run fabric again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
PORT_BYTES = FailKind(
    "incast-port-bytes",
    "bytes {direction} by the port",
    meaning="The port carried fewer bytes than the senders wrote.",
    next_step="The data used another port, or was not sent: check the node's RDMA devices, and the raw "
    f"outputs of the senders in the report: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NO_PAUSES_COUNTED = ErrorKind(
    "incast-no-pauses-by-priority",
    "pause frames by priority",
    meaning="The NIC does not count pause frames by priority, so it is unknown whether PFC works.",
    next_step=f"mlx5 counts them where PFC is on: check `mlnx_qos -i {{netdev}}`, and run fabric again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
PAUSES_OF_OTHERS = FailKind(
    "incast-nic-pauses",
    "pause frames",
    meaning="The NIC sent or received pause frames of other classes: one class stops the others.",
    next_step=f"Turn global pause off (`ethtool -A`), and run fabric again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NO_CONGESTION_COUNTED = ErrorKind(
    "incast-no-congestion-counters",
    "counters of congestion",
    meaning="The NIC does not count marked packets and notifications, so it is unknown whether senders slow down.",
    next_step="Check /sys/class/infiniband/*/ports/1/hw_counters: the driver must count "
    "np_ecn_marked_roce_packets and np_cnp_sent.",
)
NO_ECN_MARKS = FailKind(
    "incast-no-ecn-marks",
    "ECN marks in incast",
    meaning="The port was filled and no packet was marked: ECN is off, and only pause frames slow the senders down.",
    next_step=f"Turn ECN on in the RoCE class of the switch: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NO_NOTIFICATIONS = FailKind(
    "incast-no-notifications",
    "congestion notifications",
    meaning="The receiver saw marked packets and sent no notification, so senders do not slow down.",
    next_step=f"Turn ECN on at the NIC (roce_np for priority 3, /sys/class/net/{{netdev}}/ecn), and run "
    f"fabric again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NO_CLASS_PACKETS = ErrorKind(
    "incast-no-packets-by-priority",
    "packets by priority",
    meaning="The NIC does not count packets by priority, so the class of notifications is unknown.",
    next_step="Check `ethtool -S` on the node: the driver must count packets by priority (tx_prio6_packets).",
)
NOTIFICATION_CLASS = FailKind(
    "incast-notification-class",
    "class of congestion notifications",
    meaning="Congestion notifications used another class than the fabric's: they may arrive too late.",
    next_step=f"Set the class of notifications (/sys/class/net/{{netdev}}/ecn/roce_np/cnp_dscp) and trust, "
    f"and run fabric again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
CABLE_NOT_DECLARED = ErrorKind(
    "incast-cable-not-declared",
    "cable not declared",
    meaning="The site file does not name the switch port of this NIC's cable, so the port's counters are not read.",
    next_step="Add the cable to links in site.yml, so that the switch's counters are read.",
)
NO_SWITCH_COUNTERS = ErrorKind(
    "incast-no-switch-counters",
    "switch counters",
    meaning="The switch reported no counters of this port.",
    next_step="Check that the port exists on the switch.",
)
SWITCH_UNCOUNTED = ErrorKind(
    "incast-switch-uncounted",
    "switch counters",
    meaning="The switch counts no drops of a queue or priority group that the fabric uses: it gave it no buffer.",
    next_step="Give it a buffer on the switch (SONiC: BUFFER_QUEUE or BUFFER_PG), and run the gate again.",
)
FRAMES_DROPPED = FailKind(
    "incast-frames-dropped",
    "frames dropped for want of buffer",
    meaning="The switch dropped frames of this port because its buffer was full: PFC does not stop the senders.",
    next_step=f"Check PFC on {{port}} of the switch, and run fabric again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
PORT_ERRORS = FailKind(
    "incast-switch-port-errors",
    "errors and drops of the port",
    meaning="The switch port counted errors under load: its cable, its module or the port itself is bad.",
    next_step="Check its cable and transceivers: docs/runbooks/link-down.md",
    runbook="docs/runbooks/link-down.md",
)
SWITCH_PAUSES = FailKind(
    "incast-switch-pauses",
    "pause frames",
    meaning="The switch port sent or received pause frames of other classes than the fabric's.",
    next_step=f"Compare QoS of switch and host: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NOT_ALL_WROTE = ErrorKind(
    "incast-not-all-wrote",
    "no incast",
    meaning="Some senders wrote much less than their share, so they did not all fill the port.",
    next_step="Check the slow sender's rail (gate pair/fabric/performance/ib-write-bw), then run the "
    f"gate again: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
NIC_COUNTERS_UNREADABLE = ErrorKind(
    "incast-nic-counters-unreadable",
    "NIC counters unreadable",
    meaning="The document of the NIC's counters is incomplete.",
    next_step="Run the gate again.",
)
NIC_COUNTERS_MISSING = ErrorKind(
    "incast-nic-counters-missing",
    "NIC counters",
    meaning="The NIC lacks counters that this gate judges.",
    next_step="Install ethtool; check that the mlx5 driver is loaded and counts them.",
)
NIC_COUNTERS_WENT_BACK = ErrorKind(
    "incast-nic-counters-went-back",
    "NIC counters",
    meaning="A counter of the NIC is smaller than before: the NIC was reset in between.",
    next_step="The NIC was reset in between: run the gate again.",
)
SWITCH_COUNTERS_UNREADABLE = ErrorKind(
    "incast-switch-counters-unreadable",
    "switch counters unreadable",
    meaning="The switch's answer is incomplete.",
    next_step="Log in to the switch and read the counters of a port; its management may be down.",
)
SWITCH_COUNTERS_WENT_BACK = ErrorKind(
    "incast-switch-counters-went-back",
    "switch counters",
    meaning="A counter of the switch is smaller than before: somebody cleared it in between.",
    next_step="Run the gate again.",
)

FINDINGS = (
    NOT_SIDE_BY_SIDE,
    NOT_FILLED,
    INCAST_UNREADABLE,
    INCAST_SOMETHING_ELSE,
    INCAST_OTHER_TIME,
    PACKETS_LOST,
    NO_CLASS_BYTES,
    DATA_CLASS,
    PORT_BYTES,
    NO_PAUSES_COUNTED,
    PAUSES_OF_OTHERS,
    NO_CONGESTION_COUNTED,
    NO_ECN_MARKS,
    NO_NOTIFICATIONS,
    NO_CLASS_PACKETS,
    NOTIFICATION_CLASS,
    CABLE_NOT_DECLARED,
    NO_SWITCH_COUNTERS,
    SWITCH_UNCOUNTED,
    FRAMES_DROPPED,
    PORT_ERRORS,
    SWITCH_PAUSES,
    NOT_ALL_WROTE,
    NIC_COUNTERS_UNREADABLE,
    NIC_COUNTERS_MISSING,
    NIC_COUNTERS_WENT_BACK,
    SWITCH_COUNTERS_UNREADABLE,
    SWITCH_COUNTERS_WENT_BACK,
)
