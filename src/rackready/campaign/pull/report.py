"""A node's report of one order: waited for, verified, and judged by the same events as a push."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rackready import files
from rackready.campaign.pull.order import APPLY, CHECK
from rackready.campaign.pull.service_interfaces import PullServices
from rackready.drivers.ansible_events import Events, Tell
from rackready.drivers.release_report import PullReport
from rackready.evidence.raw_outputs import RawOutputs
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError
from rackready.paths import EnvPaths, private_dir

REPORT = "report"
"""In a result's data: sequence, release and hash of the report that it was judged by."""
_NOT_KEPT = {"steps", "sealed"}
"""Of a report, what is not stored as evidence: steps have the arguments of tasks, which may be secrets."""
_NEW_AGENT = frozenset({"signature", "version", "other-node", "other-machine", "other-site", "pulled"})
"""Refusals that another key, configuration or agent on the node ends: the next run puts them there."""
_AGAIN = "Nothing of it counts. Run again: another order is written."


@dataclass(frozen=True, slots=True)
class Expected:
    """What a report must be about."""

    site: str
    node: str
    sequence: int
    mode: str
    phase: str
    release: str
    agent: str


def place(paths: EnvPaths, node: str, sequence: int, mode: str) -> Path:
    """Return the file of a report."""
    return paths.node_reports / node / f"{sequence}-{mode}.json"


def forget(paths: EnvPaths, node: str, sequence: int) -> None:
    """Remove reports of a sequence that is about to be ordered: they are of another ledger."""
    for mode in (APPLY, CHECK):
        place(paths, node, sequence, mode).unlink(missing_ok=True)


def keep_raw(raw: RawOutputs, found: PullReport) -> str:
    """Store a report as evidence and return its hash; one that is there is the same file. Raises EvidenceError."""
    return raw.put(found.model_dump_json(exclude=_NOT_KEPT))


def unlike(found: PullReport, wanted: Expected) -> tuple[str, str] | None:
    """Return expected and actual value where a verified report is not the one that was asked for, None if it is.

    A refusal names no release, and of a damaged order no phase: the agent may not have come that far.
    """
    names = ("site", "node", "sequence", "mode", "agent", *(() if found.failure else ("phase", "release")))
    for name in names:
        if getattr(found, name) != getattr(wanted, name):
            return f"{name} {getattr(wanted, name)}", f"{name} {getattr(found, name)}"
    return None


@dataclass
class Judge:
    """Judges one report. ``other_agent``: the node has another agent, configuration or key than it was given."""

    ctx: PhaseContext
    phase: str
    paths: EnvPaths
    ledger: Ledger
    services: PullServices
    tell: Tell
    other_agent: bool = False

    def result(self, node: str, release: str, sequence: int, mode: str) -> NodeResult:
        """Return what the report of a node shows, and store it. Anything but the report asked for is an error."""
        where = f"{node}: {self.phase}"
        try:
            found = self.services.open_report(node, place(self.paths, node, sequence, mode).read_bytes())
            raw = keep_raw(RawOutputs(self.ledger, self.paths.raw), found)
        except (RackreadyError, OSError) as error:
            return NodeResult(Outcome.ERROR, f"{where}: {error}")
        wanted = Expected(
            self.ledger.identity(), node, sequence, mode, self.phase, release, self.services.agents.digest
        )
        self.other_agent = found.agent != wanted.agent
        self.other_agent |= found.failure is not None and found.failure.code in _NEW_AGENT
        result = self._judged(found, wanted, where)
        kept = {"sequence": sequence, "release": release, "raw": raw}
        return replace(result, data={**result.data, REPORT: kept})

    def _judged(self, found: PullReport, wanted: Expected, where: str) -> NodeResult:
        wrong = unlike(found, wanted)
        if wrong is not None:
            return _error(Message(where, "its report", *wrong, _AGAIN))
        if found.failure is not None:
            said = found.failure
            return _error(
                Message(where, f"its agent refuses: {said.where}", said.expected, said.actual, said.next_step)
            )
        lines = list(found.lines)
        events = Events(self.phase, [wanted.node], str(self._log(wanted, lines)), self.tell, wanted.mode == CHECK)
        for line in lines:
            events.line(line)
        for stranger in events.strangers():
            self.tell(wanted.node, f"its report has lines of {stranger}: they are not used", "error")
        return events.result(wanted.node, timed_out=found.timed_out)

    def _log(self, wanted: Expected, lines: Sequence[str]) -> Path:
        """Write the lines where those of a push are, and return the file."""
        folder = private_dir(self.paths.logs / self.ctx.campaign)
        path = folder / f"{self.phase}-{wanted.node}-{wanted.sequence}-{wanted.mode}.log"
        files.replace(path, "".join(f"{line}\n" for line in lines).encode())
        return path


def _error(message: Message) -> NodeResult:
    return NodeResult(Outcome.ERROR, str(message))
