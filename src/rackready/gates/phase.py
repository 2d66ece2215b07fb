"""The validate phase: gates over a batch of nodes, from cheap to dear, each with evidence; then coverage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.drivers.remote import Host, Remote
from rackready.evidence.store import EvidenceStore
from rackready.gates import coverage as cover
from rackready.gates.base import REGISTRY, Gate, GateFacts
from rackready.gates.expectation import FLEET_PENDING
from rackready.gates.fingerprint import gather
from rackready.gates.launch import launcher
from rackready.gates.machines import Machines
from rackready.gates.recorder import Recorder, not_run, skipped
from rackready.gates.registry import gate as make_gate
from rackready.gates.runner import Connection, Launcher, Runner
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict, worst
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader

_NODE_WORKERS = 16
_GOOD = frozenset({Outcome.PASS, Outcome.SKIP})


Kept = Mapping[str, Mapping[str, Verdict]]
"""Node -> gate -> the verdict of evidence that still counts: what need not be measured again."""


def run_gates(
    ctx: PhaseContext, nodes: list[str], *, only: list[str] | None = None, partners: Sequence[str] = (), kept: Kept | None = None
) -> dict[str, NodeResult]:
    """Run the site's gate set (or ``only`` these gates) on nodes, and return what it means for each.

    ``partners`` are nodes that may serve as the other end of pair and cluster gates without being judged themselves; ``kept`` says
    which gates count already and are not run, node by node: coverage and the result are over both.
    Raises RackreadyError for a site or gate set that cannot be used, Interrupted when the operator stops.
    """
    site = load_site(ctx.env, root=ctx.root)
    paths = EnvPaths(ctx.root, ctx.env)
    entries = gate_entries(site, only)
    if ctx.check:
        return {node: NodeResult(Outcome.NOT_RUN, f"would run {len(entries)} gates") for node in nodes}
    with connect(site, paths, [*nodes, *partners]) as (connection, launcher):
        ledger = Ledger.open(paths.database)
        try:
            store = EvidenceStore.open(ledger, paths.raw)
            _sweep(connection, ledger, ctx.campaign, [*nodes, *partners])
            stage = Stage.begin(site, connection, launcher, store, ledger, ctx.campaign, [*nodes, *partners])
            return stage.run(nodes, partners, entries, whole=only is None, kept=kept or {})
        finally:
            ledger.close()


def _sweep(remote: Remote, ledger: Ledger, campaign: str, nodes: Sequence[str]) -> None:
    """End what a killed run left on the nodes: a diagnostic that still runs would spoil every measurement beside it."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), _NODE_WORKERS))) as pool:
        for node, answer in zip(nodes, pool.map(remote.sweep, nodes), strict=True):
            if answer.exit_code != 0:
                said = answer.failure or answer.stderr.strip() or f"exit {answer.exit_code}"
                ledger.event(campaign, node, "validate", f"leftovers of earlier runs could not be looked for: {said}", "warn")


def gate_entries(site: Site, only: Sequence[str] | None) -> list[GateSetEntry]:
    """Return the entries of the site's gate set, or those of ``only`` (with the set's inputs where the set has them)."""
    entries = {entry.id: entry for entry in loader.gate_set(site.gates.set).gates}
    if only is None:
        return list(entries.values())
    return [entries.get(wanted) or GateSetEntry.model_validate({"id": wanted}) for wanted in only]


@contextmanager
def connect(site: Site, paths: EnvPaths, nodes: Sequence[str]) -> Iterator[tuple[Remote, Launcher]]:
    """Open the way to nodes over SSH."""
    hosts = {name: Host(name, str(site.node(name).address), site.access.port, site.access.user, Path(site.access.private_key)) for name in nodes}
    remote = Machines(hosts, site, paths)
    try:
        yield remote, launcher(site, paths, remote, hosts)
    finally:
        remote.close()


