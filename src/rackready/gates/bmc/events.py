"""Event logs of the BMC (SEL and Redfish logs): what was written since the last pass.

Times are the BMC's own: a pass records what its clock said, so that a clock that is wrong is wrong on both sides. What
lies before the last pass does not count again. A log that was cleared, or that has wrapped past the last pass, may have
held anything: that is an error, until somebody who knows says with `rackready repair` that it was dealt with (or the
input ``since`` gives a time). Without either every entry counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field, Strict

from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Passed, Run
from rackready.gates.bmc import eventlog, owner
from rackready.gates.bmc.documents import Document, Told
from rackready.gates.bmc.eventlog import Entry, Log, Mark, grouped, logs
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict

_SKIPPED = "*!*audit*,lclog,*lifecycle*,*dump*,*postcode*,*journal*,*debug*,*diagnostic*,fdr,iel,sl,event,*securitylog*"
"""Logs that record who logged in or what was configured, and memory dumps: not the health of hardware, and thousands of pages on some BMCs. An iLO's Event
is that of the alerts that it sent (HPE, log services): a warning at every restart of the server; its hardware stands in
the IML.
"""
SERVICES = tuple(f"{place}/*/LogServices/{_SKIPPED}" for place in ("Managers", "Systems", "Chassis"))
ENTRIES = tuple(f"{place}/Entries/*" for place in SERVICES)
_MANAGERS = "Managers/*!hgx_*"
_SEVERITIES = frozenset({"OK", "Warning", "Critical"})
_SHOWN = 12


NO_LOG = ErrorKind(
    "bmc-no-event-log",
    "no event log",
    meaning="The BMC keeps no log, so nothing that happened before now is known.",
    next_step="Update the BMC's firmware; without a log nothing past is known.",
)
CLOCK_NOT_REPORTED = ErrorKind(
    "bmc-clock-not-reported",
    "clock not reported",
    meaning="The BMC does not tell its time, so entries of its log cannot be dated.",
    next_step="Set the BMC's clock (NTP).",
)
LOG_OFF = ErrorKind(
    "bmc-log-off",
    "log switched off",
    meaning="The log is switched off, so what happens now is not recorded.",
    next_step="Switch it on: what happens now is not recorded.",
)
NO_SEVERITY = ErrorKind(
    "bmc-entry-no-severity",
    "entry without a severity",
    meaning="An entry of the log does not say how bad it is.",
    next_step="Update the BMC's firmware.",
)
FURTHER_ENTRIES = FailKind(
    "bmc-further-entries",
    "further entries",
    meaning="The log has more kinds of bad entries than are named.",
    next_step="Read the whole log in the raw output.",
)
LOG_FULL = ErrorKind(
    "bmc-log-full",
    "log full",
    meaning="The log is full and takes no new entries.",
    next_step="Save and clear it. Read what else recorded that time (syslog, the BMC's other logs), then say with "
    "`rackready repair` that it was dealt with.",
)
LOG_WRAPPED = ErrorKind(
    "bmc-log-wrapped",
    "log wrapped",
    meaning="The log has overwritten entries that nobody has judged.",
    next_step="Read what else recorded that time (syslog, the BMC's other logs), "
    "then say with `rackready repair` that it "
    "was dealt with.",
)
LOG_CLEARED = ErrorKind(
    "bmc-log-cleared",
    "log cleared since the last pass",
    meaning="Somebody cleared the log since the last pass, and entries that nobody has judged may be gone.",
    next_step="Read what else recorded that time (syslog, the BMC's other logs), "
    "then say with `rackready repair` that it "
    "was dealt with.",
)
ENTRIES_AHEAD = ErrorKind(
    "bmc-entries-ahead",
    "entries count from a time that is still to come",
    meaning="Entries count from a time that the BMC's clock has not reached, so none would count.",
    next_step="Set the BMC's clock (NTP) or the input `since`, read the log by hand, then say with `rackready repair` "
    "that it was dealt with.",
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
    """The BMC's event logs hold nothing bad that is newer than the last pass, and none of it was lost."""

    id = "bmc/log/sanity/events"
    findings = (
        *eventlog.FINDINGS,
        *owner.FINDINGS,
        *FINDINGS,
    )
    looks = True
    since_last_pass = True

    class Inputs(base.Inputs):
        """From when on entries count, and which."""

        since: Annotated[AwareDatetime, Strict(strict=False)] | None = Field(
            None,
            description="entries before this time (of the BMC's clock) were read and "
            "dealt with; none: since the last pass",
        )
        warnings: bool = Field(default=True, description="entries of severity Warning count, too")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """One request to every BMC; what the last pass saw goes with it."""
        return [
            Run.of_node(
                node,
                owner.ask(node, *SERVICES, *ENTRIES, _MANAGERS, timeout_s=300),
                about=_marks(facts.passed.get((self.id, node))),
            )
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every log: what was lost, then what is new."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "event logs", run, outputs)
        if found is None:
            return judge.verdict(node)
        there = logs(found.at(*SERVICES), found.at(*ENTRIES))
        if not there:
            judge.error(f"{node} BMC", NO_LOG, "a log service with entries", "none")
        clock = _clock(found, there)
        if clock is None:
            judge.error(f"{node} BMC", CLOCK_NOT_REPORTED, "DateTime of its log service or manager", "none")
        else:
            judge.metric("bmc_clock", f"{node}/bmc", clock, "s since 1970")
            by_its_clock = (
                run.about if set(run.about) != {"since"} else {}
            )  # a repair's time is of our clock, which may go a little before
            _past(judge, f"{node} BMC", clock, _since(by_its_clock, self.inputs.since))
        # A declared repair is a pass that saw no log: somebody has dealt with all that was there, undated entries among
        # it.
        dealt_with = self.inputs.since is not None or set(run.about) == {"since"}
        for log in there:
            self._log(
                judge,
                node,
                log,
                _since(run.about, self.inputs.since),
                Mark.of(run.about, log.key),
                dealt_with=dealt_with,
            )
        if _since(run.about, self.inputs.since) is None:
            judge.remark("no pass before: every entry of the logs was judged")
        return judge.verdict(node)

    def _log(
        self, judge: Judge, node: str, log: Log, since: float | None, mark: Mark | None, *, dealt_with: bool
    ) -> None:
        where = f"{node} log {log.name}"
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

    def _lost(self, judge: Judge, where: str, log: Log, since: float | None, mark: Mark | None) -> None:
        """Say what of a log is missing: it is full and takes nothing more, it wrapped, or somebody cleared it."""
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
        if log.full and not log.keeps and oldest is not None and oldest > since:
            judge.error(where, LOG_WRAPPED, f"entries back to {_stamp(since)}", f"the oldest is of {_stamp(oldest)}")
        elif self.inputs.since is None and mark is not None and mark.cleared(log):
            judge.error(where, LOG_CLEARED, f"its {mark.entries:.0f} entries of then, or newer ones on top", log.shown)


def _counts(entry: Entry, since: float | None, *, dealt_with: bool) -> bool:
    """Whether an entry is newer than the last pass: one of its very second is, since a pass saw nothing bad.

    One without a usable time counts, unless ``dealt_with`` says that such were there before.
    """
    if entry.at is None:
        return not dealt_with
    return since is None or entry.at >= since


def _marks(passed: Passed | None) -> Mapping[str, str]:
    """Return what the last pass saw: the BMC's clock (else ours), and how long every log was."""
    if passed is None:
        return {}
    seen, newest, undated = (_by_log(passed, metric) for metric in ("log_entries", "log_newest", "log_undated"))
    clock = next((metric.value for metric in passed.metrics if metric.name == "bmc_clock"), passed.at.timestamp())
    return {
        "since": repr(clock),
        **{key: f"{length!r} {newest.get(key, 0.0)!r} {undated.get(key, 0.0)!r}" for key, length in seen.items()},
    }


def _by_log(passed: Passed, metric: str) -> dict[str, float]:
    return {item.target.split("/", 1)[-1]: item.value for item in passed.metrics if item.name == metric}


def _since(about: Mapping[str, str], given: datetime | None) -> float | None:
    """Return from when on entries count: the later of the last pass and what the gate set says."""
    known = [float(about["since"])] if "since" in about else []
    known += [given.timestamp()] if given is not None else []
    return max(known, default=None)


def _clock(found: Told, there: Sequence[Log]) -> float | None:
    """Return what the BMC's clock says."""
    documents: list[Document] = list(found.at(_MANAGERS))
    times = [
        stamp
        for stamp in (*(log.clock for log in there), *(_time(document.get("DateTime")) for document in documents))
        if stamp is not None
    ]
    return max(times, default=None)


def _past(judge: Judge, where: str, clock: float, since: float | None) -> None:
    """Hold the time from which entries count against the BMC's clock: one that was set back dates what happens now before the last pass."""
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
