"""Findings of every gate: no result, nothing judged, not run, or an output that the gate cannot handle."""

from __future__ import annotations

from rackready.gates.base import TROUBLE
from rackready.gates.engine.recorder import GATE_NOT_RUN
from rackready.gates.engine.runner import JUDGEMENT_BROKE
from rackready.gates.judging.finding_kinds import FindingKind, Kinds
from rackready.gates.judging.judge import NOTHING_JUDGED, VALUE_NOT_REPORTED

FINDINGS: Kinds = (*TROUBLE, VALUE_NOT_REPORTED, NOTHING_JUDGED, JUDGEMENT_BROKE, GATE_NOT_RUN)


def described(kind: FindingKind) -> dict[str, object]:
    """Return a kind of finding as a plain document."""
    return {
        "code": kind.code,
        "outcome": kind.outcome.value,
        "title": kind.title,
        "meaning": kind.meaning,
        "next_steps": [str(step) for step in kind.steps or (kind.next_step,)],
        "runbook": kind.runbook,
    }
