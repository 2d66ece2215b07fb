"""Drives: all are there, and none warns, wears out or has lost data."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats import smart
from rackready.gates.formats.error import FormatError
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, Wanted
from rackready.gates.judge import Judge
from rackready.model.outcome import Op

SCAN = Tool("scan", ("smartctl", "--scan-open", "--json"), "smartmontools")
HEALTH = Tool("smart", ("smartctl", "--all", "--json", "{}"), "smartmontools", each=("scan", "devices", "name"))
_NOT_READ = 0b111
"""Bits of smartctl's exit code that mean that the drive could not be asked (smartctl(8), exit status)."""
_NVME = "NVM Express base specification, SMART / health information log"
_ATA = "smartd.conf(5), -C and -U: pending and uncorrectable sectors warn above 0; judgement: so do sectors already moved and errors already reported"
_EXIT = "smartctl(8), exit status"
_FAILING, _FAILED_TEST = 1 << 4, 1 << 7
"""Bits of smartctl's exit code that are alarms now: a pre-failure attribute at or below its threshold; a self-test that failed (outdated ones do not count)."""
_ONCE = {1 << 5: "an attribute was at or below its threshold once", 1 << 6: "its error log has entries"}
"""Bits that tell of the past."""
_REPLACE = "Replace the drive."


def drives(judge: Judge, found: Answers) -> list[smart.Drive]:
    """Return every drive that smartctl could read; the others are errors."""
    text = found.text("scan")
    if text is None:
        return []
    try:
        names = smart.scan(text)
    except FormatError as error:
        judge.error(found.node, "smartctl's output is not understood", "a list of drives", error, AGAIN)
        return []
    return [drive for name in names if (drive := _drive(judge, found, name)) is not None]


def _drive(judge: Judge, found: Answers, name: str) -> smart.Drive | None:
    where = f"{found.node} {name}"
    text = found.text(f"smart {name}", good=None, where=where)
    if text is None:
        return None
    code = found.code(f"smart {name}")
    try:
        read = smart.drive(text)
    except FormatError as error:
        judge.error(where, "health of the drive cannot be read", "smartctl's document", f"{error} (exit {code})", f"Run `smartctl -a {name}` on the node.")
        return None
    if code & _NOT_READ:
        judge.error(where, "health of the drive cannot be read", "exit code without bits 0 to 2", f"exit {code}", f"Run `smartctl -a {name}` on the node.")
        return None
    if bool(code & 8) == read.passed:
        judge.error(where, "smartctl contradicts itself", "exit code and verdict agree", f"exit {code}, passed {read.passed}", f"Run `smartctl -a {name}`.")
        return None
    return replace(read, exit_code=code)


class Disks(HostGate):
    """Every drive is there, and none warns, wears out or has lost data."""

    id = "node/host/sanity/disks"
    what = "drives"

    class Inputs(base.Inputs):
        """What a site may know better."""

        drives: int | None = Field(None, ge=0, le=1000, description="drives of the host, at most 1000 (judgement); null: as the platform's profile says")
        max_used_percent: int = Field(
            100,
            ge=1,
            le=254,
            description=f"rated endurance that may be used up, percent; source of the default: {_NVME}, 100 is all of it, and 255 stands for all above 254",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> Wanted:  # noqa: ARG002 - the same on every node
        """List the drives, then read the health of each."""
        return Wanted((SCAN, HEALTH))

    def hold(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Hold number and health against profile and the drives' own limits."""
        node, parts = facts.node.name, facts.platform.host
        read = drives(judge, found)
        if judge.errors and not read:
            return
        wanted = self.inputs.drives if self.inputs.drives is not None else None if parts is None else parts.drives
        judge.judged += 1
        if wanted is None:
            step = "Declare `drives` in the gate set, or add `host` to the platform's profile with its source."
            judge.error(node, "number of drives cannot be judged", "a number in profile or gate set", "none", step)
        elif len(read) + len(judge.errors) != wanted:
            names = ", ".join(f"{drive.name} {drive.serial}" for drive in read)
            step = "Reseat the drive that is missing (compare serial numbers with the delivery's list), then replace it."
            judge.fail(node, "drives", f"{wanted} drives", f"{len(read)} ({names})", step)
        for drive in read:
            self._drive(judge, node, drive)
            self._alarms(judge, node, drive)

    def _drive(self, judge: Judge, node: str, drive: smart.Drive) -> None:
        where = f"{node} {drive.name} ({drive.model} {drive.serial})"
        judge.judged += 1
        if not drive.passed or drive.warning:
            words = "failed by its own verdict" if not drive.passed else "passed by its own verdict"
            mask = "" if drive.warning is None else f", critical warning 0x{drive.warning:02x}"
            judge.fail(where, "drive warns", "no warning", words + mask, _REPLACE)
        for name, value, bound, what, source in (
            ("drive_used", drive.used, self.inputs.max_used_percent, "rated endurance used", _NVME),
            ("drive_media_errors", drive.media_errors, 0, "media errors", _NVME),
            ("drive_reallocated", drive.reallocated, 0, "reallocated or pending sectors", _ATA),
            ("drive_uncorrectable", drive.uncorrectable, 0, "uncorrectable errors or sectors", _ATA),
        ):
            unit = "%" if name == "drive_used" else "1"
            if value is not None and not Limit(name, Op.LE, bound, unit, source).holds(judge, where, value):
                judge.fail(where, what, f"at most {bound}{'%' if unit == '%' else ''}", f"{value}{'%' if unit == '%' else ''}", _REPLACE)
        if drive.spare is not None and drive.spare_least is not None and drive.spare < drive.spare_least:
            judge.fail(where, "spare blocks", f"at least {drive.spare_least}% (the drive's own threshold)", f"{drive.spare}%", _REPLACE)

    @staticmethod
    def _alarms(judge: Judge, node: str, drive: smart.Drive) -> None:
        """Hold what smartctl itself warns of; what it or the drive says of the past is noted."""
        where = f"{node} {drive.name} ({drive.model} {drive.serial})"
        for bit, expected, actual in (
            (_FAILING, "every pre-failure attribute above its threshold", "one at or below it"),
            (_FAILED_TEST, "no self-test that failed", "one in the drive's log"),
        ):
            if drive.exit_code & bit:
                judge.fail(where, "smartctl warns", expected, f"{actual} (exit {drive.exit_code}; {_EXIT})", _REPLACE)
        past = [words for bit, words in _ONCE.items() if drive.exit_code & bit]
        if drive.critical_minutes:
            past.append(f"{drive.critical_minutes} minutes of its life above its critical temperature")
        if past:
            judge.remark(f"{drive.name}: {', '.join(past)}")
