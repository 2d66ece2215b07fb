"""Every task of a proven play can be proven: a task whose effect nothing reads again is refused here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.proof.kinds import KINDS, ON_CONTROLLER
from rackready.drivers.proof.release import COPIED
from rackready.drivers.proof.rules import FABRIC_STATE, RULES
from tests.plugins.test_roles import ROOT

PROVEN = ("install", "optimize")
"""Playbooks that rackready proves (campaign/phase_table.py)."""

KEYWORDS = frozenset(
    [
        *("name", "when", "register", "become", "changed_when", "failed_when", "check_mode", "vars"),
        *("loop", "loop_control", "with_first_found", "until", "retries", "delay", "block", "rescue", "always"),
    ]
)
LOOKUPS = (
    r"lookup\('ansible.builtin.template', ",  # of the role, which is in the release
    r"lookup\('ansible.builtin.file', role_path ~ '/../../src/rackready/ondevice/",  # rackready's own code: as above
    r"lookup\('ansible.builtin.file', 'pynvml' \| rackready_module_file",  # release.COPIED
    r"lookup\('ansible.builtin.(file|env)', rackready_sudo_password_(file|env)",  # how Ansible becomes root
)
NOT_OF_THE_NODE = ("hostvars", "ansible_play_hosts", "ansible_play_batch", "groups[", "random", "ansible_date_time")
"""Words of variables that other nodes or the time decide: with one of them, equal answers do not mean an equal play."""


@dataclass(frozen=True)
class Task:
    file: str
    role: str
    name: str
    action: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def plays() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in PROVEN:
        for play in yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text()):
            yield f"playbooks/{name}.yml", play


def roles() -> list[str]:
    return list(dict.fromkeys(str(role["role"]) for _, play in plays() for role in play["roles"]))


def walk(file: str, role: str, tasks: list[dict[str, Any]]) -> Iterator[Task]:
    for data in tasks:
        for part in ("block", "rescue", "always"):
            yield from walk(file, role, data.get(part, []))
        if "block" in data:
            continue
        (action,) = data.keys() - KEYWORDS or {"nothing"}
        yield Task(file, role, str(data["name"]), action, data)


def tasks() -> list[Task]:
    """Every task of every file of the roles, imported or not: a file that nobody imports today may be tomorrow."""
    out: list[Task] = []
    for file, play in plays():
        for part in ("pre_tasks", "tasks"):
            out += walk(file, "", play.get(part, []))
    for role in roles():
        for path in sorted((ROOT / "roles" / role / "tasks").glob("*.yml")):
            out += walk(str(path.relative_to(ROOT)), role, yaml.safe_load(path.read_text()))
    return out


def problem(task: Task) -> str:
    """Return why a task cannot be proven, "" when it can."""
    kind = KINDS.get(task.action)
    if kind is None and task.action not in ON_CONTROLLER:
        return f"nothing reads again what {task.action} does"
    changed, reads = task.data.get("changed_when"), task.data.get("check_mode") is False
    if kind is not None and kind.read:
        if changed is True:  # it runs only where something is to change; that run is no record
            return "" if "when" in task.data else "it always changes something"
        return "" if changed is False and reads else "neither a read (changed_when, check_mode: false) nor a change"
    if kind is not None and {"changed_when", "failed_when", "check_mode"} & task.data.keys():
        return "its own answer is overruled"
    return ""


ALL = tasks()


def test_there_are_tasks() -> None:
    assert len(ALL) > 100
    assert {task.role for task in ALL} == {*roles(), ""}


@pytest.mark.parametrize("task", ALL, ids=str)
def test_a_task_is_proven(task: Task) -> None:
    assert problem(task) == "", task


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"ansible.builtin.copy": {}}, "nothing reads again what ansible.builtin.copy does"),
        ({"rackready_new": {}}, "nothing reads again what rackready_new does"),
        ({"ansible.builtin.command": "x"}, "neither a read (changed_when, check_mode: false) nor a change"),
        (
            {"ansible.builtin.command": "x", "changed_when": False},
            "neither a read (changed_when, check_mode: false) nor a change",
        ),
        ({"ansible.builtin.shell": "x", "changed_when": True}, "it always changes something"),
        ({"rackready_files": {}, "changed_when": False}, "its own answer is overruled"),
        ({"rackready_files": {}, "check_mode": False}, "its own answer is overruled"),
        ({"ansible.builtin.shell": "x", "changed_when": True, "when": "a"}, ""),
        ({"ansible.builtin.command": "x", "changed_when": False, "check_mode": False}, ""),
        ({"rackready_files": {}}, ""),
    ],
)
def test_a_task_that_cannot_be_proven_is_refused(data: dict[str, Any], why: str) -> None:
    (task,) = walk("roles/x/tasks/main.yml", "x", [{"name": "n", **data}])
    assert problem(task) == why


@pytest.mark.parametrize("task", ALL, ids=str)
def test_a_task_has_only_keywords_that_the_proof_knows(task: Task) -> None:
    """Not delegate_to, run_once, async, no_log, environment or ignore_errors: the record of such a play is refused."""
    assert task.data.keys() <= KEYWORDS | {task.action}, task


def sources() -> list[Path]:
    out = [ROOT / file for file, _ in plays()] + sorted((ROOT / "playbooks/group_vars").glob("*.yml"))
    for role in roles():
        for part in ("tasks", "vars", "defaults", "templates", "meta"):
            out += sorted((ROOT / "roles" / role / part).glob("*"))
    return out


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_decides_a_play_is_in_the_release_or_answered_by_the_node(path: Path) -> None:
    text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
    allowed = re.compile("|".join(LOOKUPS))
    found = [text[match.start() : match.start() + 90] for match in re.finditer(r"(lookup|query|q)\(", text)]
    assert [words for words in found if not allowed.match(words)] == []
    assert [word for word in NOT_OF_THE_NODE if word in text] == []


def test_the_time_of_the_controller_is_used_only_by_the_rule_of_the_clock() -> None:
    used = [path.relative_to(ROOT).as_posix() for path in sources() if re.search(r"\bnow\(", path.read_text())]
    assert used == ["roles/base/vars/main.yml"]
    assert (ROOT / used[0]).read_text().count("now(") == 1


def test_filters_read_no_files_but_those_that_the_release_has() -> None:
    """That is pynvml, and files that variables name (release._named): the key of a mirror."""
    assert COPIED == ("pynvml",)
    reads = re.compile(r".*(?:\bopen\(|read_text|read_bytes|os\.environ|subprocess|time\.time).*")
    found = [
        line.strip() for path in (ROOT / "plugins/filter").glob("*.py") for line in reads.findall(path.read_text())
    ]
    assert found == [
        'return [{"path": item["keyring"], "content": Path(item["key"]).read_text(encoding="utf-8")} for item in given]'
    ]


DROPPED = {
    "ansible.builtin.stat": r"\.(atime|mtime|ctime|inode|dev|nlink|pw_name|gr_name|readable|executable|mimetype)\b",
    "ansible.builtin.find": r"(attribute=|\.)'?(atime|mtime|ctime|inode|dev|nlink|examined)\b",
    "ansible.builtin.command": r"\.(start|end|delta)\b",
    "ansible.builtin.uri": r"\.(elapsed|cookies|date|etag|redirected)\b",
}


@pytest.mark.parametrize("action", DROPPED)
def test_roles_use_nothing_of_an_answer_that_does_not_count(action: str) -> None:
    for path in sources():
        for line in path.read_text().splitlines():
            assert not re.search(DROPPED[action], line) or "udev" in line, (path, line)


def test_the_state_of_a_unit_counts_only_as_changed() -> None:
    registers = [task.data["register"] for task in ALL if "systemd" in task.action and "register" in task.data]
    assert registers
    for path in sources():
        for name in registers:
            assert not re.search(rf"{name}\.(?!yml)", path.read_text()), (path, name)


@pytest.mark.parametrize("name", [name for name in KINDS if name.startswith("rackready_")])
def test_a_module_has_a_check_mode_that_is_its_own(name: str) -> None:
    found = list(ast.walk(ast.parse((ROOT / f"plugins/modules/{name}.py").read_text())))
    classes = [node for node in found if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes if [ast.unparse(base) for base in node.bases] == ["AnsibleModule"]}
    makers = own or {"AnsibleModule"}
    (call,) = [node for node in found if isinstance(node, ast.Call) and ast.unparse(node.func) in makers]
    assert [ast.unparse(word.value) for word in call.keywords if word.arg == "supports_check_mode"] == ["True"]


@pytest.mark.parametrize("where", RULES)
def test_a_rule_is_about_a_task_and_has_the_bounds_that_its_check_gives(where: str) -> None:
    rule = RULES[where]
    assert [task for task in ALL if f"{task.role} : {task.name}" == where and "register" in task.data]
    if rule.bounds_of:
        (check,) = [task for task in ALL if f"{task.role} : {task.name}" == rule.bounds_of]
        assert tuple(check.data["rackready_check"]["bounds"]) == rule.bounds
        judged = f"{check.data['rackready_check']['that']} {check.data['rackready_check']['expected']}"
        for template in check.data["rackready_check"]["bounds"].values():
            assert template.strip("{} ") in judged, template


def test_the_rule_of_the_fabric_reads_what_the_role_reads() -> None:
    variables = yaml.safe_load((ROOT / "roles/nvidia_fabricmanager/vars/main.yml").read_text())
    assert variables["__nvidia_fabricmanager_state"] == FABRIC_STATE
    (used,) = [key for key, text in variables.items() if "__nvidia_fabricmanager_smi" in str(text)]
    assert used == "__nvidia_fabricmanager_states"
