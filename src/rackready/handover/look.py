"""Looks at nodes: every gate that only reads is run anew, on nodes in production, too. A certificate counts for what was seen again now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rackready.gates.board import Kept
from rackready.gates.phase import run_gates
from rackready.handover.policy import Decision, light, looks
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome, Verdict
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.profile import GateSetEntry

_SEEN = "seen again: {checks} checks passed; what was measured under load still counts"


def unseen(decision: Decision) -> bool:
    """Whether a look is due."""
    return any(light(gate) for gate in decision.objections)


def to_load(entries: Sequence[GateSetEntry], decision: Decision) -> str:
    """Return why a node must be measured under load, empty when a look is all that may be due."""
    due = (decision.objections[entry.id] for entry in entries if entry.required and entry.id in decision.objections and not light(entry.id))
    return next(due, "")


def kept(records: Mapping[str, EvidenceRecord], decision: Decision) -> dict[str, Verdict]:
    """Return gate -> the verdict that counts: it is not run again."""
    return {name: record.verdict for name, record in records.items() if name in decision.counting}


def look(ctx: PhaseContext, counts: Kept) -> dict[str, NodeResult]:
    """Run the gates that are due on nodes of which only a look is due; ``counts``: what is not run, node by node. Told is only what does not pass."""
    if not counts:
        return {}
    out = {}
    for node, result in run_gates(ctx, list(counts), kept=counts, quiet=True).items():
        seen = [gate for gate in result.data.get("gates", {}) if looks(gate) and gate not in counts[node]]
        out[node] = replace(result, message=_SEEN.format(checks=len(seen))) if result.outcome is Outcome.PASS else result
    return out
