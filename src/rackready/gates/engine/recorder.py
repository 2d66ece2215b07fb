"""Evidence records and progress lines of every attempt and every conclusion."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rackready import __version__
from rackready.evidence.scrub import scrub
from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.base import Gate, Output
from rackready.gates.engine.runner import Attempt
from rackready.gates.judging.finding_kinds import NotRunKind
from rackready.gates.records.sanitize import tools
from rackready.ledger.store import DETAIL, FAILED, Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint, RawOutput
from rackready.model.outcome import Outcome, Verdict

PHASE = "validate"
_LEVEL = {
    Outcome.PASS: DETAIL,
    Outcome.SKIP: "warn",
    Outcome.NOT_RUN: "warn",
    Outcome.ERROR: "error",
    Outcome.FAIL: FAILED,
}


GATE_NOT_RUN = NotRunKind(
    "gate-not-run",
    "{gate} was not run",
    meaning="The gate did not measure the node: an earlier gate did not pass, or too few nodes can take part. "
    "This is not a pass.",
    next_step="{step}",
)


@dataclass(slots=True)
class Recorder:
    """Writer of the evidence of one campaign. Thread-safe."""

    store: EvidenceStore
    ledger: Ledger
    campaign: str
    fingerprints: Mapping[str, Fingerprint]
    quiet: bool = False
    """Record passes without a progress line, for example in a look."""
    attempts: int = 0
    latest: dict[tuple[str, str], EvidenceRecord] = field(default_factory=dict)
    """(gate, node) -> this stage's record, for gates whose verdict the fleet completes."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def attempt(self, gate: Gate, attempt: Attempt) -> None:
        """Record one attempt with its raw outputs, also if another attempt follows."""
        with self._lock:
            self.attempts += 1
        inputs = recorded_inputs(gate, attempt=attempt.number, run=attempt.run.id)
        raw = [store_output(self.store, output) for output in attempt.outputs.values()]
        made = self._append(
            gate.id,
            attempt.run.target,
            attempt.run.nodes,
            inputs,
            attempt.verdict,
            raw,
            attempt.started,
            attempt.finished,
            tools(gate, attempt.outputs),
        )
        if gate.fleet and attempt.run.nodes == (attempt.run.target,):
            self.latest[gate.id, attempt.run.target] = made
        again = " (second attempt)" if attempt.number > 1 else ""
        for node in attempt.run.nodes:
            self.progress(
                node,
                f"{gate.id} {_target(attempt.run.target, node)}{_verdict_text(attempt.verdict)}{again}",
                attempt.verdict.outcome,
            )

    def concluded(self, gate: Gate, node: str, verdict: Verdict, runs: Sequence[str]) -> None:
        """Record the conclusion for one node from this stage's runs over several nodes."""
        made = self.conclusion(gate.id, node, verdict, recorded_inputs(gate, conclusion_of=list(runs)))
        if gate.fleet:
            self.latest[gate.id, node] = made

    def conclusion(
        self, gate_id: str, node: str, verdict: Verdict, inputs: Mapping[str, object] | None = None
    ) -> EvidenceRecord:
        """Record a conclusion for one node that no single run gives: pairs, clusters, skips, coverage."""
        now = datetime.now(UTC)
        return self._append(gate_id, node, (node,), dict(inputs or {}), verdict, [], now, now)

    def completed(self, gate_id: str, node: str, verdict: Verdict, about: Mapping[str, object]) -> bool:
        """Record this stage's measurement of a node again, with the verdict that its fleet completes.

        Return False if this stage did not measure the node: then there is nothing to complete.
        """
        before = self.latest.get((gate_id, node))
        if before is None:
            return False
        inputs = {**before.inputs, **about, "conclusion_of": [before.id]}
        self.store.append(before.model_copy(update={"id": new_id(), "verdict": verdict, "inputs": inputs}))
        return True

    def progress(self, node: str, text: str, outcome: Outcome) -> None:
        """Log a line of progress."""
        if self.quiet and outcome is Outcome.PASS:
            return
        self.ledger.event(self.campaign, node, PHASE, text, level=_LEVEL[outcome])

    def _append(  # noqa: PLR0913, PLR0917
        self,
        gate: str,
        target: str,
        nodes: Sequence[str],
        inputs: dict[str, object],
        verdict: Verdict,
        raw: list[RawOutput],
        started: datetime,
        finished: datetime,
        tools: dict[str, str] | None = None,
    ) -> EvidenceRecord:
        record = EvidenceRecord(
            id=new_id(),
            campaign=self.campaign,
            gate=gate,
            target=target,
            nodes=list(nodes),
            fingerprints=[self.fingerprints[node] for node in nodes if node in self.fingerprints],
            inputs=inputs,
            verdict=verdict,
            raw=raw,
            tool_versions=tools or {},
            rackready_version=__version__,
            started=started,
            finished=finished,
        )
        return self.store.append(record)[0]


def recorded_inputs(gate: Gate, **more: object) -> dict[str, object]:
    """Return the inputs of a record: the gate's title and inputs, and ``more`` about this measurement."""
    return {"title": gate.title(), **gate.inputs.model_dump(mode="json"), **more}


def store_output(store: EvidenceStore, output: Output) -> RawOutput:
    """Store the raw output of a command and return its entry for the record."""
    return RawOutput(
        host=output.node,
        command=scrub(output.command),
        exit_code=output.exit_code,
        stdout_sha256=store.put_raw(output.stdout),
        stderr_sha256=store.put_raw(output.stderr or output.failure),
        seconds=round(output.seconds, 3),
        key=output.key,
        lost=bool(output.failure and not output.stderr),
    )


def _target(target: str, node: str) -> str:
    return "" if target == node else f"({target}) "


def _verdict_text(verdict: Verdict) -> str:
    return f"{verdict.outcome.value}" + (f": {verdict.findings[0]}" if verdict.findings else _figures(verdict))


def _figures(verdict: Verdict) -> str:
    shown = [
        f"{metric.value:.1f} {metric.unit}" for metric in verdict.metrics if metric.name in {"busbw", "bw_average"}
    ]
    return f": {', '.join(shown)}" if shown else ""


def skipped(reason: str) -> Verdict:
    """Return the verdict of a declared skip."""
    return Verdict(outcome=Outcome.SKIP, note=reason)


def not_run(where: str, gate: str, reason: str, next_step: str) -> Verdict:
    """Return the verdict of a gate that did not run."""
    return Verdict(
        outcome=Outcome.NOT_RUN,
        findings=[GATE_NOT_RUN.found(where, "a measurement", reason, gate=gate, step=next_step)],
    )
