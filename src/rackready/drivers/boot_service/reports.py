"""Reports of the imaging agent: files that nginx stored, validated one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field, ValidationError

from rackready.model.base import Model, Name
from rackready.model.problems import Message
from rackready.model.wanted import fault

SCHEMA = "rackready/imaging-report/v1"
REPORT_LIMIT = 256 << 10
"""Largest report in bytes, for nginx and for the reader. A machine with 60 disks writes some 20 KiB."""

Step = Literal["started", "disks", "erasing", "writing", "verified", "configured", "done", "refused", "failed"]
_NAME = re.compile(r"^(?P<boot>[0-9a-f]{8})-(?P<number>[0-9]{4})\.json$")


class ReportedDisk(Model):
    """One disk of the machine, as the agent found it."""

    path: str = Field(max_length=300, description="device, e.g. /dev/nvme0n1")
    serial: str = Field("", max_length=300, description="serial number, as the drive reports it")
    size: int = Field(ge=0, description="bytes")
    model: str = Field("", max_length=300, description="model, as the drive reports it")
    holds: list[str] = Field(default_factory=list, description="partition tables and file systems on it")
    chosen: Literal["", "system", "scratch"] | None = Field("", description="what the plan uses it for")


class Report(Model):
    """One step of the agent."""

    schema_: Literal["rackready/imaging-report/v1"] = Field(alias="schema")
    node: Name
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="digest of the plan that the agent follows")
    boot: str = Field(pattern=r"^[0-9a-f]{8}$", description="this boot of the ramdisk")
    at: AwareDatetime = Field(description="time by the machine's own clock, which may be wrong")
    step: Step
    seconds: float = Field(0, ge=0, description="time of this step, in seconds")
    percent: int | None = Field(None, ge=0, le=100, description="part of the image that is written")
    message: str = Field("", max_length=8000)
    code: str = Field("", pattern=r"^[a-z0-9-]{0,60}$", description="why it was refused or failed")
    disks: list[ReportedDisk] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reports:
    """What a node's folder of reports has. ``strange``: a message for each file that is no report of this plan."""

    reports: tuple[Report, ...]
    strange: tuple[Message, ...]


def read(folder: Path, node: str, digest: str = "") -> Reports:
    """Return the reports in a folder, in the order of arrival. ``digest``: only reports of this plan count.

    A file that cannot be read, or is of another plan, node or boot, is named in ``strange``. Boots follow each other by
    the time of their first report on this machine (a node's clock may be wrong), reports of one boot by their number.
    """
    found: list[tuple[str, int, Report]] = []
    first: dict[str, int] = {}
    strange = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = _NAME.match(path.name)
        item = _one(path, node, name["boot"], digest) if name else _message(path, "BOOT-NNNN.json", "another name")
        if isinstance(item, Message):
            strange.append(item)
        elif name:
            changed = path.stat().st_ctime_ns
            first[item.boot] = min(changed, first.get(item.boot, changed))
            found.append((item.boot, int(name["number"]), item))
    found.sort(key=lambda each: (first[each[0]], each[0], each[1]))
    return Reports(tuple(report for _, _, report in found), tuple(strange))


def _one(path: Path, node: str, boot: str, digest: str) -> Report | Message:
    try:
        size = path.stat().st_size
        if size > REPORT_LIMIT:
            return _message(path, f"at most {REPORT_LIMIT} bytes", f"{size} bytes")
        report = Report.model_validate_json(path.read_bytes())
    except ValidationError as error:
        return _message(path, SCHEMA, fault(error.errors(include_input=False)[0]))
    except OSError as error:
        return _message(path, "a readable file", error.strerror or error)
    for what, wanted, actual in (
        ("node", node, report.node),
        ("boot", boot, report.boot),
        ("plan", digest or report.digest, report.digest),
    ):
        if wanted != actual:
            return _message(path, f"{what} {wanted}", f"{what} {actual}")
    return report


def _message(path: Path, expected: object, actual: object) -> Message:
    return Message(
        path, "not a report of this plan", expected, actual, "It is ignored; look at the node's console for the reason."
    )
