"""Event logs of the BMC (SEL and Redfish logs): entries since the last pass.

Times are the BMC's own: a pass records the BMC's clock, so a wrong clock is wrong on both sides. Entries from before
the last pass do not count again. A log that was cleared, or that wrapped past the last pass, may have held anything:
that is an error until somebody records with `rackready repair` that it was dealt with (or the input ``since`` gives a
time). Without either, every entry counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field, Strict

from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, LastPass, Outputs, Run
from rackready.gates.bmc import eventlog, owner
from rackready.gates.bmc.documents import BmcAnswer, Document
from rackready.gates.bmc.eventlog import Log, LogEntry, LogMark, grouped, logs
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.commands import repair
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_SKIPPED = "*!*audit*,lclog,*lifecycle*,*dump*,*postcode*,*journal*,*debug*,*diagnostic*,fdr,iel,sl,event,*securitylog*"
"""Logs that record logins or configuration changes, and memory dumps: they do not show hardware health, and have
thousands of pages on some BMCs. An iLO's Event log lists the alerts that it sent (HPE, log services): a warning at
every restart of the server; its hardware events are in the IML."""
SERVICES = tuple(f"{place}/*/LogServices/{_SKIPPED}" for place in ("Managers", "Systems", "Chassis"))
ENTRIES = tuple(f"{place}/Entries/*" for place in SERVICES)
_MANAGERS = "Managers/*!hgx_*"
_SEVERITIES = frozenset({"OK", "Warning", "Critical"})
_SHOWN = 12


NO_LOG = ErrorKind(
    "bmc-no-event-log",
    "no event log",
    meaning="The BMC keeps no log, so nothing that happened before now is known.",
    next_step="Update the BMC's firmware: without a log, past events are unknown.",
)
CLOCK_NOT_REPORTED = ErrorKind(
    "bmc-clock-not-reported",
    "clock not reported",
    meaning="The BMC does not report its time, so entries of its log cannot be dated.",
    next_step="Set the BMC's clock (NTP).",
)
LOG_OFF = ErrorKind(
    "bmc-log-off",
    "log switched off",
    meaning="The log is switched off, so what happens now is not recorded.",
    next_step="Switch it on, so that new events are recorded.",
)
NO_SEVERITY = ErrorKind(
    "bmc-entry-no-severity",
    "entry without a severity",
    meaning="An entry of the log does not have a severity.",
    next_step="Update the BMC's firmware.",
)
FURTHER_ENTRIES = FailKind(
    "bmc-further-entries",
    "further entries",
    meaning="The log has more kinds of bad entries than the findings name.",
    next_step="Read the whole log in the raw output.",
)
_DEALT_WITH = (
    "Read what else recorded that time (syslog, the BMC's other logs), then record with "
    f"{repair('{node}')} that it was dealt with."
)
LOG_FULL = ErrorKind(
    "bmc-log-full",
    "log full",
    meaning="The log is full and takes no new entries.",
    next_step=f"Save and clear it. {_DEALT_WITH}",
)
LOG_WRAPPED = ErrorKind(
    "bmc-log-wrapped",
    "log wrapped",
    meaning="The log has overwritten entries that were never judged.",
    next_step=_DEALT_WITH,
)
LOG_CLEARED = ErrorKind(
    "bmc-log-cleared",
    "log cleared since the last pass",
    meaning="Somebody cleared the log since the last pass, so entries may be gone that were never judged.",
    next_step=_DEALT_WITH,
)
ENTRIES_AHEAD = ErrorKind(
    "bmc-entries-ahead",
    "entries count from a time in the future",
    meaning="Entries count from a time that the BMC's clock has not reached, so none would count.",
    next_step="Set the BMC's clock (NTP) or the input `since`, read the log by hand, then record with "
    f"{repair('{node}')} that it was dealt with.",
)

FINDINGS = (
    NO_LOG,
    CLOCK_NOT_REPORTED,
    LOG_OFF,
    NO_SEVERITY,
    FURTHER_ENTRIES,
    LOG_FULL,
    LOG_WRAPPED,
    LOG_CLEARED,
    ENTRIES_AHEAD,
)


class Events(Gate):
    """The BMC's event logs hold no bad entry newer than the last pass, and no entry was lost."""

    id = "bmc/log/sanity/events"
    findings = (
        *eventlog.FINDINGS,
        *owner.FINDINGS,
        *FINDINGS,
    )
    looks = True
    since_last_pass = True

    class Inputs(base.Inputs):
        """The time from which entries count, and their severity."""

        since: Annotated[AwareDatetime, Strict(strict=False)] | None = Field(
            None,
            description="entries before this time (of the BMC's clock) were read and dealt with; none: "
            "since the last pass",
        )
        warnings: bool = Field(default=True, description="entries of severity Warning count, too")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one request to each BMC, with what the last pass saw."""
        return [
            Run.of_node(
                node,
                owner.ask(node, *SERVICES, *ENTRIES, _MANAGERS, timeout_s=300),
                about=_marks(facts.passed.get((self.id, node))),
            )
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every log: first lost entries, then new ones."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "event logs", run, outputs)
        if found is None:
            return judge.verdict(node)
        there = logs(found.at(*SERVICES), found.at(*ENTRIES))
        if not there:
            judge.error(Place(node, "BMC"), NO_LOG, "a log service with entries", "none")
        clock = _clock(found, there)
        if clock is None:
            judge.error(Place(node, "BMC"), CLOCK_NOT_REPORTED, "DateTime of its log service or manager", "none")
        else:
            judge.metric("bmc_clock", f"{node}/bmc", clock, "s since 1970")
            by_its_clock = (
                run.about if set(run.about) != {"since"} else {}
            )  # a repair's time is by our clock, which may be a little ahead
            _past(judge, Place(node, "BMC"), clock, _since(by_its_clock, self.inputs.since))
        # A declared repair is a pass that saw no log: somebody dealt with all entries of then, including undated ones.
        dealt_with = self.inputs.since is not None or set(run.about) == {"since"}
        for log in there:
            self._log(
                judge,
                node,
                log,
                _since(run.about, self.inputs.since),
                LogMark.of(run.about, log.key),
                dealt_with=dealt_with,
            )
        if _since(run.about, self.inputs.since) is None:
            judge.remark("no earlier pass: every entry of the logs was judged")
        return judge.verdict(node)

    def _log(
        self, judge: Judge, node: str, log: Log, since: float | None, mark: LogMark | None, *, dealt_with: bool
    ) -> None:
        where = Place(node, f"log {log.name}")
        judge.judged += 1
        judge.metric("log_entries", f"{node}/{log.key}", len(log.entries), "1")
        if log.times:
            judge.metric("log_newest", f"{node}/{log.key}", max(log.times), "s since 1970")
        if log.off:
            judge.error(where, LOG_OFF, "ServiceEnabled true", "false")
        self._lost(judge, where, log, since, mark)
        judge.metric("log_undated", f"{node}/{log.key}", log.undated, "1")
        known = dealt_with or (mark is not None and log.undated <= mark.undated)
        new = [entry for entry in log.entries if _counts(entry, since, dealt_with=known)]
        strange = [entry for entry in new if entry.severity not in _SEVERITIES]
        if strange:
            judge.error(where, NO_SEVERITY, "OK, Warning or Critical", f"{strange[0].severity}: {strange[0].text}")
        bad = [
            entry
            for entry in new
            if entry.severity == "Critical" or entry.belittled or (self.inputs.warnings and entry.severity == "Warning")
        ]
        groups = grouped(bad)
        for group in groups[:_SHOWN]:
            judge.fail(
                where, group.kind, f"no such entry{_words(since)}", group.said, before=group.before, after=group.after
            )
        if len(groups) > _SHOWN:
            more = len(groups) - _SHOWN
            judge.fail(where, FURTHER_ENTRIES, f"none{_words(since)}", f"{more} further kinds of entries")
        if not bad and not strange:
            judge.measured.add(f"{node}/{log.key}")

    def _lost(self, judge: Judge, where: str, log: Log, since: float | None, mark: LogMark | None) -> None:
        """Report which entries of a log are missing: it is full and takes no more, it wrapped, or it was cleared."""
        if log.full and log.keeps:
            judge.error(
                where,
                LOG_FULL,
                f"room for new entries (it holds {log.size} and overwrites none)",
                f"{len(log.entries)} entries",
            )
        if since is None:
            return
        oldest = min(log.times, default=None)
        if log.full and not log.keeps and oldest is not None and oldest >= since:
            expected, actual = f"an entry from before {_stamp(since)}", f"the oldest is from {_stamp(oldest)}"
            judge.error(where, LOG_WRAPPED, expected, actual)
        elif self.inputs.since is None and mark is not None and mark.cleared(log):
            judge.error(
                where, LOG_CLEARED, f"the {mark.entries:.0f} entries of the last pass, or newer ones on top", log.shown
            )


def _counts(entry: LogEntry, since: float | None, *, dealt_with: bool) -> bool:
    """Return whether an entry counts: it is not older than the last pass.

    An entry of the same second counts, since the pass saw nothing bad. An entry without a usable time counts, unless
    ``dealt_with`` says that such entries existed at the last pass.
    """
    if entry.at is None:
        return not dealt_with
    return since is None or entry.at >= since


def _marks(passed: LastPass | None) -> Mapping[str, str]:
    """Return what the last pass saw: the BMC's clock (or else ours), and the length of every log."""
    if passed is None:
        return {}
    seen, newest, undated = (_by_log(passed, metric) for metric in ("log_entries", "log_newest", "log_undated"))
    clock = next((metric.value for metric in passed.metrics if metric.name == "bmc_clock"), passed.at.timestamp())
    return {
        "since": repr(clock),
        **{key: f"{length!r} {newest.get(key, 0.0)!r} {undated.get(key, 0.0)!r}" for key, length in seen.items()},
    }