@dataclass(slots=True)
class Stage:
    """One run of a gate set."""

    site: Site
    facts: GateFacts
    runner: Runner
    recorder: Recorder
    prints: Mapping[str, Fingerprint | Finding]
    verdicts: dict[str, dict[str, list[Verdict]]] = field(default_factory=lambda: defaultdict(dict))
    """node -> gate -> what the gate says of it."""
    kept: Kept = field(default_factory=dict)

    @classmethod
    def begin(  # noqa: PLR0913, PLR0917
        cls, site: Site, connection: Connection, launcher: Launcher | None, store: EvidenceStore, ledger: Ledger, campaign: str, nodes: Sequence[str]
    ) -> Stage:
        """Take the fingerprint of every node and make ready to run."""
        prints = gather(connection, site, nodes)
        facts = GateFacts(nodes={name: node_facts(site, name) for name in nodes}, fabric=site.fabric, fleet=len(site.nodes()), launcher=site.gates.launcher)
        recorder = Recorder(store, ledger, campaign, {name: found for name, found in prints.items() if isinstance(found, Fingerprint)})
        return cls(site, facts, Runner(connection, facts, recorder.attempt, launcher), recorder, prints)

    def run(
        self, nodes: Sequence[str], partners: Sequence[str], entries: Sequence[GateSetEntry], *, whole: bool, kept: Kept | None = None
    ) -> dict[str, NodeResult]:
        """Run everything that is not kept, and conclude per node."""
        self.kept = kept or {}
        for node, verdicts in self.kept.items():
            self.verdicts[node] = {gate: [verdict] for gate, verdict in verdicts.items()}
        gates = [make_gate(entry.id, entry.inputs) for entry in entries]
        required = {entry.id for entry in entries if entry.required}
        for node in nodes:
            found = self.prints[node]
            if isinstance(found, Finding):
                self.recorder.say(node, str(found), Outcome.ERROR)
        self._node_gates([gate for gate in gates if gate.scope == "node"], [node for node in nodes if not isinstance(self.prints[node], Finding)], required)
        for gate in (gate for gate in gates if gate.scope != "node"):
            self._group_gate(gate, nodes, partners, required)
        return {node: self._conclude(node, gates, required, whole=whole) for node in nodes}

    # node gates ----------------------------------------------------------------------------------------------------

    def _node_gates(self, gates: Sequence[Gate], nodes: Sequence[str], required: set[str]) -> None:
        """Nodes side by side; on one node, gates one after the other, level by level: nobody stresses a node that failed a check."""
        with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), _NODE_WORKERS))) as pool:
            list(pool.map(lambda node: self._of_node(gates, node, required), nodes))

    def _of_node(self, gates: Sequence[Gate], node: str, required: set[str]) -> None:
        stopped_by = ""
        for _, level in groupby(gates, key=lambda gate: gate.level):
            failed = ""
            for gate in level:
                verdict = self._one(gate, node, stopped_by)
                if verdict.outcome not in _GOOD and gate.id in required:
                    failed = failed or gate.id
            stopped_by = stopped_by or failed

    def _one(self, gate: Gate, node: str, stopped_by: str) -> Verdict:
        if gate.id in self.kept.get(node, {}):
            return self.kept[node][gate.id]
        reason = self._skip_reason(gate.id, node)
        if reason:
            return self._note(gate.id, node, skipped(reason))
        if stopped_by:
            return self._note(gate.id, node, not_run(node, gate.id, f"{stopped_by} did not pass", "Repair that first."))
        self.recorder.say(node, f"{gate.id} begins: {gate.title()}", Outcome.PASS)
        done = self.runner.gate(gate, [node])
        verdicts = gate.attribute(self.facts, done).get(node, [])
        self.verdicts[node][gate.id] = verdicts
        return merged(verdicts)

    # pair and cluster gates ------------------------------------------------------------------------------------------

    def _group_gate(self, gate: Gate, nodes: Sequence[str], partners: Sequence[str], required: set[str]) -> None:
        """Over the nodes that passed everything so far: a bad node would only make its partners look bad.

        A node whose own evidence counts takes part like a partner: what it has stands.
        """
        judged = [node for node in nodes if gate.id not in self.kept.get(node, {})]
        if not judged:
            return
        able: list[str] = []
        notes: dict[str, Verdict] = {}
        for node in [*nodes, *partners]:
            if reason := self._skip_reason(gate.id, node):
                notes[node] = skipped(reason)
            elif bad := self._first_bad(node, required):
                notes[node] = not_run(node, gate.id, f"{bad} did not pass", "Repair that first.")
            else:
                able.append(node)
        if len(able) < gate.min_nodes:
            words = f"it needs {gate.min_nodes} nodes, {len(able)} of {len(nodes) + len(partners)} can take part"
            step = "Deploy it together with more nodes, or declare the skip with its reason in site.yml (gates.skip)."
            notes |= {node: not_run(node, gate.id, words, step) for node in able}
            able = []
        for node in (node for node in judged if node in notes):  # partners are not judged: what they have stands
            self._note(gate.id, node, notes[node])
        if not set(able) & set(judged):
            return
        for node in able:
            self.recorder.say(node, f"{gate.id} begins: {gate.title()}", Outcome.PASS)
        done = self.runner.gate(gate, able)
        by_node = gate.attribute(self.facts, done)
        for node in (node for node in able if node in judged):
            self.verdicts[node][gate.id] = by_node.get(node, [])
            self.recorder.conclusion(
                gate.id,
                node,
                merged(by_node.get(node, [])),
                {"title": gate.title(), "conclusion_of": sorted(item.run.id for item in done if node in item.run.nodes)},
            )

    def _first_bad(self, node: str, required: set[str]) -> str:
        if isinstance(self.prints[node], Finding):
            return "reading its serials and versions"
        return next((gate for gate, verdicts in self.verdicts[node].items() if gate in required and merged(verdicts).outcome not in _GOOD), "")

    # conclusions -----------------------------------------------------------------------------------------------------

    def _skip_reason(self, gate_id: str, node: str) -> str:
        return next((skip.reason for skip in self.site.gates.skip if skip.gate == gate_id and node in skip.nodes), "")

    def _note(self, gate_id: str, node: str, verdict: Verdict) -> Verdict:
        self.verdicts[node][gate_id] = [verdict]
        self.recorder.conclusion(gate_id, node, verdict, {"title": REGISTRY[gate_id].title()})
        words = f"declared skip: {verdict.note}" if verdict.outcome is Outcome.SKIP else str(verdict.findings[0])
        self.recorder.say(node, f"{gate_id} {verdict.outcome.value}: {words}", verdict.outcome)
        return verdict

    def _conclude(self, node: str, gates: Sequence[Gate], required: set[str], *, whole: bool) -> NodeResult:
        found = self.prints[node]
        if isinstance(found, Finding):
            return NodeResult(Outcome.ERROR, str(found))
        own = {gate.id: merged(self.verdicts[node].get(gate.id, [])) for gate in gates}
        problems = [item for gate_id in own if gate_id in required for item in _problems(gate_id, own[gate_id])]
        seen = cover.of_node(
            self.facts.nodes[node], self.verdicts[node], gates, {gate.id: reason for gate in gates if (reason := self._skip_reason(gate.id, node))}
        )
        proven = cover.verdict(seen)
        if whole:
            about = {
                "title": "Every part was measured by some gate.",
                "counts": seen.counts(self.facts.nodes[node]),
                "measured_by": seen.measured,
                "unmeasured": seen.unmeasured,
                "skipped": seen.skipped,
            }
            self.recorder.conclusion(cover.GATE, node, proven, about)
            problems += [(proven.outcome, str(finding)) for finding in proven.findings]
        if not any(verdict.outcome is not Outcome.NOT_RUN for verdict in own.values()):
            problems.append((Outcome.ERROR, f"{node}: nothing was run - Expected: at least one gate Actual: none. Check the gate set."))
        problems.sort(key=lambda item: _RANK[item[0]])
        outcome = worst([item[0] for item in problems]) if problems else Outcome.PASS
        data = {
            "gates": {gate_id: verdict.outcome.value for gate_id, verdict in own.items()},
            "findings": [text for _, text in problems],
            "coverage": {kind: list(pair) for kind, pair in seen.counts(self.facts.nodes[node]).items()},
            "skipped": seen.skipped,
        }
        return NodeResult(outcome, problems[0][1] if problems else "", data=data)


