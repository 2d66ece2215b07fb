"""Judging texts as if they had been captured: one exit code for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.gates.base import Gate, GateFacts, Run
from rackready.gates.records import offline
from rackready.model.outcome import Verdict


def evaluate(gate: Gate, facts: GateFacts, run: Run, texts: Mapping[str, str], exit_code: int) -> Verdict:
    """Return the verdict on these texts, by command key."""
    return offline.evaluate(gate, facts, run, {key: offline.Captured(text, exit_code) for key, text in texts.items()})
