"""Drives: all are there in their sizes, each once, and none warns, wears out or has lost data. What hangs on USB is no drive of the host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats import printed_json, smart
from rackready.gates.formats.error import FormatError
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, Wanted
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op

SCAN = Tool("scan", ("smartctl", "--scan-open", "--json"), "smartmontools")
HEALTH = Tool("smart", ("smartctl", "--all", "--json", "{}"), "smartmontools", each=("scan", "devices", "name"))
BLOCK = Tool("lsblk", ("lsblk", "--json", "--nodeps", "--exclude", "1,7,11", "--output", "PATH,TRAN,RM"), "util-linux")
"""Block devices without RAM disks, loops and optical drives: how each is attached, and whether its medium can be taken out."""
_NOT_READ = 0b111
"""Bits of smartctl's exit code that mean that the drive could not be asked (smartctl(8), exit status)."""
_NVME = "NVM Express base specification, SMART / health information log"
_ATA = (
    "smartd.conf(5), -C and -U: pending and uncorrectable sectors warn above 0; "
    "judgement: so do sectors already moved and errors already reported"
)
_EXIT = "smartctl(8), exit status"
_FAILING, _FAILED_TEST = 1 << 4, 1 << 7
"""Bits of smartctl's exit code that are alarms now: a pre-failure attribute at or below its threshold; a self-test that failed (outdated ones do not count)."""
_ONCE = {1 << 5: "an attribute was at or below its threshold once", 1 << 6: "its error log has entries"}
"""Bits that tell of the past."""
_REPLACE = "Replace the drive."
_GB = 10**9
_ROUNDING = 0.01
"""How far below its nominal capacity a drive may be; judgement: a drive holds what it is sold as (IDEMA LBA1-03: one of 1920 GB has 1,920,383,410,176 bytes),
and the next smaller one that is sold holds less by far."""