_RANK = {Outcome.FAIL: 0, Outcome.ERROR: 1, Outcome.NOT_RUN: 2, Outcome.SKIP: 3, Outcome.PASS: 4}


def _problems(gate_id: str, verdict: Verdict) -> list[tuple[Outcome, str]]:
    """Return why a required gate is not satisfied; a pass that only a fleet could judge is not enough alone."""
    if verdict.outcome is Outcome.PASS and verdict.note == FLEET_PENDING:
        step = "Measure at least 16 identical nodes, or give the profile a reference with its source."
        return [(Outcome.ERROR, f"{gate_id}: {FLEET_PENDING} - Expected: a bound that judges Actual: none for this platform. {step}")]
    if verdict.outcome in _GOOD:
        return []
    return [(verdict.outcome, str(finding)) for finding in verdict.findings] or [(verdict.outcome, f"{gate_id}: {verdict.outcome.value}")]


def merged(verdicts: Sequence[Verdict]) -> Verdict:
    """Return several verdicts about one node as one: the worst outcome, all findings; of none at all: error."""
    if not verdicts:
        return Verdict(outcome=Outcome.ERROR, findings=[Finding(where="gate", what="no verdict", expected="one", actual="none", next_step="Report a bug.")])
    if len(verdicts) == 1:
        return verdicts[0]
    outcome = worst([verdict.outcome for verdict in verdicts])
    notes = list(dict.fromkeys(verdict.note for verdict in verdicts if verdict.note))
    transports = list(dict.fromkeys(verdict.transport for verdict in verdicts if verdict.transport))
    return Verdict(
        outcome=outcome,
        findings=sorted((finding for verdict in verdicts for finding in verdict.findings), key=lambda finding: finding.where),
        metrics=[metric for verdict in verdicts for metric in verdict.metrics],
        criteria=list({item.model_dump_json(): item for verdict in verdicts for item in verdict.criteria}.values()),
        measured=sorted({part for verdict in verdicts for part in verdict.measured}),
        blamed=sorted({node for verdict in verdicts for node in verdict.blamed}),
        transport="; ".join(transports) or None,
        note="; ".join(notes) or None,
    )
