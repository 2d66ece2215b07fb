"""Writes every step of a play, with its arguments and its answer, to the file that $RACKREADY_STEPS names.

rackready enables it for its own runs, and reads and removes the file: a later run proves with it that nothing changed.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: rackready_steps
type: notification
short_description: records the steps of a play for the proof that nothing changed
description:
  - Does nothing unless C(RACKREADY_STEPS) names a file, which only its owner may read.
author: rackready
"""

FIELDS = ("args", "no_log", "delegate_to", "async_val", "run_once", "ignore_errors", "environment")
DECLARED = ("check_mode", "changed_when")
"""What a role's file says of a task, before Ansible fills in the rest."""


class CallbackModule(CallbackBase):
    """Adapter: one line of JSON for each step of each host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "rackready_steps"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result: Any) -> None:  # noqa: ANN401 - Ansible's
        """Record a task; one with a loop was recorded by its items."""
        if not result.task.loop:
            self._write("ok", result)

    def v2_runner_item_on_ok(self, result: Any) -> None:  # noqa: ANN401
        """Record one item of a loop."""
        self._write("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: ANN401, FBT001, FBT002
        """Record that a task failed: such a play proves nothing."""
        del ignore_errors
        self._write("failed", result)

    def v2_runner_item_on_failed(self, result: Any) -> None:  # noqa: ANN401
        """Record that an item of a loop failed."""
        self._write("failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:  # noqa: ANN401
        """Record that a node was lost."""
        self._write("unreachable", result)

    def _write(self, event: str, result: Any) -> None:  # noqa: ANN401
        path = os.environ.get("RACKREADY_STEPS")
        if not path:
            return
        role = result.task._role  # noqa: SLF001 - Ansible has no other way
        line = {
            "event": event,
            "host": result.host.get_name(),
            "role": role.get_name() if role else "",
            "task": str(result.task_fields.get("name", "")),
            "action": result.task.resolved_action or result.task.action,
            "result": dict(result.result),
            "declared": {key: (result.task.get_ds() or {}).get(key) for key in DECLARED},
            **{key: result.task_fields.get(key) for key in FIELDS},
        }
        try:
            text = json.dumps(line)
        except TypeError as error:  # such a play proves nothing either
            text = json.dumps({"event": "unwritten", "host": line["host"], "task": line["task"], "why": str(error)})
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(text + "\n")
