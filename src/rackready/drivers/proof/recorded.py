"""What a play recorded of its steps (plugins/callback), as steps that a node can answer again: pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rackready.drivers.proof.kinds import ADDED, CHECK, FENCE, KINDS, ON_CONTROLLER, Keep, short
from rackready.ondevice.replay import reduced


class UnprovableError(Exception):
    """A play that proves nothing, and why: the nodes are played again."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a play that changed nothing. ``expected``: what counted of its answer."""

    role: str
    task: str
    action: str
    args: Mapping[str, Any]
    expected: Any

    @property
    def where(self) -> str:
        """Return role and task."""
        return f"{self.role} : {self.task}" if self.role else self.task

    @property
    def keep(self) -> Keep:
        """Return what counts of its answer."""
        return KINDS[self.action].keep


@dataclass(frozen=True, slots=True)
class Recorded:
    """The steps of one node, and the bounds that checks of the play judged by: role and task -> name -> number."""

    steps: tuple[RecordedStep, ...]
    bounds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the play had to say to the operator; a proof says it again."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {"steps": [asdict(step) for step in self.steps], "bounds": dict(self.bounds), "notes": list(self.notes)}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Recorded:
        """Return what ``plain`` made JSON of. Raises KeyError and TypeError."""
        steps = tuple(RecordedStep(**step) for step in data["steps"])
        if unknown := {step.action for step in steps} - KINDS.keys():
            raise KeyError(*unknown)
        return cls(steps, data["bounds"], tuple(data["notes"]))


def by_node(lines: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return node -> its lines of a record. A torn line, as of a killed play, spoils the whole record: none is left."""
    out: dict[str, list[dict[str, Any]]] = {}
    try:
        for text in lines:
            line = json.loads(text)
            out.setdefault(str(line["host"]), []).append(line)
    except (ValueError, KeyError, TypeError):
        return {}
    return out


def recorded(lines: Iterable[Mapping[str, Any]]) -> Recorded:
    """Return the steps of one node. Raises UnprovableError."""
    steps: list[RecordedStep] = []
    bounds: dict[str, dict[str, float]] = {}
    notes: dict[str, None] = {}
    for line in lines:
        where = f"{line.get('role') or 'play'} : {line['task']}"
        _refuse(where, line)
        action = short(line["action"])
        if action == CHECK and line["result"].get("bounds"):
            bounds[where] = {name: float(value) for name, value in line["result"]["bounds"].items()}
        notes |= dict.fromkeys(str(note) for note in line["result"].get("notes") or [])
        if action not in ON_CONTROLLER:
            steps.append(_step(action, line))
    if not steps:
        raise UnprovableError("no step was recorded")
    return Recorded(tuple(steps), bounds, tuple(notes))


def _refuse(where: str, line: Mapping[str, Any]) -> None:
    """Refuse a step that nothing could be proven by. Raises UnprovableError."""
    if line["event"] != "ok":
        raise UnprovableError(f"{where}: {line['event']}")
    action = short(line["action"])
    if action not in KINDS and action not in ON_CONTROLLER:
        raise UnprovableError(f"{where}: nothing reads again what {line['action']} does")
    if line["no_log"]:
        raise UnprovableError(f"{where}: it has a secret, which is not kept")
    if odd := [key for key in ("delegate_to", "async_val", "run_once", "ignore_errors") if line.get(key)]:
        raise UnprovableError(f"{where}: {odd[0]}")
    if [item for item in line.get("environment") or [] if item]:
        raise UnprovableError(f"{where}: environment")
    declared = line["declared"]
    if action in KINDS and KINDS[action].read and (declared["check_mode"], declared["changed_when"]) != (False, False):
        raise UnprovableError(f"{where}: it is not declared a read (check_mode: false, changed_when: false)")
    if line["result"].get("changed") and action in KINDS:
        raise UnprovableError(f"{where}: it changed something")


def _step(action: str, line: Mapping[str, Any]) -> RecordedStep:
    args = {key: FENCE.get(key, value) for key, value in line["args"].items() if key not in ADDED}
    expected = reduced(line["result"], KINDS[action].keep)
    return RecordedStep(str(line.get("role", "")), str(line["task"]), action, args, expected)
