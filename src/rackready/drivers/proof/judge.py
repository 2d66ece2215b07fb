"""Judges what a node answered to the steps of a proof: pure. Anything that is not plainly equal is a difference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackready.drivers.ansible_items import items_of
from rackready.drivers.proof.kinds import KINDS
from rackready.drivers.proof.recorded import Recorded, RecordedStep
from rackready.drivers.proof.rules import RULES, AnswerRule, Now, words
from rackready.ondevice import replay


@dataclass(frozen=True, slots=True)
class ProofResult:
    """``differs``: every step that did not answer as recorded, and why; empty: the node is as its release says.

    ``failure``: why nothing is known.
    """

    differs: tuple[str, ...] = ()
    failure: str = ""

    @property
    def same(self) -> bool:
        """Return whether the node was read, and nothing differs."""
        return not self.differs and not self.failure

    @property
    def reason(self) -> str:
        """Return why the node is played."""
        more = f" and {len(self.differs) - 1} more" if len(self.differs) > 1 else ""
        return self.failure or (f"{self.differs[0]}{more}" if self.differs else "")


def judged(recorded: Recorded, text: str, received: float) -> ProofResult:
    """Return the verdict on a node's document. ``received``: when its end arrived, seconds since the epoch."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, Mapping) or document.get("format") != replay.FORMAT or not document.get("complete"):
        return ProofResult(failure="the node's answer is no document of this version")
    answers = document.get("steps")
    if not isinstance(answers, list) or document.get("digest") != replay.digest(answers):
        return ProofResult(failure="the node's answer is damaged")
    if not recorded.steps or len(answers) != len(recorded.steps):
        return ProofResult(failure=f"{len(answers)} answers, expected {len(recorded.steps)}")
    try:
        begun = received - float(document["seconds"])
        found = [
            (step, _difference(recorded, step, one, begun)) for step, one in zip(recorded.steps, answers, strict=True)
        ]
    except (AttributeError, KeyError, TypeError, ValueError):  # it must not stop the proofs of other nodes
        return ProofResult(failure="the node's answer cannot be read")
    return ProofResult(tuple(f"{step.where}: {why}" for step, why in found if why))


def _difference(recorded: Recorded, step: RecordedStep, answer: Mapping[str, Any], begun: float) -> str:
    kind = KINDS[step.action]
    result = answer.get("result")
    if not isinstance(result, Mapping):
        return str(answer.get("failure") or "no answer")
    if kind.tells_change:
        if answer.get("failed") or answer.get("status") != 0:
            return str(answer.get("failure") or f"ended with status {answer.get('status')}")
        if answer.get("changed") is not False and (answer.get("changed") or step.action.startswith("rackready_")):
            return _changes(step, {**result, "changed": True})
    rule = RULES.get(step.where)
    if rule is None:
        return "" if result == step.expected else words(step.expected, result)
    return _by_rule(rule, recorded, step, result, Now(begun + float(answer["at_s"])))


def _by_rule(rule: AnswerRule, recorded: Recorded, step: RecordedStep, result: Mapping[str, Any], now: Now) -> str:
    bounds = recorded.bounds.get(rule.bounds_of, {})
    if lacking := [name for name in rule.bounds if name not in bounds]:
        return f"no bound {', '.join(lacking)} was recorded"
    try:
        return rule.judge(step.expected, result, bounds, now)
    except (ValueError, KeyError, IndexError, TypeError):
        return "an answer that cannot be read"


def _changes(step: RecordedStep, result: Mapping[str, Any]) -> str:
    """Return what a module would change, in words."""
    items = [item for item in items_of(step.task, result) if item["kind"] != "task"]
    found: Sequence[str] = [f"{item['name']} {item['actual']}, wanted {item['expected']}" for item in items[:3]]
    return "; ".join(found) or "it would change something"
