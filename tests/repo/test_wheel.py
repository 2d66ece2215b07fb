"""The wheel outside a checkout: everything that belongs to the code is in it, and a site repository needs no more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSIDE = "rackready/shipped"
WHOLE = ("playbooks", "plugins", "roles", "templates", "scripts/setup", "tools/pulumi-engine", "docs/reference")
"""Folders of the checkout whose every file is in the wheel."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built without the network."""
    out = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it was installed into. Its dependencies are those of the tests' own environment."""
    target = tmp_path_factory.mktemp("installed")
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*argv, str(wheel)], check=True, capture_output=True, timeout=120)
    return target


@pytest.fixture
def repository(tmp_path: Path, installed: Path) -> Path:
    """A site repository as a pipeline checks it out: one site file, and nothing else."""
    shutil.copytree(installed / INSIDE / "inventories/example", tmp_path / "inventories/prod")
    return tmp_path


@pytest.fixture
def run(repository: Path, installed: Path) -> Run:
    """Run a program of the installed package in the site repository."""
    names = ("HOME", "LANG", "TMPDIR")
    env = {name: os.environ[name] for name in names if name in os.environ}
    env |= {"PYTHONPATH": str(installed), "COLUMNS": "300", "PATH": f"{Path(sys.executable).parent}:{os.defpath}"}

    def start(*argv: str, more: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rackready", *argv] if not argv[0].startswith("ansible") else list(argv)
        return subprocess.run(
            command, cwd=repository, env=env | (more or {}), capture_output=True, text=True, timeout=120, check=False
        )

    return start


def files(folder: str) -> set[str]:
    """Return every file below a folder of the checkout, but caches of Python."""
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


@pytest.mark.parametrize("folder", WHOLE)
def test_every_file_is_in_the_wheel(wheel: Path, folder: str) -> None:
    wanted = files(folder)
    assert wanted
    inside = {name.removeprefix(f"{INSIDE}/") for name in zipfile.ZipFile(wheel).namelist()}
    assert wanted - inside == set()
    assert {name for name in inside if name.startswith(f"{folder}/")} == wanted


def test_ansible_finds_ondevice_and_no_other_package_in_its_module_utils(wheel: Path) -> None:
    inside = zipfile.ZipFile(wheel).namelist()
    own = {name.removeprefix("src/") for name in files("src/rackready/ondevice")} | {"rackready/__init__.py"}
    assert own <= set(inside), "the package keeps its own copy"
    shipped = f"{INSIDE}/src/"
    assert {name.removeprefix(shipped) for name in inside if name.startswith(shipped)} == own


def test_it_is_the_wheel_that_runs(run: Run, installed: Path) -> None:
    done = run("doctor", "--env", "prod", "--output", "json")
    checks = {item["check"]: item for item in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1, "secrets of the example are not there"
    assert checks["site file"]["outcome"] == "pass"
    assert (
        checks["Python packages"]["text"] == "no requirements.lock here: this is an installed package, not a checkout"
    )
    assert "make setup" not in done.stdout
    assert "Run: rackready setup" in checks["Pulumi engine"]["text"]
    code = "from rackready import paths; print(paths.shipped())"
    where = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True
    )
    assert where.stdout.strip() == str(installed / INSIDE)


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["plan", "--env", "prod"], 1, "nothing was applied yet"),
        (["status", "--env", "prod"], 0, "prod: nothing deployed yet"),
        (["schema"], 0, '"Site file"'),
        (["help", "drain"], 0, "drain"),
        (["help", "racks.nodes.bmc"], 0, "racks[].nodes[].bmc (key)"),
        (["help", "concepts"], 0, "concepts"),
        (["export", "prometheus", "--env", "prod", "--out", "out"], 0, "rackready.rules.yml"),
        (["deploy", "--env", "prod"], 2, "inventories/prod/secrets/id_ed25519"),
        (["drift", "--env", "prod"], 2, "Run `rackready deploy --env prod` first."),
        (["plan", "--env", "lab"], 2, "Name an environment with --env: prod."),
    ],
)
def test_commands_work_in_a_site_repository(run: Run, argv: list[str], code: int, text: str) -> None:
    done = run(*argv)
    assert (done.returncode, text in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_first_site_begins_with_the_named_command(run: Run, repository: Path) -> None:
    shutil.rmtree(repository / "inventories")
    refused = run("plan", "--env", "prod")
    assert refused.returncode == 2
    command = refused.stderr.partition("To begin one here: `")[2].partition("`")[0]
    subprocess.run(command.replace("NAME", "prod"), shell=True, cwd=repository, check=True)  # noqa: S602 - as it is said
    assert run("plan", "--env", "prod").returncode == 1


def test_ansible_reads_the_site_and_runs_shipped_modules(run: Run, installed: Path) -> None:
    more = {"ANSIBLE_CONFIG": str(installed / INSIDE / "ansible.cfg")}
    listed = run("ansible-inventory", "-i", "inventories/prod", "--list", more=more)
    assert "gpu-a01-01" in json.loads(listed.stdout)["nodes"]["hosts"], listed.stderr
    book = str(installed / INSIDE / "playbooks/install.yml")
    checked = run("ansible-playbook", "-i", "inventories/prod", "--syntax-check", book, more=more)
    assert checked.returncode == 0, checked.stderr
    local = ["-e", "ansible_connection=local", "-e", f"ansible_python_interpreter={sys.executable}"]
    done = run(
        "ansible", "gpu-a01-01", "-i", "inventories/prod", *local, "--check", "-m", "rackready_settings", more=more
    )
    assert "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_setup_takes_the_shipped_recipe(run: Run, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    programs = tmp_path_factory.mktemp("programs")
    for name in ("pulumi", "pulumi-language-python", "pulumi-language-python-exec"):
        (programs / name).write_text("#!/bin/sh\necho v3.250.0\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    more = {"PATH": f"{programs}:{os.defpath}"}
    done = run("setup", "--output", "json", more=more)
    assert json.loads(done.stdout)["engine"] == str(repository / ".rackready/tools/bin/pulumi"), done.stderr
    assert run("setup", more=more).stderr == "set-up: Pulumi engine 3.250.0: up to date\n"
    elsewhere = {**more, "RACKREADY_STATE": str(repository / "state")}
    (repository / "state").mkdir(mode=0o755)
    assert run("setup", more=elsewhere).stdout == f"{repository}/state/tools/bin/pulumi\n"
    assert (repository / "state").stat().st_mode & 0o777 == 0o700


def test_setup_says_what_was_tried(run: Run, repository: Path) -> None:
    more = {"PATH": os.defpath, "RACKREADY_PULUMI_RELEASES": (repository / "none").as_uri()}
    done = run("setup", "--output", "json", more=more)
    assert done.returncode == 2
    refusal = json.loads(done.stdout)
    assert refusal["error"] == (
        f"Pulumi engine in {repository}/.rackready/tools/bin - Expected: installed "
        "Actual: set-up ended with 2; its output is above. "
        "Make one of these ways work, then run `rackready setup` again. Only provisioning needs it."
    )
    assert "found on the PATH: there is no pulumi on the PATH" in done.stderr
    assert "there is no Go toolchain on the PATH" in done.stderr
