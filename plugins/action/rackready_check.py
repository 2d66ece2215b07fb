"""Check that conditions hold, and return what was expected and what is, as data beside the message."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ASSERT = import_module("ansible.plugins.action.assert").ActionModule
"""Ansible's own action: it evaluates ``that``. Its module's name is a keyword of Python."""
NEEDED = ("that", "expected", "actual")
WORDS = ("expected", "actual", "next_step")


class ActionModule(ASSERT):
    """Evaluate ``that`` as `ansible.builtin.assert` does, also in check mode; a failed check has key ``check``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return Ansible's result. ``msg`` of a failed check: Expected, Actual, next step."""
        given = dict(self._task.args)
        if lacks := [name for name in NEEDED if name not in given]:
            return {"failed": True, "msg": f"rackready_check - Expected: {', '.join(NEEDED)} Actual: no {lacks[0]}."}
        check = {name: text(given.pop(name, None)) for name in WORDS}
        bounds = given.pop("bounds", None)  # for the proof that a later play judges the same (rackready.drivers.proof)
        check["actual"] = check["actual"].rstrip(".")
        self._task.args = {**given, "fail_msg": message(**check), "quiet": True}
        result: dict[str, Any] = super().run(tmp, task_vars)
        result |= {"bounds": bounds} if bounds else {}
        return {**result, "check": check} if result.get("failed") and "assertion" in result else result


def text(value: object) -> str:
    """Return a value as a template in a sentence shows it; a template alone may give a number, a list or nothing."""
    return "" if value is None else " ".join(str(value).split())


def message(expected: str, actual: str, next_step: str) -> str:
    """Return a check in words."""
    return f"Expected: {expected} Actual: {actual}. {next_step}".rstrip()
