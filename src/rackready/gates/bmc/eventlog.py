"""Redfish log services and their entries (DSP0268, LogService and LogEntry), and what an entry means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from rackready.gates.bmc import cper
from rackready.gates.bmc.documents import Document, name, numeric
from rackready.gates.judging.finding_kinds import FailKind
from rackready.model.commands import repair

_EPOCH_S = 946_684_800.0
"""2000-01-01: an older date comes from a BMC whose clock was not set yet, so it is no usable time."""
_END_S = 4_102_444_800.0
"""2100-01-01: an HGX BMC whose clock was not set writes 9999-12-31."""
_OVERWRITES = frozenset({None, "Unknown", "WrapsWhenFull"})
"""Policies (DSP0268, LogService) that do not show that a full log stops recording. A word that Redfish does not
define is not among them."""
_LONG = 160
_NOT_HEALTH = re.compile(r"maintenance|audit|security", re.IGNORECASE)
"""Matches names of services that record who did what (Supermicro's Log1 of the manager, Lenovo's maintenance log)."""

_OTHER = (
    f"Read the entry in the vendor's guide and do what it says. Then record the fix with {repair('{node}')}: older "
    "entries no longer count."
)
MEMORY_ENTRY = FailKind(
    "bmc-log-memory-error",
    "{before}memory error{after}",
    meaning="The server logged a memory error.",
    next_step="Reseat the DIMM that the entry names, run the memory test; if it comes back, replace the "
    "DIMM, then suspect the CPU's socket.",
)
CPU_ENTRY = FailKind(
    "bmc-log-cpu-error",
    "{before}CPU error{after}",
    meaning="The server logged a processor error.",
    next_step="Save the BMC's crash dump, update BIOS and microcode; "
    "if it comes back, replace the CPU, then the board.",
)
PCIE_ENTRY = FailKind(
    "bmc-log-pcie-error",
    "{before}PCIe error{after}",
    meaning="The server logged an error of a PCIe card or slot.",
    next_step="Find the slot that the entry names; reseat the card or riser, check firmware; "
    "if it comes back, replace the card.",
)
POWER_ENTRY = FailKind(
    "bmc-log-power-event",
    "{before}power supply event{after}",
    meaning="The server logged trouble with its power supplies or feeds.",
    next_step="Run bmc/power/sanity/supplies; repair supply or feed.",
)
FAN_ENTRY = FailKind(
    "bmc-log-fan-event",
    "{before}fan event{after}",
    meaning="The server logged trouble with a fan.",
    next_step="Run bmc/cooling/sanity/fans; replace the fan that the entry names.",
)
LEAK_ENTRY = FailKind(
    "bmc-log-leak-event",
    "{before}leak event{after}",
    meaning="The server logged a coolant leak.",
    next_step="Run bmc/cooling/sanity/leaks; find the leak before the node is used.",
)
HEAT_ENTRY = FailKind(
    "bmc-log-temperature-event",
    "{before}temperature event{after}",
    meaning="The server logged that something was too warm or too cold.",
    next_step="Run bmc/cooling/sanity/temperatures; check air and coolant.",
)
OTHER_ENTRY = FailKind(
    "bmc-log-event",
    "{before}event{after}",
    meaning="The server logged something that rackready cannot classify.",
    next_step=_OTHER,
)
_KINDS = (
    (
        re.compile(
            r"uncorrect\w*.{0,20}(ecc|memory)|multi-?bit|memory.{0,40}(uncorrect|fail)|dimm.{0,40}(uncorrect|fail|disabled)",
            re.IGNORECASE,
        ),
        MEMORY_ENTRY,
    ),
    (
        re.compile(r"ierr|catastrophic|machine check|mcerr|caterr|processor.{0,30}(error|fail|therm)", re.IGNORECASE),
        CPU_ENTRY,
    ),
    (
        re.compile(
            r"pcie?.{0,30}(fatal|uncorrect|error|perr|serr)|bus.{0,10}(fatal|uncorrect)|critical interrupt",
            re.IGNORECASE,
        ),
        PCIE_ENTRY,
    ),
    (re.compile(r"power supply|psu|ac lost|input lost|power unit|redundancy", re.IGNORECASE), POWER_ENTRY),
    (re.compile(r"\bfan\b|spd_fan", re.IGNORECASE), FAN_ENTRY),
    (re.compile(r"leak", re.IGNORECASE), LEAK_ENTRY),
    (re.compile(r"\btemp|thermal|overheat", re.IGNORECASE), HEAT_ENTRY),
)
FINDINGS = (*(kind for _, kind in _KINDS), OTHER_ENTRY)
_FAULTS = re.compile(
    r"uncorrect\w*.{0,20}(ecc|memory)|(ecc|memory).{0,20}uncorrect|multi-?bit.{0,10}ecc|\bierr\b|\bcaterr\b"
    r"|\bleak\w*( was)? detected|\bleak detect\w*.{0,10}critical",
    re.IGNORECASE,
)
"""Events after which no BMC may call its hardware OK. Narrow on purpose: BMCs log as OK, in words of faults,
thresholds that are crossed on the way back, supplies that were plugged in and much else ("Lower Non-recoverable
going high", "Soft-power control failure")."""
_OVER = re.compile(
    r"deassert|\b(cleared|resolved|recovered|restored|ended)\b|\bno (leak|uncorrect|multi)|\bnot detected"
    r"|\b(logging|monitoring|detection|reporting|support) (is |was )?(enabled|disabled|configured)\b",
    re.IGNORECASE,
)
"""Matches the text of an entry about something that is over, never happened, or is only monitored for."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a log.

    ``at``: seconds since 1970 by the BMC's clock, None where it had none. ``severity``: Redfish's word, or the text in
    its place. ``belittled``: the entry is about broken hardware, and its severity is OK.
    """

    at: float | None
    severity: str
    text: str
    dated: str
    belittled: bool = False


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Entries of the same kind and text. ``before`` and ``after``: words about the severity around the title."""

    kind: FailKind
    before: str
    after: str
    """Return the words before and after the kind's title that give the severity."""
    said: str


@dataclass(frozen=True, slots=True)
class Log:
    """One log service. ``keeps``: it takes no new entries when it is full."""

    key: str
    name: str
    entries: tuple[LogEntry, ...]
    size: int | None
    keeps: bool
    off: bool
    clock: float | None

    @property
    def times(self) -> list[float]:
        """Return the times of the entries that have one."""
        return [entry.at for entry in self.entries if entry.at is not None]

    @property
    def undated(self) -> int:
        """Return how many entries have no usable time."""
        return len(self.entries) - len(self.times)

    @property
    def full(self) -> bool:
        """Return whether the log holds as many entries as it can."""
        return self.size is not None and len(self.entries) >= self.size > 0

    @property
    def shown(self) -> str:
        """Return its length and age, in words."""
        return f"{len(self.entries)} entries" + (f", the oldest of {_dated(self)}" if self.times else "")


@dataclass(frozen=True, slots=True)
class LogMark:
    """Record of a log at the last pass: entries, time of the newest (0: none had one), entries without a time."""

    entries: float
    newest: float
    undated: float

    @classmethod
    def of(cls, about: Mapping[str, str], key: str) -> Self | None:
        """Return the mark of a log, or None when the last pass did not see it."""
        if key not in about:
            return None
        entries, newest, undated = about[key].split()
        return cls(float(entries), float(newest), float(undated))

    def cleared(self, log: Log) -> bool:
        """Return whether recorded entries are gone although the log had room: the newest of then is missing."""
        if self.entries == 0 or log.full:
            return False
        return len(log.entries) < self.entries or (self.newest > 0 and min(log.times, default=0.0) > self.newest)


def logs(services: Iterable[Document], entries: Iterable[Document]) -> list[Log]:
    """Return every log that a BMC has, with its entries."""
    lists: dict[str, list[Document]] = {}
    for entry in entries:
        lists.setdefault(str(entry.get("@odata.id", "")).rsplit("/Entries/", 1)[0], []).append(entry)
    found = []
    for service in (
        service for service in services if not _NOT_HEALTH.search(f"{service.get('Id', '')} {service.get('Name', '')}")
    ):
        address = str(service.get("@odata.id", "")).rstrip("/")
        mine = tuple(_entry(item) for item in lists.get(address, []))
        most = numeric(service.get("MaxNumberOfRecords"))
        found.append(
            Log(
                key="/".join(address.split("/")[-4:]),
                name=f"{address.rsplit('/LogServices/', 1)[0].rsplit('/', 1)[-1]} {name(service)}",
                entries=mine,
                size=int(most) if most is not None else None,
                keeps=service.get("OverWritePolicy") not in _OVERWRITES,
                off=service.get("ServiceEnabled") is False,
                clock=_time(service.get("DateTime")),
            )
        )
    return found


def _entry(document: Document) -> LogEntry:
    dated = document.get("EventTimestamp") or document.get("Created")
    text = str(
        document.get("Message") or cper.text(document) or document.get("MessageId") or document.get("Name") or "no text"
    )
    sensor = document.get("SensorType")
    shown = f"{sensor}: {text}" if sensor and str(sensor) not in text else text
    severity = str(cper.severity(document, document.get("Severity") or document.get("MessageSeverity")))
    over = document.get("Resolved") is True or document.get("EntryCode") == "Deassert" or _OVER.search(text)
    return LogEntry(
        _time(dated),
        severity,
        shown[:_LONG],
        str(dated or "no date"),
        severity == "OK" and bool(_FAULTS.search(shown)) and not over,
    )


def _time(value: object) -> float | None:
    """Return a time as seconds since 1970; None for none, or for one so old that the clock was not set."""
    try:
        at = datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None
    return at if _EPOCH_S <= at < _END_S else None


def grouped(entries: Sequence[LogEntry]) -> list[EventGroup]:
    """Return entries by kind and text, the worst first, each with its first and last date and its count."""
    by: dict[tuple[str, str], list[LogEntry]] = {}
    for entry in sorted(entries, key=lambda item: (item.severity != "Critical", item.at or 0.0)):
        by.setdefault((entry.severity, entry.text), []).append(entry)
    return [_group(severity, text, items) for (severity, text), items in by.items()]


def _group(severity: str, text: str, items: Sequence[LogEntry]) -> EventGroup:
    kind = next((kind for pattern, kind in _KINDS if pattern.search(text)), OTHER_ENTRY)
    dates = items[0].dated if len(items) == 1 else f"{items[0].dated} to {items[-1].dated}, {len(items)} times"
    before, after = ("", " that the BMC calls OK") if severity == "OK" else (f"{severity} ", "")
    return EventGroup(kind, before, after, f"{text} ({dates})")


def _dated(log: Log) -> str:
    return min((entry for entry in log.entries if entry.at is not None), key=lambda entry: entry.at or 0.0).dated
