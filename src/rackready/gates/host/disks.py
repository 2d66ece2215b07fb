"""The gate on drives: number, capacity and health. Drives on USB are not the host's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats import smart
from rackready.gates.host import drive_reading, reading
from rackready.gates.host.drive_reading import BLOCK, HEALTH, SCAN, attached, drives
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.model.place import Place

_NVME = "NVM Express base specification, SMART / health information log"
_ATA = (
    "smartd.conf(5), -C and -U: pending and uncorrectable sectors warn above 0; "
    "judgement: so do sectors already moved and errors already reported"
)
_EXIT = "smartctl(8), exit status"
_FAILING, _FAILED_TEST = 1 << 4, 1 << 7
"""Bits of smartctl's exit code that are alarms now.

A pre-failure attribute at or below its threshold; a failed self-test (outdated ones do not count).
"""
_PAST = {1 << 5: "an attribute was at or below its threshold once", 1 << 6: "its error log has entries"}
"""Bits about the past."""
_REPLACE = "Replace the drive."
_GB = 10**9
_ROUNDING = 0.01
"""How far below its nominal capacity a drive may be, as a share.

Judgement: a drive holds its nominal capacity (IDEMA LBA1-03: one of 1920 GB has 1,920,383,410,176 bytes), and the next
smaller one on the market holds far less.
"""


ATTACHMENT_UNKNOWN = ErrorKind(
    "drive-attachment-unknown",
    "attachment of the drive unknown",
    meaning="The list of drives lacks this drive, so it is unknown how it is attached.",
    next_step=AGAIN,
)
SERIAL_TWICE = ErrorKind(
    "drive-serial-twice",
    "drives with one serial number",
    meaning="Several drives report one serial number, so evidence cannot name the part.",
    next_step="Check with `smartctl -i` whether this is one drive under several names; "
    "if not, replace the drive with the wrong serial number.",
)
COUNT_NOT_JUDGED = ErrorKind(
    "drive-count-not-judged",
    "number of drives cannot be judged",
    meaning="Neither the platform profile nor the gate set declares how many drives the node must have.",
    next_step="Declare `drives` in the gate set, or add `host` to the platform profile with its source.",
)
DRIVE_COUNT = FailKind(
    "drive-count",
    "drives",
    meaning="The node has another number of drives than it should.",
    next_step="Reseat the missing drive (compare the serial numbers with the delivery list), then replace it.",
)
CAPACITY = FailKind(
    "drive-capacity",
    "capacity of drives",
    meaning="Drives have less capacity than the platform's.",
    next_step="Install drives of the capacity that the server was delivered with. "
    "If a namespace does not fill its drive, recreate it (`nvme list`).",
)
CAPACITY_DIFFERS = FailKind(
    "drive-capacity-differs",
    "capacity of drives {model}",
    meaning="Drives of one model have different capacities.",
    next_step="Install drives of the capacity that the server was delivered with. "
    "If a namespace does not fill its drive, recreate it (`nvme list`).",
)
ENDURANCE_USED = FailKind(
    "drive-endurance-used",
    "rated endurance used",
    meaning="The drive has used more of its rated endurance than the gate set allows: it wears out.",
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
    meaning="The drive has sectors that it can no longer read.",
    next_step=_REPLACE,
)
DRIVE_WARNS = FailKind(
    "drive-warns",
    "drive warns",
    meaning="The drive reports that it is failing.",
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
    meaning="smartctl's exit code warns about this drive.",
    next_step=_REPLACE,
)

FINDINGS = (
    *drive_reading.READ,
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


def _check_attachment(judge: Judge, node: str, read: list[smart.Drive], listed: Mapping[str, bool]) -> None:
    """Add an error for every drive that lsblk does not list.

    An NVMe controller is on PCIe and has no block device of its own name.
    """
    for drive in read:
        if not drive.name.startswith("/dev/nvme") and drive.name not in listed:
            judge.error(Place(node, drive.name), ATTACHMENT_UNKNOWN, "the drive on lsblk's list", "not there")


def _capacities(read: list[smart.Drive]) -> str:
    """Return the drives by capacity, the largest first, as text."""
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
        """Number of drives, and limit on their wear."""

        drives: int | None = Field(
            None,
            ge=0,
            le=1000,
            description="drives of the host, at most 1000 (judgement); null: as in the platform profile",
        )
        max_used_percent: int = Field(
            100,
            ge=1,
            le=254,
            description="rated endurance that may be used up, percent; "
            f"source of the default: {_NVME}: 100 is all of it, 255 stands for all above 254",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the list of drives, then the health of each."""
        return WantedValues((SCAN, HEALTH, BLOCK))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare number, capacity and health with the profile, siblings and the drives' own limits."""
        node, before = facts.node.name, len(judge.errors)
        known = attached(judge, found)
        loose = {name for name, own in known.items() if not own}
        unread = len(judge.errors)
        read = drives(judge, found, loose)
        unread = len(judge.errors) - unread
        if len(judge.errors) > before and not read:
            return
        for name in sorted(loose):
            judge.remark(f"{name}: on USB or removable, so not the host's: not judged")
        _check_attachment(judge, node, read, known)
        if self._number(judge, facts, read, unread):
            self._sizes(judge, facts, read)
        for drive in read:
            self._drive(judge, node, drive)
            self._alarms(judge, node, drive)

    def _number(self, judge: Judge, facts: NodeFacts, read: list[smart.Drive], unread: int) -> bool:
        """Return whether the number of drives is the profile's; else fail. A drive under two names counts once."""
        node, parts = facts.node.name, facts.platform.host
        wanted = self.inputs.drives if self.inputs.drives is not None else None if parts is None else parts.drives
        names = defaultdict(list)
        for drive in read:
            names[drive.serial].append(drive.name)
        for serial, same in names.items():
            if len(same) > 1:
                judge.error(
                    node, SERIAL_TWICE, "a different serial number on every drive", f"{serial} on {', '.join(same)}"
                )
        judge.judged += 1
        if wanted is None:
            judge.error(node, COUNT_NOT_JUDGED, "a number in profile or gate set", "none")
        elif len(names) + unread != wanted:
            shown = ", ".join(f"{drive.name} {drive.serial}" for drive in read)
            judge.fail(node, DRIVE_COUNT, f"{wanted} drives", f"{len(names)} ({shown})")
        return wanted is not None and len(read) == wanted

    def _sizes(self, judge: Judge, facts: NodeFacts, read: list[smart.Drive]) -> None:
        """Compare capacities with the profile's, largest first; if it has none, with drives of the same model."""
        node, parts = facts.node.name, facts.platform.host
        if self.inputs.drives is None and parts is not None and parts.drive_gb:
            wanted = sorted((gb for gb, count in parts.drive_gb.items() for _ in range(count)), reverse=True)
            pairs = zip(wanted, sorted(read, key=lambda drive: drive.size, reverse=True), strict=True)
            limits = [
                (Limit("drive_capacity", Op.GE, gb * (1 - _ROUNDING), "GB", parts.source, derived=True), drive)
                for gb, drive in pairs
            ]
            good = [limit.holds(judge, Place(node, drive.name), drive.size / 1e9) for limit, drive in limits]
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
            "no capacities are published for the drives: compared only with others of the same model"
            + (f" (none for {alone})" if alone else "")
        )

    def _drive(self, judge: Judge, node: str, drive: smart.Drive) -> None:
        where = Place(node, drive.name, f"({drive.model} {drive.serial})")
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
        """Fail for smartctl's present warnings; its warnings about the past are noted."""
        where = Place(node, drive.name, f"({drive.model} {drive.serial})")
        for bit, expected, actual in (
            (_FAILING, "every pre-failure attribute above its threshold", "one at or below it"),
            (_FAILED_TEST, "no self-test that failed", "one in the drive's log"),
        ):
            if drive.exit_code & bit:
                judge.fail(where, SMART_WARNS, expected, f"{actual} (exit {drive.exit_code}; {_EXIT})")
        past = [words for bit, words in _PAST.items() if drive.exit_code & bit]
        if drive.replaced:
            past.append(f"{drive.replaced} of its flash blocks were replaced from its reserve (attribute 5)")
        if drive.critical_minutes:
            past.append(f"{drive.critical_minutes} minutes above its critical temperature so far")
        if past:
            judge.remark(f"{drive.name}: {', '.join(past)}")
