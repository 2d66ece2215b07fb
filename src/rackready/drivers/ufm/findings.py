"""Findings about UFM, its partitions and its alarms."""

from __future__ import annotations

from rackready.model.finding_kinds import ErrorKind, FailKind, Kinds

_RUNBOOK = "docs/runbooks/infiniband.md"
_BY = "the fabric phase"

UNREAD = ErrorKind(
    "ufm-unread",
    "UFM not readable",
    meaning="UFM did not answer, or with something that rackready does not know: its ports and links were not "
    "compared with the plan.",
    next_step="Correct what the message says of UFM, then run `rackready fabric` again.",
    runbook=_RUNBOOK,
    by=_BY,
)
PARTITION = FailKind(
    "ufm-partition-differs",
    "partition in UFM",
    meaning="After the change, UFM's partition has other members than requested, or with another membership.",
    next_step="Look at the partition in UFM and at opensm's log on the UFM host, then run `rackready fabric` again.",
    runbook=_RUNBOOK,
    by=_BY,
)
OPEN = FailKind(
    "ufm-default-partition-full",
    "default partition",
    meaning="UFM makes every port a full member of the default partition, so tenants reach each other.",
    next_step="Set default_membership = limited in gv.cfg on the UFM host and restart UFM.",
    runbook=_RUNBOOK,
    by=_BY,
)
ALARM = FailKind(
    "ufm-alarm",
    "critical alarm in UFM",
    meaning="UFM has a critical alarm about this port or about the switch port at the other end of its cable.",
    next_step="Clear its cause, then the alarm in UFM.",
    runbook=_RUNBOOK,
    by=_BY,
)

FINDINGS: Kinds = (UNREAD, PARTITION, OPEN, ALARM)
