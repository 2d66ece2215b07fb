"""Results per node from Ansible's events: pure, from the worker's lines. The exit status is never used.

A run of four good nodes and a bad one ends with status 4; a broken inventory may end with 0 and no node at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rackready.drivers.ansible_items import CHECK, KEY, Item, check_in
from rackready.drivers.ssh.errors import way_out
from rackready.ledger.store import DETAIL
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult

Tell = Callable[[str, str, str], None]
"""Takes a node, a line of progress and its level."""

_HOST_KEY = ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED", "No matching host key")
_SUDO = ("Incorrect sudo password", "Missing sudo password", "No start of json char found")
"""A task's result where sudo refuses; the last one where sudo prints something else, as for a user not in sudoers."""
_FULL = "No space left on device"
_NO_FOLDER = "Failed to create temporary directory"
"""Ansible reports such a node as unreachable, although the login worked."""

_FOLDER_WANTED = "no temporary folder - Expected: one in the login's home directory"
_LOOK_AT_DISK = "Check whether that disk is full or read-only (`df -h ~` on the node), then run again."
_SPOKEN = frozenset({"gpu", "nic", "unit"})
"""Kinds of items whose values say more than the name of the task."""
_GENERIC = frozenset({"", "non-zero return code", "One or more items failed", "MODULE FAILURE"})


