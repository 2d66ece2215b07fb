"""The worker with the real ansible-runner and a playbook on this machine: events come, live, and stand alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rackready.drivers.ansible_items import CHECK

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


CHECKS = """
- name: Try
  hosts: all
  gather_facts: false
  connection: local
  tasks:
    - name: try | Check
      ignore_errors: true
      rackready_check:
        that: item < 3
        expected: "less than 3"
        actual: "{{ item }}"
        next_step: "Take one away."
      loop: [1, 4]
    - name: try | Refuse as a foreign role does
      ansible.builtin.assert:
        that: false
        fail_msg: "Expected: it Actual: another."
"""


def test_a_check_comes_with_its_values_and_a_foreign_one_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(CHECKS)
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\naction_plugins = {ROOT}/plugins/action\n")
    argv = ["-i", "here,", "-e", f"ansible_python_interpreter={sys.executable}", str(tmp_path / "play.yml")]
    request = {"argv": argv, "cwd": str(tmp_path), "artifacts": str(tmp_path / "logs/run1")}
    env = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "rackready.drivers.ansible_worker"],
        input=json.dumps(request),
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=120,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ours = next(line for line in lines if line["event"] == "runner_item_on_failed")
    assert ours["res"][CHECK] == {"expected": "less than 3", "actual": "4", "next_step": "Take one away."}
    assert ours["res"]["msg"] == "Expected: less than 3 Actual: 4. Take one away."
    foreign = [line for line in lines if line["event"] == "runner_on_failed"][-1]
    assert (foreign["res"]["msg"], CHECK in foreign["res"]) == ("Expected: it Actual: another.", False)
