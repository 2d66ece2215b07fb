"""Event logs of the BMC (SEL and Redfish logs): what was written since the last pass.

Times are the BMC's own: a pass records what its clock said, so that a clock that is wrong is wrong on both sides. What lies before the
last pass does not count again. A log that was cleared, or that has wrapped past the last pass, may have held anything: that is an error,
until somebody who knows says with `rackready repair` that it was dealt with (or the input ``since`` gives a time). Without either every
entry counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field, Strict

from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Passed, Run
from rackready.gates.bmc import owner
from rackready.gates.bmc.documents import Document, Told
from rackready.gates.bmc.eventlog import Entry, Log, Mark, grouped, logs
from rackready.gates.judge import Judge
from rackready.model.outcome import Verdict

_SKIPPED = "*!*audit*,lclog,*lifecycle*,*dump*,*postcode*,*journal*,*debug*,*diagnostic*,fdr,iel,sl,event,*securitylog*"
"""Logs that record who logged in or what was configured, and memory dumps: not the health of hardware, and thousands of pages on some BMCs. An iLO's Event
is that of the alerts that it sent (HPE, log services): a warning at every restart of the server; its hardware stands in the IML."""
SERVICES = tuple(f"{place}/*/LogServices/{_SKIPPED}" for place in ("Managers", "Systems", "Chassis"))
ENTRIES = tuple(f"{place}/Entries/*" for place in SERVICES)
_MANAGERS = "Managers/*!hgx_*"
_SEVERITIES = frozenset({"OK", "Warning", "Critical"})
_SHOWN = 12


class Events(Gate):
    """The BMC's event logs hold nothing bad that is newer than the last pass, and none of it was lost."""

    id = "bmc/log/sanity/events"
    looks = True
    since_last_pass = True

    class Inputs(base.Inputs):
        """From when on entries count, and which."""

        since: Annotated[AwareDatetime, Strict(strict=False)] | None = Field(
            None, description="entries before this time (of the BMC's clock) were read and dealt with; none: since the last pass"
        )
        warnings: bool = Field(default=True, description="entries of severity Warning count, too")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """One request to every BMC; what the last pass saw goes with it."""
        return [
            Run.of_node(node, owner.ask(node, *SERVICES, *ENTRIES, _MANAGERS, timeout_s=300), about=_marks(facts.passed.get((self.id, node)))) for node in nodes
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
            judge.error(f"{node} BMC", "no event log", "a log service with entries", "none", "Update the BMC's firmware; without a log nothing past is known.")
        clock = _clock(found, there)
        if clock is None:
            judge.error(f"{node} BMC", "clock not reported", "DateTime of its log service or manager", "none", "Set the BMC's clock (NTP).")
        else:
            judge.metric("bmc_clock", f"{node}/bmc", clock, "s since 1970")
            by_its_clock = run.about if set(run.about) != {"since"} else {}  # a repair's time is of our clock, which may go a little before
            _past(judge, f"{node} BMC", clock, _since(by_its_clock, self.inputs.since))
        # A declared repair is a pass that saw no log: somebody has dealt with all that was there, undated entries among it.
        dealt_with = self.inputs.since is not None or set(run.about) == {"since"}
        for log in there:
            self._log(judge, node, log, _since(run.about, self.inputs.since), Mark.of(run.about, log.key), dealt_with=dealt_with)
        if _since(run.about, self.inputs.since) is None:
            judge.remark("no pass before: every entry of the logs was judged")
        return judge.verdict(node)

    def _log(self, judge: Judge, node: str, log: Log, since: float | None, mark: Mark | None, *, dealt_with: bool) -> None:
        where = f"{node} log {log.name}"
        judge.judged += 1
        judge.metric("log_entries", f"{node}/{log.key}", len(log.entries), "1")
        if log.times:
            judge.metric("log_newest", f"{node}/{log.key}", max(log.times), "s since 1970")
        if log.off:
            judge.error(where, "log switched off", "ServiceEnabled true", "false", "Switch it on: what happens now is not recorded.")
        self._lost(judge, where, log, since, mark)
        judge.metric("log_undated", f"{node}/{log.key}", log.undated, "1")
        known = dealt_with or (mark is not None and log.undated <= mark.undated)
        new = [entry for entry in log.entries if _counts(entry, since, dealt_with=known)]
        strange = [entry for entry in new if entry.severity not in _SEVERITIES]
        if strange:
            judge.error(where, "entry without a severity", "OK, Warning or Critical", f"{strange[0].severity}: {strange[0].text}", "Update the BMC's firmware.")
        bad = [entry for entry in new if entry.severity == "Critical" or entry.belittled or (self.inputs.warnings and entry.severity == "Warning")]
        groups = grouped(bad)
        for group in groups[:_SHOWN]:
            judge.fail(where, group.what, f"no such entry{_words(since)}", group.said, group.step)
        if len(groups) > _SHOWN:
            more = len(groups) - _SHOWN
            judge.fail(where, "further entries", f"none{_words(since)}", f"{more} further kinds of entries", "Read the whole log in the raw output.")
        if not bad and not strange:
            judge.measured.add(f"{node}/{log.key}")

    def _lost(self, judge: Judge, where: str, log: Log, since: float | None, mark: Mark | None) -> None:
        """Say what of a log is missing: it is full and takes nothing more, it wrapped, or somebody cleared it."""
        step = "Read what else recorded that time (syslog, the BMC's other logs), then say with `rackready repair` that it was dealt with."
        if log.full and log.keeps:
            judge.error(
                where,
                "log full",
                f"room for new entries (it holds {log.size} and overwrites none)",
                f"{len(log.entries)} entries",
                f"Save and clear it. {step}",
            )
        if since is None:
            return
        oldest = min(log.times, default=None)
        if log.full and not log.keeps and oldest is not None and oldest > since:
            judge.error(where, "log wrapped", f"entries back to {_stamp(since)}", f"the oldest is of {_stamp(oldest)}", step)
        elif self.inputs.since is None and mark is not None and mark.cleared(log):
            judge.error(where, "log cleared since the last pass", f"its {mark.entries:.0f} entries of then, or newer ones on top", log.shown, step)


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
    return {"since": repr(clock), **{key: f"{length!r} {newest.get(key, 0.0)!r} {undated.get(key, 0.0)!r}" for key, length in seen.items()}}


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
    times = [stamp for stamp in (*(log.clock for log in there), *(_time(document.get("DateTime")) for document in documents)) if stamp is not None]
    return max(times, default=None)


def _past(judge: Judge, where: str, clock: float, since: float | None) -> None:
    """Hold the time from which entries count against the BMC's clock: one that was set back dates what happens now before the last pass."""
    if since is not None and int(since) > clock:
        step = "Set the BMC's clock (NTP) or the input `since`, read the log by hand, then say with `rackready repair` that it was dealt with."
        judge.error(where, "entries count from a time that is still to come", f"at most {_stamp(clock)}, the BMC's clock", _stamp(since), step)


def _time(value: object) -> float | None:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _words(since: float | None) -> str:
    return "" if since is None else f" since {_stamp(since)}"
