"""Typed differences from the results of Ansible tasks: pure, and without the content of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

Item = dict[str, str]
"""``kind``, ``name``, ``expected`` and ``actual``; the kinds are those of model.drift."""

KEY = "drift"
"""Key under which our own modules, and the reports of roles in a dry run, return their items."""

CHECK = "check"
"""Key under which a failed check of ours returns ``expected``, ``actual`` and ``next_step`` (plugins/action)."""

_AT_BOOT = frozenset({"enabled", "enabled-runtime", "static", "indirect", "alias", "generated"})
"""States of a unit file for which `systemctl is-enabled` exits with 0 (systemctl(1))."""
_RUNS = frozenset({"active", "activating", "reloading"})


def items_of(task: str, result: Mapping[str, Any]) -> list[Item]:
    """Return what a task that changed something changed, or in a dry run would change.

    A task that reports only that it changed something gives an item of kind ``task``. A restart of a unit that is
    enabled and active gives none: it follows another change.
    """
    if result.get(KEY):
        return [{key: str(item.get(key, "")) for key in ("kind", "name", "expected", "actual")} for item in result[KEY]]
    if not result.get("changed"):
        return []
    if result.get("censored") or result.get("_ansible_no_log"):
        return [_item("file", task, "the content that the site declares", "differs (its content is kept secret)")]
    if isinstance(result.get("status"), Mapping):
        return _unit(result)
    return _files(result) or [_item("task", task, "nothing to change", "it would change something")]


def check_in(result: Mapping[str, Any]) -> Item | None:
    """Return what a failed check of ours returned, None for any other failure: a foreign role has only a message."""
    found = result.get(CHECK)
    if not isinstance(found, Mapping) or not {"expected", "actual"} <= found.keys():
        return None
    return {key: str(found.get(key) or "") for key in ("expected", "actual", "next_step")}


def check_of(task: str, check: Item) -> Item:
    """Return the item for a failed check.

    It has a ``next_step`` of its own, where the check names one: to run the role again may not help.
    """
    return _item("check", task, check["expected"], check["actual"]) | {"next_step": check["next_step"]}


def _unit(result: Mapping[str, Any]) -> list[Item]:
    """Return the difference of a systemd unit. ``status``: its properties before the task."""
    status = result["status"]
    expected, actual = [], []
    at_boot, runs = str(status.get("UnitFileState", "")), str(status.get("ActiveState", ""))
    if result.get("enabled") is True and at_boot not in _AT_BOOT:
        expected.append("enabled")
        actual.append(at_boot or "not enabled")
    if result.get("state") in {"started", "restarted"} and runs not in _RUNS:
        expected.append("active")
        actual.append(runs or "unknown")
    name = str(result.get("name", "unit"))
    return [_item("unit", name, ", ".join(expected), ", ".join(actual))] if expected else []


def _files(result: Mapping[str, Any]) -> list[Item]:
    """Return the differences of files, by hash, from the diff of a module such as copy, template or file."""
    found = result.get("diff") or []
    out = []
    for diff in found if isinstance(found, list) else [found]:
        before, after = diff.get("before"), diff.get("after")
        path = str(
            result.get("dest") or result.get("path") or diff.get("after_header") or diff.get("before_header") or ""
        )
        if not path or before == after:
            continue
        out.append(_item("file", path, _content(after), _content(before)))
    return out


def _content(side: object) -> str:
    """Return the hash of a file's content, or attributes as Ansible's file module lists them."""
    if isinstance(side, Mapping):
        return ", ".join(f"{key} {value}" for key, value in sorted(side.items()) if key != "path") or "absent"
    text = str(side or "")
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}" if text else "absent or empty"


def _item(kind: str, name: str, expected: str, actual: str) -> Item:
    return {"kind": kind, "name": name, "expected": expected, "actual": actual}
