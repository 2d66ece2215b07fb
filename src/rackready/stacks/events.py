"""Results per node from the engine's events: pure, never from its return code; no event is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pulumi.automation import DiagnosticEvent, EngineEvent, StepEventMetadata

from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.problems import quoted
from rackready.stacks.kinds import METAL, StackKind

_QUIET = {"same", "read", "refresh"}
_WRAPPINGS = (
    re.compile(r"^Preview failed: "),
    re.compile(r"^\d+ errors? occurred:\s*\*\s*"),
    re.compile(r"^rpc error: code = \w+ desc = "),
    re.compile(r"^Unexpected <class '[^']*'>: "),
)


@dataclass
class _Seen:
    ops: list[str] = field(default_factory=list)
    failed: bool = False
    errors: list[str] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    problem: str = ""


class Recorder:
    """Collector of the engine's events of one run; it makes a result per node."""

    def __init__(self, kind: StackKind[Any] = METAL) -> None:
        self.kind = kind
        self._seen: dict[str, _Seen] = {}
        self._general: list[str] = []
        self.imaging: dict[str, str] = {}
        """Node -> what imaging would do to it, of nodes that are imaged."""
        self.begun: Callable[[], None] = lambda: None
        """Called at every step on a node: the engine has started by then."""

    def take(self, event: EngineEvent) -> None:
        """Handle one event. Called by the engine's own thread."""
        if event.diagnostic_event is not None and event.diagnostic_event.severity == "error":
            self._diagnostic(event.diagnostic_event)
        if event.resource_pre_event is not None:
            self._step(event.resource_pre_event.metadata)
        if event.res_outputs_event is not None:
            self._outputs(event.res_outputs_event.metadata)
        if event.res_op_failed_event is not None and (
            node := self.kind.node_of(event.res_op_failed_event.metadata.urn)
        ):
            self._of(node).failed = True

    def results(self, nodes: list[str], *, check: bool = False) -> dict[str, NodeResult]:
        """Return a result for each of ``nodes``; a node without an event is an error."""
        return {node: self._result(node, check=check) for node in nodes}

    def unheard(self, node: str) -> bool:
        """Return whether the engine neither did anything to a node nor reported an error."""
        seen = self._seen.get(node, _Seen())
        return not (seen.errors or seen.failed or self._general or self._done(seen))

    @staticmethod
    def _done(seen: _Seen) -> list[str]:
        return [op for op in seen.ops if op != "refresh"]

    def _of(self, node: str) -> _Seen:
        return self._seen.setdefault(node, _Seen())

    def _diagnostic(self, event: DiagnosticEvent) -> None:
        text = clean(event.message)
        node = self.kind.node_of(event.urn or "")
        if node:
            self._of(node).errors.append(text)
        elif text and text != "update failed":
            self._general.append(text)

    def _step(self, metadata: StepEventMetadata) -> None:
        if (node := self.kind.node_of(metadata.urn)) and metadata.type == self.kind.resource:
            self.begun()
            seen = self._of(node)
            seen.ops.append(str(metadata.op.value))
            seen.keys += metadata.diffs or []
            before = (metadata.old.outputs if metadata.old else None) or {}
            seen.problem = str(before.get("problem") or "") or seen.problem

    def _outputs(self, metadata: StepEventMetadata) -> None:
        if (
            (node := self.kind.node_of(metadata.urn))
            and metadata.type == self.kind.resource
            and metadata.new is not None
        ):
            self._step(metadata)
            self._of(node).outputs = dict(metadata.new.outputs or {})

    def _result(self, node: str, *, check: bool) -> NodeResult:
        seen = self._seen.get(node, _Seen())
        if seen.errors or seen.failed:
            silent = f"{node}: the engine failed on it without a message. Look at the log of the run."
            return NodeResult(Outcome.ERROR, seen.errors[0] if seen.errors else silent)
        if not self._done(seen):
            why = self._general[0] if self._general else "the engine reported nothing about it"
            step = "Run again; the log of the run shows more."
            text = f"{node}: not provisioned - Expected: a result Actual: {quoted(why)}. {step}"
            return NodeResult(Outcome.ERROR, text)
        if check and seen.problem:
            return NodeResult(Outcome.ERROR, seen.problem)
        acted = sorted({op for op in seen.ops if op not in _QUIET})
        data: dict[str, Any] = {
            key: seen.outputs[key] for key in ("power", "made", "boot_id", "serial", "restart") if key in seen.outputs
        }
        if self.kind.kind == "virtual":
            message = _domain_message(acted, seen.keys, data, check=check)
        else:
            message = _message(acted, seen.keys, data, self.imaging.get(node, "") if check else None)
        return NodeResult(Outcome.PASS, message, changed=bool(acted), data={} if check or "delete" in acted else data)


def _message(acted: list[str], keys: list[str], data: dict[str, Any], imaging: str | None) -> str:
    """Return a result in words. ``imaging``: in a dry run, what imaging would do; None: it is no dry run."""
    if not acted:
        return "as it should be"
    if imaging is not None:
        return f"would {acted[0]}: {_would(acted, keys, imaging)}"
    if acted == ["delete"]:
        return "powered off" if data.get("made") else "was on before us, left on"
    return "powered on, SSH answers" if data.get("made") else "was on, SSH answers"


def _would(acted: list[str], keys: list[str], imaging: str) -> str:
    if "erase" in keys:
        return f"power off, erase its disks, {imaging}, wait for SSH"
    if "create" in acted:
        pins = "wait for SSH with the host key that rackready made" if imaging else "wait for SSH, pin its host key"
        return f"if it is off, {imaging}; {pins}" if imaging else f"power on, {pins}"
    return f"bring back {', '.join(sorted(set(keys)))}"


def _domain_message(acted: list[str], keys: list[str], data: dict[str, Any], *, check: bool) -> str:
    """Return what happened to a virtual node."""
    if check and acted:
        what = "define and start its domain" if "create" in acted else f"bring back {', '.join(sorted(set(keys)))}"
        return f"would {acted[0]}: {what}"
    if acted == ["delete"]:
        return "stopped and undefined, its disk stays"
    text = "defined and started" if "create" in acted else "redefined where it differed, runs"
    text = text if acted else "as it should be"
    return f"{text}; it runs an older definition: shut it down, then run again" if data.get("restart") else text


def clean(message: str) -> str:
    """Return a diagnostic without the engine's wrapping: colours, "1 error occurred", gRPC codes."""
    text = re.sub(r"<\{%[^%]*%\}>", "", message).strip()
    for pattern in _WRAPPINGS:
        text = pattern.sub("", text, count=1).strip()
    return " ".join(text.split())
