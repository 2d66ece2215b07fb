"""Comparison of the times that outputs contain with the manifest's, to detect old outputs with a new stamp.

Many outputs contain no time (DCGM's diagnostics, nvbandwidth, perftest, NCCL's text, NVML): for those only the
manifest's counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rackready.drivers import redfish_read
from rackready.gates.records.captured import Capture
from rackready.model.evidence import CapturedOutput
from rackready.model.problems import Message
from rackready.ondevice import host_read, under_load

_SLACK_S = 300.0
"""Tolerance for clocks, and for a time that a person wrote down, s. Judgement: NTP keeps clocks within a second."""
_DAY_S = 86_400.0
_BMC_SLACK_S = _DAY_S
"""The same for a BMC's clock, s. Judgement: many report local time as UTC (up to 14 h), and have no NTP."""
_SYNC_SLACK_S = _DAY_S
"""Largest age of the last clock update, s. Judgement: chronyd polls every 1024 s (chrony.conf(5), maxpoll)."""
_LONGEST_S = _DAY_S
"""Assumed duration of a command if the manifest has none, s. Judgement: no gate's command takes as long."""
_OFFSETS_S = range(-12 * 3600, 14 * 3600 + 1, 900)
"""Offsets of time zones from UTC, s: from -12:00 to +14:00, in quarters of an hour (IANA time zone database)."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CTIME = (
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) "
    r"(?P<year>\d{4})"
)
"""A date as ctime(3) and asctime(3) print it: in local time, and without its zone."""
_LINES = tuple(
    (what, re.compile(form.replace("CTIME", _CTIME), re.MULTILINE))
    for what, form in (
        ("the timestamp of nvidia-smi", r"^\s*<timestamp>CTIME</timestamp> *$"),
        ("the timestamp of nvidia-smi", r"^Timestamp +: CTIME *$"),
        ("the first line of nvidia-smi", r"^CTIME *$"),
        ("the start time of HPL", r"^HPL_pdgesv\(\) start time CTIME *$"),
    )
)
"""Tools that print such a date (nvidia-smi -q -x, -q and without options; HPL_pdtest.c), and its pattern."""
_JOURNAL = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d) \S+ \S+: ", re.MULTILINE)
"""A line of `journalctl --output=short-iso`."""
_REDFISH = ("#Manager.", "#LogService.")
_REF_TIME = 3
"""Index of the time of chronyd's last update, s since 1970 (chronyc(1), tracking; client.c, process_cmd_tracking)."""


@dataclass(frozen=True, slots=True)
class PrintedTime:
    """A time that an output contains. ``at``: without a zone if the output has none."""

    what: str
    at: datetime
    early_s: float = _SLACK_S
    """How long before the start of the command it may be, s."""
    late_s: float = _SLACK_S
    """How long after the end of the command it may be, s."""

    def fits(self, first: float, last: float) -> bool:
        """Return whether it can be in this span (seconds since 1970). A time without a zone may be in any zone."""
        own = self.at.timestamp() if self.at.tzinfo is not None else self.at.replace(tzinfo=UTC).timestamp()
        offsets = (0,) if self.at.tzinfo is not None else _OFFSETS_S
        return any(first - self.early_s <= own - offset <= last + self.late_s for offset in offsets)


def problems(capture: Capture) -> list[Message]:
    """Return a problem for each output that contains another time than the manifest, with both times."""
    found = []
    for item in capture.manifest.outputs:
        first = item.time.timestamp()
        last = first + (item.seconds or _LONGEST_S)
        wrong = next((made for made in printed_times(capture.files[item.file]) if not made.fits(first, last)), None)
        if wrong is not None:
            found.append(_problem(item, wrong))
    return found


def _problem(item: CapturedOutput, made: PrintedTime) -> Message:
    took = f" for {item.seconds:g} s" if item.seconds else ""
    zone = "" if made.at.tzinfo is not None else ", in any time zone"
    step = "Correct the capture time in the manifest, or the wrong clock, and import it again."
    return Message(
        item.node,
        f"{item.gate} {item.key}, {item.file}",
        expected=f"made at the time in the manifest, {item.time.isoformat()}{took}",
        actual=f"{made.what} is {made.at.isoformat()}{zone}",
        next_step=step,
    )


