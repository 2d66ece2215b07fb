"""The shape of every role: what can be set is what is declared, and tasks say where they come from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready_sim import image

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
TASK_FILES = sorted(path for role in ROLES for path in (role / "tasks").glob("*.yml"))
TASKS_OF_A_FILE = 75
"""Lines; the best-kept roles stay below."""


def read(path: Path) -> Any:  # noqa: ANN401 - YAML
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tasks(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for task in read(path) or []:
        found.append(task)
        found += [inner for block in ("block", "rescue", "always") for inner in task.get(block, [])]
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_defaults_equal_argument_specs_key_for_key(role: Path) -> None:
    defaults = read(role / "defaults/main.yml") or {}
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert {key: option.get("default") for key, option in options.items()} == defaults


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_public_names_carry_the_role_and_every_option_is_described(role: Path) -> None:
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert [name for name in options if not name.startswith(f"{role.name}_")] == []
    assert [name for name, option in options.items() if not option.get("description") or not option.get("type")] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_every_role_has_its_scenario_and_repeats_nothing_of_the_shared_one(role: Path) -> None:
    assert set(read(role / "molecule/default/molecule.yml") or {}) <= {"scenario", "provisioner", "verifier"}


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_task_names_start_with_the_file_stem(path: Path) -> None:
    if path.stem == "main":
        assert [task["name"] for task in tasks(path) if " | " in task["name"]] == []
    else:
        assert [task["name"] for task in tasks(path) if not task["name"].startswith(f"{path.stem} | ")] == []


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_task_ignores_errors_and_every_command_says_what_it_changes(path: Path) -> None:
    commands = ("ansible.builtin.command", "ansible.builtin.shell", "ansible.builtin.raw")
    assert [task["name"] for task in tasks(path) if "ignore_errors" in task] == []
    assert [
        task["name"] for task in tasks(path) if any(name in task for name in commands) and "changed_when" not in task
    ] == []


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_refusals_say_what_was_expected_and_what_is(path: Path) -> None:
    assert [task["name"] for task in tasks(path) if "ansible.builtin.assert" in task] == [], "use rackready_check"
    checks = [task["rackready_check"] for task in tasks(path) if "rackready_check" in task]
    assert [check for check in checks if not check["expected"] or not check["actual"]] == []
    assert [check for check in checks if not check["next_step"].rstrip().endswith(".")] == [], "a sentence"
    assert [check for check in checks if "Actual: " in f"{check['expected']} {check['actual']}"] == []


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_task_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= TASKS_OF_A_FILE


FENCED = (
    "rackready_boot", "rackready_driver", "rackready_driver_change", "rackready_host_tuning", "rackready_mig",
    "rackready_mps", "rackready_nic_config", "rackready_nic_names", "rackready_packages", "rackready_read_request",
)  # fmt: skip
"""Modules that act under the node's fence: without the controller's token an older controller would not be refused."""
PLAYS = [
    (path.name, play) for path in sorted((ROOT / "playbooks").glob("*.yml")) for play in read(path) if play.get("roles")
]


@pytest.mark.parametrize(("name", "play"), PLAYS, ids=lambda value: value if isinstance(value, str) else None)
def test_every_play_gives_the_token_to_the_fenced_modules_of_its_roles(name: str, play: dict[str, Any]) -> None:
    files = [path for role in play["roles"] for path in (ROOT / "roles" / role["role"] / "tasks").glob("*.yml")]
    played = [task for path in files for task in tasks(path)]
    used = {module for task in played for module in FENCED if module in task}
    given = play.get("module_defaults", {})
    assert {module for module in used if not {"token", "ledger"} <= set(given.get(module, {}))} == set(), name


def test_nodes_of_slurm_get_the_pmix_that_srun_asks_for_before_slurmd_starts() -> None:
    """Debian's plugin mpi/pmix loads libpmix.so when slurmd starts.

    Only libpmix-dev has that name; libpmix2 has libpmix.so.2.
    """
    packages = read(ROOT / "roles/slurm_node/defaults/main.yml")["slurm_node_packages"]
    assert packages == {"slurmd": "", "slurm-client": "", "munge": "", "libpmix-dev": ""}
    assert set(packages) <= set(image.PACKAGES), (
        "a node of the simulated rack has them from its image: its mirror has none of Debian's packages"
    )
    [install] = tasks(ROOT / "roles/slurm_node/tasks/install.yml")
    fresh = read(ROOT / "roles/slurm_node/vars/main.yml")["__slurm_node_fresh"]
    assert f"{install['register']} is changed" in fresh  # slurmd starts anew then: test_slurm_node_role.py


ON_EVERY_PATH = {"cat", "date", "dcgm-exporter", "df", "dpkg-query", "enroot", "ls", "rpm", "srun", "systemctl"}
"""Programs in /usr/bin. Debian leaves /usr/sbin out of the PATH of all but root (/etc/login.defs, ENV_PATH)."""


def commands_of(given: list[dict[str, Any]], *, root: bool = False) -> list[tuple[str, bool]]:
    """Return each command line, or the program of its list, and whether it runs as root."""
    found: list[tuple[str, bool]] = []
    for task in given:
        becomes = task.get("become", root) is True and "become_user" not in task
        for block in ("block", "rescue", "always"):
            found += commands_of(task.get(block, []), root=becomes)
        command = task.get("ansible.builtin.command", task.get("ansible.builtin.shell"))
        if command is not None:
            words = command if isinstance(command, str) else command.get("cmd") or command["argv"]
            found.append((words if isinstance(words, str) else str(words[0]), becomes))
    return found


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_outside_the_path_of_users_runs_as_root(path: Path) -> None:
    """Else a site whose login is not root finds no such program."""
    plain = [words for words, root in commands_of(read(path) or []) if not root]
    programs = [program for words in plain for program in re.findall(r"\['([^']+)'", words) or words.split()[:1]]
    assert [program for program in programs if program not in ON_EVERY_PATH] == []