@dataclass
class Events:
    """The events of one run. ``phase`` and ``log`` are named in its messages; ``check``: it was a dry run.

    ``at_jump`` returns why a node's jump host does not reach it, "" if it does: Ansible sees only a closed connection.
    ``at_sudo`` returns why sudo refuses on a node, "" if it does not: Ansible may see only an answer that is no JSON.
    """

    phase: str
    nodes: list[str]
    log: str
    tell: Tell
    check: bool = False
    stats: dict[str, dict[str, int]] | None = None
    failures: dict[str, str] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)
    unmeasured: dict[str, list[str]] = field(default_factory=dict)
    """What tasks could not measure, per node: not a fail, and no proof either."""
    at_jump: Callable[[str], str] = lambda _node: ""
    at_sudo: Callable[[str], str] = lambda _node: ""
    differs: dict[str, list[str]] = field(default_factory=dict)
    """Differences that tasks report, per node, e.g. ``enp26s0np0 MTU 1500, wanted 9000``; some tasks report none."""
    items: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """The same, typed (``ansible_items``), each with its role and task."""
    broken: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Failed tasks per node, also those that a ``rescue`` took over: role, task and message; of a check, its values."""
    _roles: dict[str, str] = field(default_factory=dict)
    _items: dict[str, list[tuple[str, Item | None]]] = field(default_factory=dict)
    """Failed rounds of a task with a loop, per node: the message and the check."""

    def line(self, text: str) -> None:
        """Handle one line of the worker; a line that is no event is kept as output."""
        try:
            event = json.loads(text)
        except ValueError:
            event = {"event": "output", "text": text}
        if not isinstance(event, dict):
            event = {"event": "output", "text": text}
        handler = getattr(self, f"_{event.get('event', '')}", None)
        if handler:
            handler(event)

    def result(self, node: str, *, timed_out: bool = False) -> NodeResult:
        """Return the result of one requested node."""
        if node in self.failures:
            return NodeResult(
                Outcome.FAIL, self.failures[node], changed=self._count("changed", node) > 0, data=self._data(node)
            )
        if node in self.unreachable:
            return NodeResult(Outcome.ERROR, self.unreachable[node], data=self._data(node))
        if self._count("processed", node) == 0:
            return NodeResult(Outcome.ERROR, self._missing(node, timed_out=timed_out), data=self._data(node))
        if self._count("failures", node) or self._count("dark", node):
            text = (
                f"{node}: {self.phase}: failed without a message - Expected: an event for the failed task "
                f"Actual: none. See {self.log}."
            )
            return NodeResult(Outcome.ERROR, text, data=self._data(node))
        return NodeResult(Outcome.PASS, changed=self._count("changed", node) > 0, data=self._data(node))

    def strangers(self) -> list[str]:
        """Return nodes that were reported, but not requested."""
        return sorted(set((self.stats or {}).get("processed", {})) - set(self.nodes))

    def _count(self, kind: str, node: str) -> int:
        return int((self.stats or {}).get(kind, {}).get(node, 0))

    def _data(self, node: str) -> dict[str, Any]:
        counts: dict[str, Any] = {"changed": self._count("changed", node), "ok": self._count("ok", node)}
        kept: dict[str, dict[str, Any]] = {
            "changes": self.changes,
            "unmeasured": self.unmeasured,
            "differs": self.differs,
        }
        kept |= {"items": self.items, "broken": self.broken}
        return counts | {key: found[node] for key, found in kept.items() if node in found}

    def _missing(self, node: str, *, timed_out: bool) -> str:
        errors = [line for line in self.output if "ERROR" in line or "Error" in line]
        last = (errors or self.output or ["nothing about it"])[-1].strip()
        actual = "the run took too long and was ended" if timed_out else last
        step = "Free disk space on the controller, then run again." if _FULL in actual else f"See {self.log}."
        return (
            f"{node}: {self.phase}: no result - Expected: Ansible reports every requested node "
            f"Actual: {actual.rstrip('.')}. {step}"
        )

    def _output(self, event: dict[str, Any]) -> None:
        self.output = [*self.output[-49:], str(event.get("text", ""))]

    def _runner_on_start(self, event: dict[str, Any]) -> None:
        node, role = event.get("host", ""), event.get("role", "")
        if role and self._roles.get(node) != role:
            self._roles[node] = role
            self.tell(node, f"role {role}", DETAIL)

    def _runner_on_ok(self, event: dict[str, Any]) -> None:
        result = event.get("res", {})
        for note in result.get("notes") or []:
            self.tell(event["host"], str(note), "warn")
        for text in result.get("unmeasured") or []:
            self.unmeasured.setdefault(event["host"], []).append(str(text))
            self.tell(event["host"], str(text), "info")
        if result.get("changed"):
            self.changes.setdefault(event["host"], []).append(_task(event))
            items = [dict(item) for item in result.get(KEY) or []]
            found = [str(text) for text in result.get("differs") or []] or _differs(items)
            if found:
                self.differs.setdefault(event["host"], []).extend(found)
            where = {"role": str(event.get("role", "")), "task": str(event.get("task", ""))}
            if items:
                self.items.setdefault(event["host"], []).extend(item | where for item in items)
            words = f" ({'; '.join(found)})" if found else ""
            self.tell(
                event["host"],
                f"{'would change' if self.check else 'changed'}: {_task(event)}{words}",
                "info" if self.check else DETAIL,
            )

    def _runner_retry(self, event: dict[str, Any]) -> None:
        result = event.get("res", {})
        if int(result.get("attempts") or 0) in {1, 5, 20}:
            self.tell(event["host"], f"waiting: {_task(event)}", "info")

    def _runner_item_on_failed(self, event: dict[str, Any]) -> None:
        result = event.get("res", {})
        self._items.setdefault(event["host"], []).append((_words(result), check_in(result)))

    def _runner_on_failed(self, event: dict[str, Any]) -> None:
        node = event["host"]
        items = self._items.pop(node, [])
        if event.get("ignore_errors") or event.get("res", {}).get("_ansible_ignore_errors"):
            return
        result = event.get("res", {})
        words = "; ".join(dict.fromkeys(said for said, _ in items)) if items else _words(result)
        checks = [check for _, check in items] if items else [check_in(result)]
        check = checks[0] if all(checks) else None
        if any(mark in words for mark in _SUDO) and (told := self.at_sudo(node)):
            self._no_login(node, told)
            return
        self.failures[node] = (
            f'{node}: {self.phase}: task "{_task(event)}" failed - {words if check else self._explained(words)}'
        )
        where = {"role": str(event.get("role", "")), "task": str(event.get("task", ""))}
        self.broken.setdefault(node, []).append({**where, "message": words, **({CHECK: check} if check else {})})
        self.tell(node, self.failures[node], "error")

    def _no_login(self, node: str, told: str) -> None:
        self.unreachable[node] = f"{node}: {self.phase}: {told}"
        self.tell(node, self.unreachable[node], "error")

    def _runner_on_unreachable(self, event: dict[str, Any]) -> None:
        node, words = event["host"], _words(event.get("res", {}))
        if _FULL in words or _NO_FOLDER in words:
            self.unreachable[node] = (
                f"{node}: {self.phase}: {_FOLDER_WANTED} Actual: {words.partition('. ')[0]}. {_LOOK_AT_DISK}"
            )
            self.tell(node, self.unreachable[node], "error")
            return
        if told := self.at_jump(node):
            self._no_login(node, told)
            return
        step = "Check that the node is up and that its address and key in the site file are right, then run again."
        if any(mark in words for mark in _HOST_KEY):
            step = way_out(node)
        self.unreachable[node] = (
            f"{node}: {self.phase}: cannot log in - Expected: SSH answers with the pinned host key "
            f"Actual: {words.rstrip('.')}. {step}"
        )
        self.tell(node, self.unreachable[node], "error")

    def _playbook_on_stats(self, event: dict[str, Any]) -> None:
        self.stats = {kind: dict(value) for kind, value in event.items() if isinstance(value, dict)}

    def _explained(self, words: str) -> str:
        if _FULL in words:
            return f"Expected: room on the node's disk Actual: {_FULL}. Free disk space on the node, then run again."
        return f"Expected: the task succeeds Actual: {words.rstrip('.')}. See {self.log}."


def collect(lines: Iterable[str], events: Events) -> Events:
    """Handle recorded lines and return ``events``."""
    for text in lines:
        events.line(text)
    return events


def _task(event: dict[str, Any]) -> str:
    role = f"{event['role']} : " if event.get("role") else ""
    return f"{role}{event.get('task', 'unnamed')}"


def _differs(items: list[dict[str, str]]) -> list[str]:
    """Return the differences of a report that has only typed ones, in words. A task as such is named already."""
    return [f"{item['name']} {item['actual']}, wanted {item['expected']}" for item in items if item["kind"] in _SPOKEN]


def _words(result: dict[str, Any]) -> str:
    """Return the most telling words of a task's result in one line."""
    if result.get("censored"):
        return "the result is kept secret (no_log)"
    message = " ".join(str(result.get("msg") or "").split())
    generic = message in _GENERIC or message.startswith("MODULE FAILURE")
    if check_in(result) or (not generic and _FULL not in message):
        return message
    for key in ("stderr", "stdout", "exception"):
        lines = [line.strip() for line in str(result.get(key) or "").splitlines() if line.strip()]
        if lines:
            return next((line for line in lines if _FULL in line), lines[-1])
    return message or "no message"
