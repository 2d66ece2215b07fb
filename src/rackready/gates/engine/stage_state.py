"""State of a running stage: the site's facts, and every node's verdicts so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.gates.base import REGISTRY, Gate, GateFacts
from rackready.gates.engine.declared_off import lacking
from rackready.gates.engine.recorder import Recorder, not_run, skipped
from rackready.gates.judging.merge import merged
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import CONTINUES, Finding, Outcome, Verdict
from rackready.model.site import Site

Kept = Mapping[str, Mapping[str, Verdict]]
"""Node -> gate -> the verdict of evidence that still counts and need not be measured again."""


@dataclass(slots=True)
class StageState:
    """State of one stage: facts, recorder, fingerprints, and the verdicts so far."""

    site: Site
    facts: GateFacts
    recorder: Recorder
    prints: Mapping[str, Fingerprint | Finding]
    day: date = field(default_factory=today)
    """Date for which kill switches are evaluated."""
    kept: Kept = field(default_factory=dict)
    verdicts: dict[str, dict[str, list[Verdict]]] = field(default_factory=lambda: defaultdict(dict))
    """node -> gate -> its verdicts."""
    order: Sequence[str] = ()
    """Ids of the stage's gates, in the order in which they run."""
    _skips: dict[str, dict[str, str]] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _names: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return the names of all nodes of the site."""
        if not self._names:
            self._names = frozenset(node.name for node in self.site.nodes())
        return self._names

    def keep(self, kept: Kept) -> None:
        """Adopt verdicts that still count."""
        self.kept = kept
        for node, verdicts in kept.items():
            self.verdicts[node] = {gate: [verdict] for gate, verdict in verdicts.items()}

    def skips(self, node: str) -> dict[str, str]:
        """Return gate -> reason for each gate that the site skips on a node."""
        if node not in self._skips:
            self._skips[node] = self.site.gates.skipped(node, self.day)
        return self._skips[node]

    def digest(self, node: str) -> str:
        """Return the digest of a node's desired state."""
        if node not in self._digests:
            self._digests[node] = desired_digest(self.site, node)
        return self._digests[node]

    def settled(self, gate: Gate, node: str, stopped_by: str) -> Verdict | None:
        """Return the verdict on a gate that need not or must not run on a node, unrecorded; None if it is to run."""
        return self.kept.get(node, {}).get(gate.id) or self.left_out(gate, node, stopped_by)

    def left_out(self, gate: Gate, node: str, stopped_by: str) -> Verdict | None:
        """Return the verdict on a gate that must not run on a node (a declared skip, or not run); None if it may run.

        ``stopped_by``: what did not pass before; empty: nothing.
        """
        if reason := self.skips(node).get(gate.id, ""):
            return skipped(reason)
        if off := lacking(self.site, gate):
            why = f"it needs {off[0].name}, and the site declares {off[0].key}: false"
            return not_run(node, gate.id, why, "Skip it with the reason (gates.skip).")
        if stopped_by:
            return not_run(node, gate.id, f"{stopped_by} did not pass", "Repair that first.")
        return None

    def begins(self, gate: Gate, node: str) -> None:
        """Log that a gate begins on a node, and its place among the stage's gates."""
        place = f" (gate {self.order.index(gate.id) + 1} of {len(self.order)})" if gate.id in self.order else ""
        self.recorder.progress(node, f"{gate.id} begins: {gate.title()}{place}", Outcome.PASS)

    def note(self, gate_id: str, node: str, verdict: Verdict) -> Verdict:
        """Record and log a verdict without a measurement."""
        self.verdicts[node][gate_id] = [verdict]
        self.recorder.conclusion(gate_id, node, verdict, {"title": REGISTRY[gate_id].title()})
        words = f"declared skip: {verdict.note}" if verdict.outcome is Outcome.SKIP else str(verdict.findings[0])
        self.recorder.progress(node, f"{gate_id} {verdict.outcome.value}: {words}", verdict.outcome)
        return verdict

    def first_bad(self, node: str, required: Collection[str]) -> str:
        """Return the first required gate that a node did not pass; empty if there is none."""
        return next(iter(self._bad(node, required)), "")

    def stopped_by(self, node: str, required: Collection[str]) -> str:
        """Return the first required gate that a node did not pass and that stops load; empty if there is none."""
        return self.lost(node) or next(
            (name for name in self._bad(node, required) if name not in REGISTRY or REGISTRY[name].stops_load), ""
        )

    def lost(self, node: str) -> str:
        """Return which GPUs of a node could not be identified; empty if none.

        Load beside a lost GPU may hang the node.
        """
        found = self.prints[node]
        return (
            ""
            if isinstance(found, Finding) or not found.unread
            else f"reading the identity of {', '.join(found.unread)}"
        )

    def _bad(self, node: str, required: Collection[str]) -> list[str]:
        if isinstance(self.prints[node], Finding):
            return ["reading its serials and versions"]
        return [
            gate
            for gate, verdicts in self.verdicts[node].items()
            if gate in required and merged(verdicts).outcome not in CONTINUES
        ]
