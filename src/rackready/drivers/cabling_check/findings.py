"""Findings of the comparison of cables with the plan. Each stands for one cause and names both ends."""

from __future__ import annotations

from rackready.model.finding_kinds import ErrorKind, FailKind, Kinds

_RUNBOOK = "docs/runbooks/cabling.md"
_BY = "the cabling check"
_REPLUG = "{step}"

MISSING = FailKind(
    "cable-missing",
    "no link to {far}",
    meaning="Neither end of a planned cable has a link: it is not plugged in, broken, or one end is switched off.",
    next_step="Check the cable and both of its transceivers; plug it in where the plan says.",
    runbook=_RUNBOOK,
    by=_BY,
)
SWAPPED = FailKind(
    "cable-swapped",
    "{count} cables are crossed{rails}",
    meaning="Cables are plugged in at each other's ports. Each has a link, but to the wrong device or rail.",
    next_step=_REPLUG,
    steps=(
        "Swap the cables at leaf03 IB1/9/1 and IB1/9/2.",
        "Plug in as planned: node01 mlx5_0 (rack a01 unit 3, rail 1) to leaf01 IB1/1/1 (rack net unit 1); ...",
    ),
    runbook=_RUNBOOK,
    by=_BY,
)
WRONG_RAIL = FailKind(
    "cable-wrong-rail",
    "cable ends at rail {seen}",
    meaning="The NIC is connected to a leaf of another rail: collectives that keep to rails leave theirs.",
    next_step="Move the cable from {actual} to {planned}.",
    runbook=_RUNBOOK,
    by=_BY,
)
WRONG_PORT = FailKind(
    "cable-wrong-port",
    "cable ends at another port of {device}",
    meaning="The cable reaches the planned device, but not the planned port.",
    next_step="Move the cable from {actual} to {planned}.",
    runbook=_RUNBOOK,
    by=_BY,
)
WRONG_DEVICE = FailKind(
    "cable-wrong-device",
    "cable ends at {device}",
    meaning="The cable reaches another device of the site than the planned one.",
    next_step="Move the cable from {actual} to {planned}.",
    runbook=_RUNBOOK,
    by=_BY,
)
FOREIGN = FailKind(
    "cable-foreign-device",
    "device that the plan does not know",
    meaning="A device is connected to the fabric that the site does not declare, or whose name nobody set.",
    next_step="Unplug it, add it to the site, or set its name.",
    runbook=_RUNBOOK,
    by=_BY,
)
UNPLANNED = FailKind(
    "cable-unplanned",
    "link to {far} that the plan does not have",
    meaning="Two devices of the site are connected at ports for which the plan has no cable.",
    next_step="Unplug the cable, or add it to the site.",
    runbook=_RUNBOOK,
    by=_BY,
)
DEVICE_ABSENT = FailKind(
    "cable-device-absent",
    "none of its {count} cables has a link",
    meaning="A whole device is missing from the fabric: powered off, not booted, or all of its cables unplugged.",
    next_step="Check that the device has power and has booted; then check its cables.",
    runbook=_RUNBOOK,
    by=_BY,
)
DEVICE_EXCHANGED = FailKind(
    "cable-device-exchanged",
    "device is at the ports of {other}",
    meaning="All cables of a device are as planned for another one: the devices stand in each other's place, or their "
    "names are wrong.",
    next_step="Compare the serial numbers of both with the site; correct the names, or exchange the devices.",
    runbook=_RUNBOOK,
    by=_BY,
)
WIDTH = FailKind(
    "cable-width",
    "link of fewer lanes to {far}",
    meaning="The link trained with fewer lanes than planned: a lane of the cable or a transceiver is bad.",
    next_step="Reseat the cable at both ends; if it stays, replace the cable, then the transceivers.",
    runbook=_RUNBOOK,
    by=_BY,
)
SPEED = FailKind(
    "cable-speed",
    "link of another rate to {far}",
    meaning="The link does not run at the planned rate: part of another generation, bad signal, or a port set lower.",
    next_step="Compare the parts at both ends with the cable list; reseat or replace the cable.",
    runbook=_RUNBOOK,
    by=_BY,
)
ONE_SIDED = FailKind(
    "cable-one-sided",
    "only one end reports the link to {far}",
    meaning="The link works, but the agent at the far end does not report its neighbour.",
    next_step="Check the discovery agent of the end that reports nothing.",
    runbook=_RUNBOOK,
    by=_BY,
)
AMBIGUOUS = ErrorKind(
    "cable-ambiguous",
    "reports contradict each other",
    meaning="A port has several neighbours, or both ends of a link name other neighbours: nothing can be concluded.",
    next_step="Check for two agents on one port, or an unmanaged switch between; then read again.",
    runbook=_RUNBOOK,
    by=_BY,
)
UNREAD = ErrorKind(
    "cable-unread",
    "{count} of its cables were read at neither end",
    meaning="Neither this device nor the device at the far end of these cables was read: they were not compared.",
    next_step="Make one of the devices readable, then run the check again.",
    runbook=_RUNBOOK,
    by=_BY,
)
NOTHING_SEEN = ErrorKind(
    "cable-nothing-seen",
    "no links to compare",
    meaning="The plan has no cables or no link was read: nothing was checked.",
    next_step="Check that the discovery ran on a device of this fabric.",
    runbook=_RUNBOOK,
    by=_BY,
)

FINDINGS: Kinds = (
    *(MISSING, SWAPPED, WRONG_RAIL, WRONG_PORT, WRONG_DEVICE, FOREIGN, UNPLANNED, DEVICE_ABSENT, DEVICE_EXCHANGED),
    *(WIDTH, SPEED, ONE_SIDED, AMBIGUOUS, UNREAD, NOTHING_SEEN),
)
