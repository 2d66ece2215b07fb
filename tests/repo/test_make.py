"""The Makefile: it has the targets that the README names, explains each, and helps when the site file is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
INTERNAL = {"python", "prepare", "site-exists", "setup-test"}
"""Targets that others need, and nobody calls."""


def targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value for key, value in os.environ.items() if key not in {"ARGS", "ENV", "MAKEFLAGS", "MAKELEVEL"}
    }
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_first_two_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [
        line
        for block in re.findall(r"```(?:sh|bash|console)?\n(.*?)```", readme, re.DOTALL)
        for line in block.splitlines()
        if line.strip()
    ]
    assert [line.split("#")[0].strip() for line in commands[:2]] == ["make deploy ENV=sim", "make test"]
    assert {"deploy", "test"} <= targets()


def test_every_make_target_that_documents_name_exists() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {
        (name, path.name)
        for path in documents
        for name in re.findall(r"`(?:sudo )?make ([a-z][a-z-]*)", path.read_text(encoding="utf-8"))
    }
    assert named
    assert [pair for pair in sorted(named) if pair[0] not in targets()] == []


def test_help_explains_every_target() -> None:
    shown = set(re.findall(r"^  ([a-z-]+) ", make("help").stdout, re.MULTILINE))
    assert targets() - INTERNAL == shown


def test_every_target_is_declared_phony() -> None:
    assert set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)) == targets()


def test_help_is_what_make_does_by_default() -> None:
    assert make().stdout == make("help").stdout


def test_environment_without_a_site_file_says_how_to_begin() -> None:
    done = make("deploy", "ENV=nowhere")
    assert done.returncode == 2
    assert "inventories/nowhere/site.yml - Expected: the site file" in done.stderr
    assert "cp -r inventories/example inventories/nowhere" in done.stderr
    assert "set-up:" not in done.stdout + done.stderr, "nothing may be done before the refusal"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with the Makefile, an environment ``lab`` and a .venv whose rackready says how it was called."""
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    (tmp_path / "inventories/lab").mkdir(parents=True)
    (tmp_path / "inventories/lab/site.yml").touch()
    program = tmp_path / ".venv/bin/rackready"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "rackready $*"\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/setup").write_text("", encoding="utf-8")
    return tmp_path


def test_an_environment_says_what_must_be_up_before_its_deploy(elsewhere: Path) -> None:
    assert make("deploy", "ENV=lab", folder=elsewhere).stdout.splitlines() == ["rackready deploy --env lab"]
    (elsewhere / "inventories/lab/prepare.mk").write_text("prepare:\n\t@echo prepares $(ENV)\n", encoding="utf-8")
    assert make("deploy", "ENV=lab", folder=elsewhere).stdout.splitlines() == [
        "prepares lab",
        "rackready deploy --env lab",
    ]


def test_a_preparation_that_fails_holds_the_deploy_back(elsewhere: Path) -> None:
    (elsewhere / "inventories/lab/prepare.mk").write_text("prepare:\n\t@false\n", encoding="utf-8")
    done = make("deploy", "ENV=lab", folder=elsewhere)
    assert (done.returncode, done.stdout) == (2, "")


def test_the_simulated_rack_comes_up_before_its_deploy_and_no_other_environment_knows_it(elsewhere: Path) -> None:
    shutil.copytree(ROOT / "inventories/sim", elsewhere / "inventories/sim")
    assert make("deploy", "ENV=sim", folder=elsewhere).stdout.splitlines() == [
        "rackready sim up --env sim",
        "rackready deploy --env sim",
    ]
    assert "sim" not in make("deploy", "ENV=lab", folder=elsewhere).stdout


def test_a_cluster_is_built_before_its_rack_comes_up(elsewhere: Path) -> None:
    shutil.copytree(ROOT / "inventories/sim-k8s", elsewhere / "inventories/sim-k8s")
    (elsewhere / "scripts/setup").write_text("import sys\nprint('setup', *sys.argv[1:])\n", encoding="utf-8")
    assert make("deploy", "ENV=sim-k8s", folder=elsewhere).stdout.splitlines() == [
        "setup",
        "setup --sim --kubernetes",
        "rackready sim up --env sim-k8s",
        "rackready deploy --env sim-k8s",
    ]


def test_sim_down_takes_down_the_rack_of_this_clone(elsewhere: Path) -> None:
    assert make("sim-down", folder=elsewhere).stdout.splitlines() == ["rackready sim down"]
    shutil.rmtree(elsewhere / ".venv")
    assert make("sim-down", folder=elsewhere).stdout.splitlines() == ["sim-down: nothing was set up here"]


def test_continuous_integration_calls_exactly_make_test() -> None:
    lines = [
        line
        for line in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert lines == ['cd "$(dirname "$0")/.." || exit 2', "exec make test </dev/null"]


def test_nothing_phones_home() -> None:
    for setting in (
        "PULUMI_SKIP_UPDATE_CHECK := true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION := true",
        "DO_NOT_TRACK := 1",
    ):
        assert f"export {setting}\n" in MAKEFILE


@pytest.mark.parametrize("name", ["Bad-Name", "", "base"])
def test_new_role_refuses_bad_and_taken_names(name: str) -> None:
    done = subprocess.run([ROOT / "scripts/new-role", name], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Expected:" in done.stderr


def test_new_role_has_equal_defaults_and_specs(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/new-role", tmp_path / "scripts/new-role")
    subprocess.run([tmp_path / "scripts/new-role", "spare"], check=True, capture_output=True)
    role = tmp_path / "roles/spare"
    assert "spare_state: present" in (role / "defaults/main.yml").read_text(encoding="utf-8")
    assert "spare_state:" in (role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    assert all("{name}" not in path.read_text(encoding="utf-8") for path in role.rglob("*.yml"))


def test_targets_of_the_readme_call_their_scripts(elsewhere: Path) -> None:
    (elsewhere / "scripts/setup").write_text("print('set-up')\n", encoding="utf-8")
    for name in ("checks", "pytest-all"):
        script = elsewhere / "scripts" / name
        script.write_text(f'#!/bin/sh\necho "{name} $*"\n', encoding="utf-8")
        script.chmod(0o755)
    assert make("setup", folder=elsewhere).stdout.splitlines() == ["set-up"]
    said = make("test", "ARGS=-k x", folder=elsewhere).stdout.splitlines()
    assert [line.strip() for line in said if line != "set-up"] == ["checks", "pytest-all test -k x"]