def _by_log(passed: LastPass, metric: str) -> dict[str, float]:
    return {item.target.split("/", 1)[-1]: item.value for item in passed.metrics if item.name == metric}


def _since(about: Mapping[str, str], given: datetime | None) -> float | None:
    """Return the time from which entries count: the later of the last pass and the gate set's, in whole seconds.

    Logs date their entries in seconds, so an entry of the same second may be newer.
    """
    known = [float(about["since"])] if "since" in about else []
    known += [given.timestamp()] if given is not None else []
    return math.floor(max(known)) if known else None


def _clock(found: BmcAnswer, there: Sequence[Log]) -> float | None:
    """Return the BMC's clock."""
    documents: list[Document] = list(found.at(_MANAGERS))
    times = [log.clock for log in there] + [_time(document.get("DateTime")) for document in documents]
    return max((time for time in times if time is not None), default=None)


def _past(judge: Judge, where: str, clock: float, since: float | None) -> None:
    """Report a start time that is ahead of the BMC's clock.

    A clock that was set back dates present events before the last pass.
    """
    if since is not None and int(since) > clock:
        judge.error(where, ENTRIES_AHEAD, f"at most {_stamp(clock)}, the BMC's clock", _stamp(since))


def _time(value: object) -> float | None:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _words(since: float | None) -> str:
    return "" if since is None else f" since {_stamp(since)}"
