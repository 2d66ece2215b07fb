"""Secrets, keys and state stay out of git, in a site repository of the user's own too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackready.cli import doctor_git
from rackready.cli.doctor_scene import Scene
from rackready.design.site import parse_site
from rackready.drivers.secret_store import store_of
from rackready.handover.keys import Keys
from rackready.model.base import SecretRef
from rackready.model.outcome import Outcome
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir
from tests.unit.design.written import example

SECRET = "inventories/lab/secrets/bmc"
STEP = "Name it in .gitignore, or move it out of the work tree."


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(tmp_path, "init", "-q")
    return tmp_path


def site(root: Path) -> Site:
    document = example("lab-4-nodes")
    document["templates"]["nodes"]["h100"]["bmc"]["password"] = {"file": SECRET}
    return parse_site(document, source="site.yml", base=root)


def looked(root: Path) -> tuple[Outcome, str]:
    return doctor_git.out_of_git(Scene(EnvPaths(root, "lab"), site(root)))


def written(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x", encoding="utf-8")
    return path


def test_state_and_passwords_that_rackready_writes_are_left_out_of_git(repository: Path) -> None:
    Keys(EnvPaths(repository, "lab")).signer()
    written(repository, "inventories/lab/site.yml")
    place = store_of(SecretRef(file=repository / SECRET))
    assert place is not None
    place.prepare(lambda: "new")
    assert git(repository, "status", "--porcelain", "--untracked-files=all") == "?? inventories/lab/site.yml\n"
    place.promote()
    assert looked(repository) == (
        Outcome.PASS,
        "3 files of secrets, private keys and state in a work tree: git tracks none, ignores all",
    )


def test_a_folder_keeps_a_gitignore_of_its_own_and_others_get_none(tmp_path: Path) -> None:
    (private_dir(tmp_path / ".rackready") / ".gitignore").write_text("mine", encoding="utf-8")
    private_dir(tmp_path / ".rackready" / "lab")
    assert (tmp_path / ".rackready/.gitignore").read_text(encoding="utf-8") == "mine"
    folder = tmp_path / "beside"
    folder.mkdir()
    place = store_of(SecretRef(file=folder / "bmc"))
    assert place is not None
    place.prepare(lambda: "new")
    assert [path.name for path in folder.iterdir()] == ["bmc.pending"], "other files of it may belong into git"
    assert not (tmp_path / ".gitignore").exists()


def test_a_secret_that_git_would_take_fails(repository: Path) -> None:
    secret = written(repository, SECRET)
    assert looked(repository) == (
        Outcome.FAIL,
        f"{secret} - Expected: ignored by git Actual: `git add` would take it. {STEP}",
    )
    git(repository, "add", SECRET)
    written(repository, "inventories/lab/secrets/.gitignore").write_text("*\n", encoding="utf-8")
    assert looked(repository) == (
        Outcome.FAIL,
        (
            f"{secret} - Expected: no file of git Actual: tracked. Run `git rm --cached {secret}`, and change what is "
            "in it: its history keeps it."
        ),
    )


def test_a_folder_outside_of_git_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, SECRET)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert looked(tmp_path)[0] is Outcome.SKIP
    monkeypatch.setenv("PATH", "")
    assert looked(tmp_path) == (Outcome.SKIP, "git is not installed")