def printed_times(text: str) -> list[PrintedTime]:
    """Return the times that an output contains; empty if it has none or cannot be read."""
    return [*_of_lines(text), *_of_document(text)]


def _of_lines(text: str) -> Iterator[PrintedTime]:
    for what, pattern in _LINES:
        yield from (PrintedTime(what, at) for match in pattern.finditer(text) if (at := _ctime(match)) is not None)
    newest = max((at for word in _JOURNAL.findall(text) if (at := _iso(word)) is not None), default=None)
    if newest is not None:  # the log of a quiet machine may end long before it is read
        yield PrintedTime("the newest line of the kernel's log", newest, early_s=math.inf)


def _of_document(text: str) -> Iterator[PrintedTime]:
    try:
        document = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    reader = _FORMATS.get(document.get("format")) if isinstance(document.get("format"), str) else None
    yield from reader(document) if reader is not None else _of_tool(document)


def _of_tool(document: Mapping[str, Any]) -> Iterator[PrintedTime]:
    """Yield the times in JSON of fio, smartctl and nccl-tests: epochs, and a date in ISO 8601."""
    local = document.get("local_time")
    if "fio version" in document:
        yield from _epoch("the timestamp of fio", document.get("timestamp"))
    if isinstance(local, Mapping) and "smartctl" in document:
        yield from _epoch("the local time of smartctl", local.get("time_t"))
    if isinstance(start := document.get("start_time"), str) and (at := _iso(start)) is not None:
        yield PrintedTime("the start time of nccl-tests", at)


def _of_readings(document: Mapping[str, Any]) -> Iterator[PrintedTime]:
    """Yield the times in the tools' outputs of a document of readings."""
    commands = document.get("commands")
    for answer in commands.values() if isinstance(commands, Mapping) else ():
        text = answer.get("stdout") if isinstance(answer, Mapping) else None
        if not isinstance(text, str):
            continue
        argv = answer.get("argv")
        if isinstance(argv, list) and argv[:1] == ["chronyc"]:
            yield from _of_chrony(text)
        else:
            yield from printed_times(text)


def _of_chrony(text: str) -> Iterator[PrintedTime]:
    fields = text.strip().split(",")
    at = next(_epoch("", _number(fields[_REF_TIME])), None) if len(fields) > _REF_TIME else None
    if at is not None and at.at.timestamp() > 0:  # 0: no source ever set the clock; its gate reports that
        yield PrintedTime("the reference time of chronyd", at.at, early_s=_SYNC_SLACK_S)


def _of_load(document: Mapping[str, Any]) -> Iterator[PrintedTime]:
    yield from _of_lines(str(document.get("last") or ""))


def _of_bmc(document: Mapping[str, Any]) -> Iterator[PrintedTime]:
    documents = document.get("documents")
    for item in documents.values() if isinstance(documents, Mapping) else ():
        kind, clock = (item.get(key) if isinstance(item, Mapping) else None for key in ("@odata.type", "DateTime"))
        if (
            isinstance(kind, str)
            and kind.startswith(_REDFISH)
            and isinstance(clock, str)
            and (at := _iso(clock)) is not None
        ):
            yield PrintedTime(
                "the clock of the BMC",
                at if at.tzinfo is not None else at.replace(tzinfo=UTC),
                _BMC_SLACK_S,
                _BMC_SLACK_S,
            )


_FORMATS: Mapping[object, Callable[[Mapping[str, Any]], Iterator[PrintedTime]]] = {
    host_read.FORMAT: _of_readings,
    under_load.FORMAT: _of_load,
    redfish_read.FORMAT: _of_bmc,
}


def _epoch(what: str, value: object) -> Iterator[PrintedTime]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            yield PrintedTime(what, datetime.fromtimestamp(value, UTC))
        except (ValueError, OverflowError, OSError):
            return


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _iso(word: str) -> datetime | None:
    try:
        return datetime.fromisoformat(word)
    except ValueError:
        return None


def _ctime(match: re.Match[str]) -> datetime | None:
    """Return a date that ctime printed; None if there is no such date."""
    if match["month"] not in _MONTHS:
        return None
    return _iso(f"{match['year']}-{_MONTHS.index(match['month']) + 1:02d}-{int(match['day']):02d}T{match['clock']}")