SMART_UNREADABLE = ErrorKind(
    "smart-unreadable",
    "smartctl's output is not understood",
    meaning="smartctl printed something else than its documents.",
    next_step=AGAIN,
)
SMART_LIST = ErrorKind(
    "smart-list-contradicts",
    "smartctl's list contradicts its answers",
    meaning="smartctl answered for a drive that its list does not have.",
    next_step=AGAIN,
)
HEALTH_UNREADABLE = ErrorKind(
    "drive-health-unreadable",
    "health of the drive cannot be read",
    meaning="smartctl's document of this drive is not whole, so its health is not known.",
    next_step="Run `smartctl -a {name}` on the node.",
)
HEALTH_REFUSED = ErrorKind(
    "drive-health-refused",
    "health of the drive cannot be read",
    meaning="smartctl could not ask the drive, so its health is not known.",
    next_step="Run `smartctl -a {name}` on the node.",
)
SMART_CONTRADICTS = ErrorKind(
    "smart-contradicts",
    "smartctl contradicts itself",
    meaning="smartctl's exit code and the drive's verdict do not agree.",
    next_step="Run `smartctl -a {name}`.",
)
DRIVES_UNREADABLE = ErrorKind(
    "drives-unreadable",
    "lsblk's output is not understood",
    meaning="lsblk printed something else than its list of drives.",
    next_step=AGAIN,
)
ATTACHMENT_UNKNOWN = ErrorKind(
    "drive-attachment-unknown",
    "how the drive is attached is not known",
    meaning="The list of drives lacks this drive, so nobody knows how it is attached.",
    next_step=AGAIN,
)
SERIAL_TWICE = ErrorKind(
    "drive-serial-twice",
    "drives with one serial number",
    meaning="Two drives tell one serial number, so evidence cannot name the part.",
    next_step="Look (`smartctl -i`) whether it is one drive under several names; "
    "else replace the one that tells another's serial number.",
)
COUNT_NOT_JUDGED = ErrorKind(
    "drive-count-not-judged",
    "number of drives cannot be judged",
    meaning="Nobody says how many drives the node must have.",
    next_step="Declare `drives` in the gate set, or add `host` to the platform's profile with its source.",
)
DRIVE_COUNT = FailKind(
    "drive-count",
    "drives",
    meaning="The node has another number of drives than it must.",
    next_step="Reseat the drive that is missing (compare serial numbers with the delivery's list), then replace it.",
)
CAPACITY = FailKind(
    "drive-capacity",
    "capacity of drives",
    meaning="Drives have less capacity than the platform's.",
    next_step="Put in drives of the capacity that the server was delivered with; "
    "a namespace that does not fill its drive is made anew (`nvme list`).",
)
CAPACITY_DIFFERS = FailKind(
    "drive-capacity-differs",
    "capacity of drives {model}",
    meaning="Drives of one model have different capacities.",
    next_step="Put in drives of the capacity that the server was delivered with; "
    "a namespace that does not fill its drive is made anew (`nvme list`).",
)
ENDURANCE_USED = FailKind(
    "drive-endurance-used",
    "rated endurance used",
    meaning="The drive wrote as much as it is rated for, or more than the gate set allows: it wears out.",
    next_step=_REPLACE,
)
MEDIA_ERRORS = FailKind(
    "drive-media-errors",
    "media errors",
    meaning="The drive could not read back data that it had written.",
    next_step=_REPLACE,
)
SECTORS_REALLOCATED = FailKind(
    "drive-sectors-reallocated",
    "reallocated or pending sectors",
    meaning="The drive replaced bad sectors by spare ones, or is about to.",
    next_step=_REPLACE,
)
SECTORS_UNCORRECTABLE = FailKind(
    "drive-uncorrectable",
    "uncorrectable errors or sectors",
    meaning="The drive has sectors that it cannot read any more.",
    next_step=_REPLACE,
)
DRIVE_WARNS = FailKind(
    "drive-warns",
    "drive warns",
    meaning="The drive itself says that it is failing.",
    next_step=_REPLACE,
)
SPARE_BLOCKS = FailKind(
    "drive-spare-blocks",
    "spare blocks",
    meaning="The drive has fewer spare blocks left than its own threshold.",
    next_step=_REPLACE,
)
SMART_WARNS = FailKind(
    "smart-warns",
    "smartctl warns",
    meaning="smartctl warns of this drive by its exit code.",
    next_step=_REPLACE,
)

READ = (SMART_UNREADABLE, SMART_LIST, HEALTH_UNREADABLE, HEALTH_REFUSED, SMART_CONTRADICTS, DRIVES_UNREADABLE)
"""What reading the drives can find."""
FINDINGS = (
    *READ,
    ENDURANCE_USED,
    MEDIA_ERRORS,
    SECTORS_REALLOCATED,
    SECTORS_UNCORRECTABLE,
    ATTACHMENT_UNKNOWN,
    SERIAL_TWICE,
    COUNT_NOT_JUDGED,
    DRIVE_COUNT,
    CAPACITY,
    CAPACITY_DIFFERS,
    DRIVE_WARNS,
    SPARE_BLOCKS,
    SMART_WARNS,
)


def drives(judge: Judge, found: Answers, loose: Collection[str] = ()) -> list[smart.Drive]:
    """Return every drive that smartctl could read; the others are errors. ``loose``: names of drives that are none of the host."""
    text = found.text("scan")
    if text is None:
        return []
    try:
        names = smart.scan(text)
    except FormatError as error:
        judge.error(found.node, SMART_UNREADABLE, "a list of drives", error)
        return []
    for name in sorted({key.split(" ", 1)[1] for key in found.repeated("smart")} - set(names)):
        judge.error(f"{found.node} {name}", SMART_LIST, "a drive of its list", "an answer, and no place on the list")
    return [drive for name in names if name not in loose and (drive := _drive(judge, found, name)) is not None]


def _drive(judge: Judge, found: Answers, name: str) -> smart.Drive | None:
    where = f"{found.node} {name}"
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
    """Whether a block device of lsblk is the host's own: neither on USB nor removable. KeyError where it does not say."""
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


