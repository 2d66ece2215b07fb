"""The child process in which Ansible runs: ``python -m rackready.drivers.ansible_worker``.

It reads one request (JSON: ``argv``, ``cwd``, ``artifacts``) from standard input, runs ansible-playbook through
ansible-runner and prints every event at once, one JSON line each. It is a separate process because ansible-runner and
the workflow engine must not share threads and signal handlers, and because its whole session can be ended when the
controller dies.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import ansible_runner
from ansible_runner.utils import OutputEventFilter

from rackready.drivers import ansible_items

KEPT = (
    "runner_on_start",
    "runner_on_ok",
    "runner_on_failed",
    "runner_on_unreachable",
    "runner_item_on_failed",
    "runner_retry",
    "playbook_on_stats",
)
_RESULT_KEYS = (
    "changed",
    "msg",
    "stderr",
    "stdout",
    "rc",
    "notes",
    "unmeasured",
    "differs",
    "censored",
    "exception",
    "attempts",
    "retries",
    "_ansible_no_log",
)
_LONGEST = 8000


def main() -> int:
    """Run the request and return ansible-playbook's exit status."""
    request = json.load(sys.stdin)
    artifacts = Path(request["artifacts"])
    read_end, write_end = os.pipe()
    reader = threading.Thread(target=_pump, args=(read_end, artifacts))
    reader.start()
    try:
        with os.fdopen(write_end, "w") as output:
            _, _, returncode = ansible_runner.run_command(
                executable_cmd="ansible-playbook",
                cmdline_args=request["argv"],
                host_cwd=request["cwd"],
                private_data_dir=str(artifacts.parent),
                artifact_dir=str(artifacts.parent),
                ident=artifacts.name,
                runner_mode="subprocess",
                input_fd=None,
                output_fd=output,
                error_fd=output,
                quiet=True,
            )
    except KeyboardInterrupt:
        return 130
    finally:
        reader.join()
    return int(returncode)


def _pump(descriptor: int, artifacts: Path) -> None:
    """Decode ansible-runner's event stream while it is written, and print the events of KEPT."""
    sieve = OutputEventFilter(
        None, lambda event: _print(_with_data(event, artifacts / "job_events")), suppress_ansible_output=True
    )
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := os.read(descriptor, 65536):  # not by lines: an event need not end with a line
        _forget_environment(artifacts)
        sieve.write(decoder.decode(chunk))
    _forget_environment(artifacts)
    os.close(descriptor)
    sieve.close()


def _forget_environment(artifacts: Path) -> None:
    """Remove ansible-runner's copy of the environment at once.

    Nobody reads it, and what people have in their own variables is not ours to keep.
    """
    (artifacts / "command").unlink(missing_ok=True)


def _with_data(event: dict[str, Any], events: Path) -> dict[str, Any]:
    """Return the event with its data, which Ansible's callback puts into a file beside the stream; remove the file."""
    if "uuid" not in event:
        return event
    partial = events / f"{event['uuid']}-partial.json"
    try:
        data: dict[str, Any] = json.loads(partial.read_text(encoding="utf-8"))
        partial.unlink()
    except FileNotFoundError:
        return event
    return event | data


def _print(event: dict[str, Any]) -> None:
    kind = event.get("event", "")
    if kind == "verbose" and event.get("stdout", "").strip():
        _say({"event": "output", "text": event["stdout"][:_LONGEST]})
    if kind not in KEPT:
        return
    data = event.get("event_data", {})
    line = {"event": kind} | {
        key: data[key] for key in ("host", "task", "role", "task_path", "ignore_errors") if data.get(key)
    }
    if kind == "playbook_on_stats":
        line |= {
            key: data.get(key, {})
            for key in ("ok", "changed", "failures", "dark", "processed", "skipped", "rescued", "ignored")
        }
    elif isinstance(data.get("res"), dict):
        line["res"] = {key: _short(value) for key, value in data["res"].items() if key in _RESULT_KEYS}
        if kind == "runner_on_ok":
            items = ansible_items.items_of(str(data.get("task", "")), data["res"])
            line["res"] |= {ansible_items.KEY: items} if items else {}
        elif check := ansible_items.check_in(data["res"]):
            line["res"] |= {ansible_items.CHECK: check}
    _say(line)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _short(value: object) -> object:
    return value[-_LONGEST:] if isinstance(value, str) else value


if __name__ == "__main__":
    sys.exit(main())
