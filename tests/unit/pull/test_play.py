"""A whole pull on this machine: the real stage 2 and the real Ansible of a release, unpacked from wheels."""

from __future__ import annotations

import io
import json
import os
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.ansible_events import Events
from rackready.drivers.release_report import ReportError
from rackready.model.outcome import Outcome
from tests.unit.pull.world import KEY, NODE, ROOT, World, seal, tar

CLOSURE = (
    *("ansible-core", "jinja2", "markupsafe", "pyyaml", "resolvelib", "packaging", "cryptography", "cffi", "pycparser"),
    *("ansible-runner", "pexpect", "ptyprocess", "python-daemon", "lockfile"),
)
PLAY = """
- name: Install
  hosts: nodes
  gather_facts: false
  tasks:
    - name: Write what the variables say
      rackready_files:
        folders: ["{{ place }}"]
        files:
          - path: "{{ place }}/said"
            content: "{{ of_node }} {{ of_group }} {{ of_file }} {{ of_extra }} {{ of_playbook }} {{ plain }}\\n"
      become: true
    - name: Read the environment that modules have
      ansible.builtin.command: env
      changed_when: false
      check_mode: false
      register: environment_here
    - name: Check it
      rackready_check:
        that: "'PYTHONPATH' not in environment_here.stdout"
        expected: "no PYTHONPATH"
        actual: "one"
        next_step: "None."
    - name: Fail where it should
      rackready_check: {that: "not broken", expected: "it is whole", actual: "broken", next_step: "Mend it."}
"""


@pytest.fixture(scope="module")
def wheels() -> dict[str, bytes]:
    """The packages of this environment, as wheels."""
    out = {}
    for name in CLOSURE:
        found, data = distribution(name), io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for file in found.files or []:
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    archive.write(str(file.locate()), str(file))
        out[f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"] = data.getvalue()
    return out


def code() -> bytes:
    files = {"ansible.cfg": (ROOT / "ansible.cfg").read_bytes(), "playbooks/install.yml": PLAY.encode()}
    files["playbooks/group_vars/nodes.yml"] = b"of_playbook: playbook\n"
    for top in ("plugins", "src/rackready"):
        for path in sorted((ROOT / top).rglob("*.py")):
            files[str(path.relative_to(ROOT))] = path.read_bytes()
    files["roles/none"] = b""
    return tar(files)


def ordered(
    world: World, wheels: dict[str, bytes], sequence: int, key: bytes = KEY, mode: str = "apply", **extra: Any
) -> None:
    variables = {
        "node": NODE,
        "hostvars": {"of_node": "node", "place": str(world.tmp / "place")},
        "groups": {"nodes": {"of_group": "group", "of_file": "x", "plain": "{{ 1 + 1 }}"}, "rack_a": {"of_node": "no"}},
        "group_vars": [["nodes.yml", "of_file: '{{ of_group }}-file'\n"], ["all/x.yml", "of_file: of all\n"]],
        "host_vars": [["node02.yml", "of_node: other\n"]],
    }
    blob = world.put(seal(variables, key))
    sealed = world.put(seal({"of_extra": "extra", "broken": False, **extra}, key))
    world.order(sequence, mode, **world.make(code(), wheels, variables=blob), extra=sealed)


def judged(world: World, name: str, *, check: bool = False) -> Events:
    events = Events("install", [NODE], "the log", lambda *_: None, check)
    for line in world.report(name, KEY).lines:
        events.line(line)
    return events


@pytest.mark.skipif(os.geteuid() != 0, reason="the agent is root on a node: module rackready_files makes files root's")
def test_a_release_is_applied_and_reported_as_a_push_would(world: World, wheels: dict[str, bytes]) -> None:
    ordered(world, wheels, 5)
    code_, lines = world.agent()
    assert code_ == 0, (lines, world.report("5-apply", KEY))
    said = world.tmp / "place/said"
    assert said.read_text() == "node group group-file extra playbook {{ 1 + 1 }}\n", (
        "values of the site are no templates"
    )
    events = judged(world, "5-apply")
    result = events.result(NODE)
    assert (result.outcome, result.changed) == (Outcome.PASS, True)
    assert result.data["changes"] == ["Write what the variables say"]
    assert events.strangers() == []
    steps = [json.loads(line) for line in world.report("5-apply", KEY).steps]
    assert steps[0]["task"] == "Write what the variables say"
    assert {step["host"] for step in steps} == {NODE}
    assert list(world.run_folder.iterdir()) == [], "opened variables do not stay"

    said.write_text("somebody's\n")
    assert world.agent()[0] == 0
    assert said.read_text() == "somebody's\n", "a comparison changes nothing"
    events = judged(world, "5-check", check=True)
    assert events.result(NODE).data["differs"] == [f"{said} is not as wanted"]

    ordered(world, wheels, 6, broken=True)
    assert world.agent()[0] == 3
    assert said.read_text().startswith("node group")
    assert (world.report("6-apply").failure, world.report("6-apply").exit_code) == (None, 2)
    result = judged(world, "6-apply").result(NODE)
    assert result.outcome is Outcome.FAIL
    assert result.message == (
        'node01: install: task "Fail where it should" failed - Expected: it is whole Actual: broken. Mend it.'
    )

    ordered(world, wheels, 7, bytes(32))
    assert world.said() == (
        "node01: release - Expected: variables sealed for this node's key Actual: another key or another node's. Run "
        "the phase again on the controller: it installs the node's key again."
    )
    assert world.report("7-apply").failure.code == "pulled"  # type: ignore[union-attr]
    with pytest.raises(ReportError, match="Expected: sealed with the node's key Actual: sealed with another key"):
        world.report("6-apply", bytes(32))
    (world.etc / "key").write_text("junk")
    ordered(world, wheels, 8)
    assert "Expected: the node's key " in world.said()


def test_what_a_play_said_is_not_readable_on_its_way(world: World, wheels: dict[str, bytes]) -> None:
    ordered(world, wheels, 5, place=str(world.tmp / "place"))
    world.agent()
    report = world.report("5-apply")
    assert (report.lines, report.steps) == ((), ())
    assert report.sealed
    assert Path(world.reports / NODE / "5-apply.json").stat().st_mode & 0o777 == 0o600