def _known(judge: Judge, node: str, read: list[smart.Drive], listed: Mapping[str, bool]) -> None:
    """Say of which drives lsblk does not tell how they are attached; a controller of NVMe is on PCIe, and has no block device of its own name."""
    for drive in read:
        if not drive.name.startswith("/dev/nvme") and drive.name not in listed:
            judge.error(f"{node} {drive.name}", ATTACHMENT_UNKNOWN, "the drive on lsblk's list", "not there")


def _capacities(read: list[smart.Drive]) -> str:
    """Return drives by their capacity, the largest first, for people."""
    by_size: dict[str, list[str]] = {}
    for drive in sorted(read, key=lambda drive: drive.size, reverse=True):
        by_size.setdefault(f"{drive.size / 1e9:.0f} GB" if drive.size >= _GB else f"{drive.size} bytes", []).append(
            drive.name
        )
    return ", ".join(f"{len(names)} of {size} ({', '.join(names)})" for size, names in by_size.items())


class Disks(HostGate):
    """Every drive is there with its capacity, and none warns, wears out or has lost data."""

    id = "node/host/sanity/disks"
    findings = (*reading.FINDINGS, *FINDINGS)
    looks = True
    what = "drives"

    class Inputs(base.Inputs):
        """What a site may know better."""

        drives: int | None = Field(
            None,
            ge=0,
            le=1000,
            description="drives of the host, at most 1000 (judgement); null: as the platform's profile says",
        )
        max_used_percent: int = Field(
            100,
            ge=1,
            le=254,
            description="rated endurance that may be used up, percent; "
            f"source of the default: {_NVME}, 100 is all of it, "
            "and 255 stands for all above 254",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> Wanted:  # noqa: ARG002 - the same on every node
        """List the drives, then read the health of each."""
        return Wanted((SCAN, HEALTH, BLOCK))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Hold number, sizes and health against profile, siblings and the drives' own limits."""
        node, before = facts.node.name, len(judge.errors)
        known = attached(judge, found)
        loose = {name for name, own in known.items() if not own}
        unread = len(judge.errors)
        read = drives(judge, found, loose)
        unread = len(judge.errors) - unread
        if len(judge.errors) > before and not read:
            return
        for name in sorted(loose):
            judge.remark(f"{name}: on USB or removable, no drive of the host: not judged")
        _known(judge, node, read, known)
        if self._number(judge, facts, read, unread):
            self._sizes(judge, facts, read)
        for drive in read:
            self._drive(judge, node, drive)
            self._alarms(judge, node, drive)

    def _number(self, judge: Judge, facts: NodeFacts, read: list[smart.Drive], unread: int) -> bool:
        """Hold the number of drives against the profile's, and say whether it is right. A drive counts once, under whatever names it stands."""
        node, parts = facts.node.name, facts.platform.host
        wanted = self.inputs.drives if self.inputs.drives is not None else None if parts is None else parts.drives
        names = defaultdict(list)
        for drive in read:
            names[drive.serial].append(drive.name)
        for serial, same in names.items():
            if len(same) > 1:
                judge.error(
                    node, SERIAL_TWICE, "a serial number of its own on every drive", f"{serial} on {', '.join(same)}"
                )
        judge.judged += 1
        if wanted is None:
            judge.error(node, COUNT_NOT_JUDGED, "a number in profile or gate set", "none")
        elif len(names) + unread != wanted:
            shown = ", ".join(f"{drive.name} {drive.serial}" for drive in read)
            judge.fail(node, DRIVE_COUNT, f"{wanted} drives", f"{len(names)} ({shown})")
        return wanted is not None and len(read) == wanted

    def _sizes(self, judge: Judge, facts: NodeFacts, read: list[smart.Drive]) -> None:
        """Hold capacities against the profile's, the largest against the largest; where it publishes none, against drives of the same model."""
        node, parts = facts.node.name, facts.platform.host
        if self.inputs.drives is None and parts is not None and parts.drive_gb:
            wanted = sorted((gb for gb, count in parts.drive_gb.items() for _ in range(count)), reverse=True)
            pairs = zip(wanted, sorted(read, key=lambda drive: drive.size, reverse=True), strict=True)
            limits = [
                (Limit("drive_capacity", Op.GE, gb * (1 - _ROUNDING), "GB", parts.source, derived=True), drive)
                for gb, drive in pairs
            ]
            good = [limit.holds(judge, f"{node} {drive.name}", drive.size / 1e9) for limit, drive in limits]
            if not all(good):
                expected = ", ".join(
                    f"{count} of {gb} GB" for gb, count in sorted(parts.drive_gb.items(), reverse=True)
                )
                judge.fail(node, CAPACITY, f"at least {expected}", _capacities(read))
            return
        models = defaultdict(list)
        for drive in read:
            models[drive.model].append(drive)
        judge.judged += 1
        for model, alike in models.items():
            if len({drive.size for drive in alike}) > 1:
                judge.fail(
                    node, CAPACITY_DIFFERS, "one capacity on all drives of a model", _capacities(alike), model=model
                )
        alone = ", ".join(alike[0].name for alike in models.values() if len(alike) == 1)
        judge.remark(
            "no capacities are published for its drives: held against others of the same model only"
            + (f", {alone} against nothing" if alone else "")
        )

    def _drive(self, judge: Judge, node: str, drive: smart.Drive) -> None:
        where = f"{node} {drive.name} ({drive.model} {drive.serial})"
        judge.judged += 1
        if not drive.passed or drive.warning:
            words = "failed by its own verdict" if not drive.passed else "passed by its own verdict"
            mask = "" if drive.warning is None else f", critical warning 0x{drive.warning:02x}"
            judge.fail(where, DRIVE_WARNS, "no warning", words + mask)
        for name, value, bound, kind, source in (
            ("drive_used", drive.used, self.inputs.max_used_percent, ENDURANCE_USED, _NVME),
            ("drive_media_errors", drive.media_errors, 0, MEDIA_ERRORS, _NVME),
            ("drive_reallocated", drive.reallocated, 0, SECTORS_REALLOCATED, _ATA),
            ("drive_uncorrectable", drive.uncorrectable, 0, SECTORS_UNCORRECTABLE, _ATA),
        ):
            unit = "%" if name == "drive_used" else "1"
            if value is not None and not Limit(name, Op.LE, bound, unit, source).holds(judge, where, value):
                judge.fail(
                    where, kind, f"at most {bound}{'%' if unit == '%' else ''}", f"{value}{'%' if unit == '%' else ''}"
                )
        if drive.spare is not None and drive.spare_least is not None and drive.spare < drive.spare_least:
            judge.fail(
                where, SPARE_BLOCKS, f"at least {drive.spare_least}% (the drive's own threshold)", f"{drive.spare}%"
            )

    @staticmethod
    def _alarms(judge: Judge, node: str, drive: smart.Drive) -> None:
        """Hold what smartctl itself warns of; what it or the drive says of the past is noted."""
        where = f"{node} {drive.name} ({drive.model} {drive.serial})"
        for bit, expected, actual in (
            (_FAILING, "every pre-failure attribute above its threshold", "one at or below it"),
            (_FAILED_TEST, "no self-test that failed", "one in the drive's log"),
        ):
            if drive.exit_code & bit:
                judge.fail(where, SMART_WARNS, expected, f"{actual} (exit {drive.exit_code}; {_EXIT})")
        past = [words for bit, words in _ONCE.items() if drive.exit_code & bit]
        if drive.replaced:
            past.append(f"{drive.replaced} of its flash blocks were replaced from its reserve (attribute 5)")
        if drive.critical_minutes:
            past.append(f"{drive.critical_minutes} minutes of its life above its critical temperature")
        if past:
            judge.remark(f"{drive.name}: {', '.join(past)}")
