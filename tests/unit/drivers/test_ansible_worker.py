"""The worker with the real ansible-runner and a playbook on this machine: events come, live, and stand alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = """
- name: Try
  hosts: all
  gather_facts: false
  connection: local
  tasks:
    - name: try | Change
      ansible.builtin.command: "true"
      changed_when: true
    - name: try | Wait
      ansible.builtin.command: sleep 2
      changed_when: false
    - name: try | Hide
      ansible.builtin.command: sh -c "echo hunter2; exit 3"
      no_log: true
      changed_when: false
"""


def test_events_come_live_and_secrets_stay_secret(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    argv = ["-i", "here,", "-e", f"ansible_python_interpreter={sys.executable}", str(tmp_path / "play.yml")]
    request = {"argv": argv, "cwd": str(tmp_path), "artifacts": str(tmp_path / "logs/run1")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = {
        "PATH": path,
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "rackready.drivers.ansible_worker"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(request))
    child.stdin.close()
    first = (time.monotonic(), json.loads(child.stdout.readline()))
    assert not list((tmp_path / "logs").rglob("command")), (
        "the environment stands in no file while the play runs: a kill would leave it there"
    )
    events = [first, *((time.monotonic(), json.loads(line)) for line in child.stdout)]
    assert child.wait() == 2
    kinds = [(event["event"], event.get("task", "")) for _, event in events if event["event"] != "output"]
    assert kinds == [
        ("runner_on_start", "try | Change"),
        ("runner_on_ok", "try | Change"),
        ("runner_on_start", "try | Wait"),
        ("runner_on_ok", "try | Wait"),
        ("runner_on_start", "try | Hide"),
        ("runner_on_failed", "try | Hide"),
        ("playbook_on_stats", ""),
    ]
    at = {(event["event"], event.get("task")): when for when, event in events}
    assert at["runner_on_ok", "try | Wait"] - at["runner_on_ok", "try | Change"] > 1.5
    assert events[-1][1]["failures"] == {"here": 1}
    assert "hunter2" not in json.dumps([event for _, event in events])
    kept = "".join(path.read_text() for path in (tmp_path / "logs").rglob("*") if path.is_file())
    assert "hunter2" not in kept
