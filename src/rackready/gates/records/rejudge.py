"""Judgement of stored outputs with today's gates, profiles and limits. Only the report shows it; records do not change.

Records without outputs keep their verdict: declared skips, gates that were not run, and conclusions of pair and cluster
gates for a node. An output that no longer fits its gate is an error: nothing passes without a judgement.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackready.design.check_gates import today
from rackready.evidence.node_report import Document, outcome, verdict_of, with_verdict
from rackready.evidence.store import EMPTY, EvidenceError, EvidenceStore
from rackready.gates.base import REGISTRY, Gate, GateFacts, Output, Run
from rackready.gates.engine.fleet_stage import FleetJudgement, completed, identical_key, judgement, units_of
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.engine.runner import evaluated
from rackready.gates.engine.site_facts import site_facts
from rackready.gates.judging import coverage as cover
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.fleet import Unit, compare_in_site
from rackready.gates.judging.last_pass import pass_before
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord, RawOutput
from rackready.model.outcome import Outcome, Verdict
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader

_STEP = "Measure the node again: `rackready validate --again --limit {node}`."

Figures = tuple[str, str, str, str, tuple[Unit, ...]]
"""Gate, its inputs (JSON), metric, the key of identical units, the units of one node."""


CANNOT_JUDGE_AGAIN = ErrorKind(
    "not-judged-again",
    "{gate} cannot be judged again",
    meaning="The stored outputs do not fit today's gate, so they cannot be judged again.",
    next_step=_STEP,
)


class CannotJudgeError(RackreadyError):
    """A stored output does not fit its gate."""


class _Worker:
    """Judge of stored outputs in one worker process."""

    def __init__(self, site: Site, ledger: Ledger, store: EvidenceStore) -> None:
        self._site, self._ledger, self._store = site, ledger, store
        self._set = [make_gate(entry.id, entry.inputs) for entry in loader.gates_of(site.gates)]
        self._kinds = all_gates()
        self._made: dict[tuple[str, str], Gate] = {}
        self._texts: dict[str, str] = {}
        """Hash -> output of the present node: gates that share one have it read and checked once."""

    def node(self, name: str, newest: Mapping[str, EvidenceRecord]) -> tuple[dict[str, EvidenceRecord], list[Figures]]:
        """Judge a node: see ``Rejudge.node``."""
        self._texts.clear()
        self._store.prefetch(newest.values())
        facts = site_facts(self._site, [name])
        out: dict[str, EvidenceRecord] = {}
        figures: list[Figures] = []
        for gate_id, record in newest.items():
            out[gate_id] = record
            if record.raw:
                gate, verdict = self._judged(name, record, facts)
                out[gate_id] = record.model_copy(update={"verdict": verdict})
                figures += self._figures(gate, out[gate_id], name)
        if COVERAGE in out:
            out[COVERAGE] = self._coverage(name, out, facts)
        return out, figures

    def _judged(self, name: str, record: EvidenceRecord, facts: GateFacts) -> tuple[Gate | None, Verdict]:
        try:
            gate = self._gate(record)
            if gate.since_last_pass:
                passed = pass_before(self._store, self._ledger, record, name)
                facts = replace(facts, passed={} if passed is None else {(gate.id, name): passed})
            run = _run(gate, record, facts, name)
            return gate, evaluated(gate, facts, run, {key: self._output(key, raw) for key, raw in _keyed(record, run)})
        except (CannotJudgeError, EvidenceError) as error:
            return None, _not_judged(record, name, error)

    def _gate(self, record: EvidenceRecord) -> Gate:
        """Return the gate with the recorded inputs. Raise CannotJudgeError if it is gone or no longer accepts them."""
        known = self._kinds.get(record.gate)
        inputs = (
            {name: record.inputs[name] for name in known.Inputs.model_fields if name in record.inputs} if known else {}
        )
        key = (record.gate, repr(inputs))
        if key not in self._made:
            try:
                self._made[key] = make_gate(record.gate, inputs)
            except RackreadyError as error:
                raise CannotJudgeError.of(error.messages) from error
        return self._made[key]

    def _output(self, key: str, raw: RawOutput) -> Output:
        stderr = self._text(raw.stderr_sha256)
        return Output(
            key=key,
            node=raw.host,
            command=raw.command,
            exit_code=raw.exit_code,
            stdout=self._text(raw.stdout_sha256),
            stderr="" if raw.lost else stderr,
            seconds=raw.seconds,
            timed_out=raw.exit_code is None and not raw.lost,
            failure=stderr if raw.lost else "",
        )

    def _text(self, digest: str) -> str:
        if digest == EMPTY:
            return ""
        if digest not in self._texts:
            self._texts[digest] = self._store.raw(digest)
        return self._texts[digest]

    def _figures(self, gate: Gate | None, record: EvidenceRecord, name: str) -> list[Figures]:
        found = next((item for item in record.fingerprints if item.node == name), None)
        if gate is None or not gate.fleet or found is None or record.verdict.outcome is not Outcome.PASS:
            return []
        same = identical_key(self._site, gate, found, record.inputs)
        inputs = gate.inputs.model_dump_json()
        listed = [(metric.name, tuple(units_of(metric, name, record.verdict))) for metric in gate.fleet]
        return [(gate.id, inputs, metric, same, units) for metric, units in listed if units]

    def _coverage(self, name: str, newest: Mapping[str, EvidenceRecord], facts: GateFacts) -> EvidenceRecord:
        verdicts = {gate: [record.verdict] for gate, record in newest.items() if gate != COVERAGE}
        found = cover.of_node(facts.nodes[name], verdicts, self._set, self._site.gates.skipped(name, today()))
        return newest[COVERAGE].model_copy(
            update={"verdict": cover.verdict(found), "inputs": cover.about(found, facts.nodes[name])}
        )


def _run(gate: Gate, record: EvidenceRecord, facts: GateFacts, name: str) -> Run:
    wanted = record.inputs.get("run", name)
    runs = gate.plan(facts, [name]) if gate.single_node else []
    found = next((run for run in runs if run.id == wanted), None)
    if found is None:
        raise CannotJudgeError(f"run {wanted}", expected=f"one of {', '.join(run.id for run in runs) or 'none'}")
    return found


def _keyed(record: EvidenceRecord, run: Run) -> list[tuple[str, RawOutput]]:
    """Return the outputs with the keys of their commands. Older records lack keys; a single command needs none."""
    if len(record.raw) == len(run.commands) == 1:
        return [(run.commands[0].key, record.raw[0])]
    if not all(raw.key for raw in record.raw):
        raise CannotJudgeError("outputs", expected="each with its command's key", actual="none, from an older version")
    return [(raw.key, raw) for raw in record.raw]


def _not_judged(record: EvidenceRecord, name: str, error: RackreadyError) -> Verdict:
    finding = CANNOT_JUDGE_AGAIN.found(
        name, "stored outputs that its gate accepts", str(error).rstrip("."), gate=record.gate, node=name
    )
    return Verdict(outcome=Outcome.ERROR, findings=[finding])


@dataclass(slots=True)
class Rejudge:
    """Judgement of a site's stored outputs: see ``evidence.parts.Judging``."""

    _worker: _Worker | None = None

    def begin(self, site: Site, ledger: Ledger, store: EvidenceStore) -> None:
        """Prepare a worker process."""
        self._worker = _Worker(site, ledger, store)

    def node(
        self, name: str, newest: Mapping[str, EvidenceRecord]
    ) -> tuple[Mapping[str, EvidenceRecord], Sequence[Figures]]:
        """Return a node's records with today's verdicts, and its figures for the comparison with the fleet."""
        if self._worker is None:
            raise CannotJudgeError("judging again", expected="begun", actual="not begun", next_step="Report a bug.")
        return self._worker.node(name, newest)

    def compare(self, site: Site, figures: Iterable[Figures]) -> dict[str, dict[str, list[FleetJudgement]]]:
        """Return node -> gate -> judgements of its fleet, if there are enough identical units."""
        alike: dict[tuple[str, str, str], list[tuple[str, tuple[Unit, ...]]]] = defaultdict(list)
        for gate_id, inputs, metric, same, units in figures:
            alike[gate_id, metric, same].append((inputs, units))
        out: dict[str, dict[str, list[FleetJudgement]]] = defaultdict(lambda: defaultdict(list))
        for (gate_id, metric, _), members in alike.items():
            gate = make_gate(gate_id, json.loads(members[0][0]))
            for node, found in _compared(
                gate, metric, [unit for _, units in members for unit in units], len(site.nodes())
            ):
                out[node][gate_id].append(found)
        return {node: dict(found) for node, found in out.items()}

    def complete(self, found: Document, change: Mapping[str, list[FleetJudgement]]) -> Document:
        """Return a node's document with the judgements of its fleet."""
        gates = [
            _completed(item, found["name"], change[item["gate"]]) if item["gate"] in change else item
            for item in found["gates"]
        ]
        return {**found, "gates": gates, "outcome": outcome(gates, found["coverage"], found["result"])}


def _compared(gate: Gate, name: str, units: Sequence[Unit], fleet: int) -> Iterable[tuple[str, FleetJudgement]]:
    metric = next(item for item in gate.fleet if item.name == name)
    found = compare_in_site(gate, metric, units, fleet)
    if found is None:
        return
    bound = found.criterion()
    behind = {unit.node for unit in found.outliers}
    good = FleetJudgement(metric.name, bound, ())
    for node in dict.fromkeys(unit.node for unit in units):
        yield node, judgement(gate, node, found, bound) if node in behind else good


def _completed(item: Document, node: str, comparisons: Sequence[FleetJudgement]) -> Document:
    return with_verdict(item, completed(REGISTRY[item["gate"]], node, verdict_of(item), comparisons))
