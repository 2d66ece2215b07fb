"""Reading of drives with smartctl and lsblk, for the gates on drives and firmware."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError
from rackready.gates.formats import smart
from rackready.gates.host.reading import AGAIN, Answers, Tool
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge
from rackready.model.place import Place

SCAN = Tool("scan", ("smartctl", "--scan-open", "--json"), "smartmontools")

HEALTH = Tool("smart", ("smartctl", "--all", "--json", "{}"), "smartmontools", each=("scan", "devices", "name"))

BLOCK = Tool("lsblk", ("lsblk", "--json", "--nodeps", "--exclude", "1,7,11", "--output", "PATH,TRAN,RM"), "util-linux")
"""Block devices without RAM disks, loops and optical drives: how each is attached, and whether it is removable."""

_NOT_READ = 0b111
"""Bits of smartctl's exit code for a drive that could not be read (smartctl(8), exit status)."""

SMART_UNREADABLE = ErrorKind(
    "smart-unreadable",
    "smartctl's output is not understood",
    meaning="smartctl printed something other than its documents.",
    next_step=AGAIN,
)

SMART_LIST = ErrorKind(
    "smart-list-contradicts",
    "smartctl's list contradicts its answers",
    meaning="smartctl answered for a drive that is not on its list.",
    next_step=AGAIN,
)

HEALTH_UNREADABLE = ErrorKind(
    "drive-health-unreadable",
    "health of the drive cannot be read",
    meaning="smartctl's document of this drive is not complete, so its health is unknown.",
    next_step="Run `smartctl -a {name}` on the node.",
)

HEALTH_REFUSED = ErrorKind(
    "drive-health-refused",
    "health of the drive cannot be read",
    meaning="smartctl could not read the drive, so its health is unknown.",
    next_step="Run `smartctl -a {name}` on the node.",
)

SMART_CONTRADICTS = ErrorKind(
    "smart-contradicts",
    "smartctl contradicts itself",
    meaning="smartctl's exit code and the drive's own verdict contradict each other.",
    next_step="Run `smartctl -a {name}` on the node.",
)

DRIVES_UNREADABLE = ErrorKind(
    "drives-unreadable",
    "lsblk's output is not understood",
    meaning="lsblk printed something other than its list of drives.",
    next_step=AGAIN,
)

READ = (SMART_UNREADABLE, SMART_LIST, HEALTH_UNREADABLE, HEALTH_REFUSED, SMART_CONTRADICTS, DRIVES_UNREADABLE)
"""Findings of reading the drives."""


def drives(judge: Judge, found: Answers, loose: Collection[str] = ()) -> list[smart.Drive]:
    """Return every drive that smartctl could read; others are errors. ``loose``: names of drives to leave out."""
    text = found.text("scan")
    if text is None:
        return []
    try:
        names = smart.scan(text)
    except FormatError as error:
        judge.error(found.node, SMART_UNREADABLE, "a list of drives", error)
        return []
    for name in sorted({key.split(" ", 1)[1] for key in found.repeated("smart")} - set(names)):
        judge.error(Place(found.node, name), SMART_LIST, "a drive of its list", "an answer, but no place on the list")
    return [drive for name in names if name not in loose and (drive := _drive(judge, found, name)) is not None]


def _drive(judge: Judge, found: Answers, name: str) -> smart.Drive | None:
    where = Place(found.node, name)
    text = found.text(f"smart {name}", good=None, where=where)
    if text is None:
        return None
    code = found.code(f"smart {name}")
    try:
        read = smart.drive(text)
    except FormatError as error:
        judge.error(where, HEALTH_UNREADABLE, "smartctl's document", f"{error} (exit {code})", name=name)
        return None
    if code & _NOT_READ:
        judge.error(where, HEALTH_REFUSED, "exit code without bits 0 to 2", f"exit {code}", name=name)
        return None
    if bool(code & 8) == read.passed:
        judge.error(
            where, SMART_CONTRADICTS, "exit code and verdict agree", f"exit {code}, passed {read.passed}", name=name
        )
        return None
    return replace(read, name=name, exit_code=code)


def of_the_host(item: Mapping[str, Any]) -> bool:
    """Return whether a block device of lsblk is the host's own: neither on USB nor removable. Raises KeyError."""
    return item["tran"] != "usb" and item["rm"] in {False, "0"}


def attached(judge: Judge, found: Answers) -> dict[str, bool]:
    """Return block device -> whether it is the host's own."""
    text = found.text("lsblk")
    if text is None:
        return {}
    try:
        return {str(item["path"]): of_the_host(item) for item in printed_json.load(text)["blockdevices"]}
    except (ValueError, KeyError, TypeError) as error:
        judge.error(found.node, DRIVES_UNREADABLE, "a list of block devices with transport", error)
        return {}
