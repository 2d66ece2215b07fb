"""Set-up of .venv: both packages of the checkout are installed in place, and what changes in either is noticed."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "apt", "python_venv")


@pytest.fixture
def venv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[ModuleType, list[list[str]]]]:
    """Return the module that makes .venv, in a folder like a checkout, and the list of commands that it would run."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    module: Any = importlib.import_module("python_venv")
    ran: list[list[str]] = []
    for name in (
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-docs.lock",
        "pyproject.toml",
        "src/rackready_sim/pyproject.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for name, value in {
        "ROOT": tmp_path,
        "VENV": tmp_path / ".venv",
        "STAMP": tmp_path / ".venv/.rackready.json",
        "PROJECTS": tuple(tmp_path / folder.relative_to(ROOT) for folder in module.PROJECTS),
    }.items():
        monkeypatch.setattr(module, name, value)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for program in ("python", "rackready"):
        (tmp_path / ".venv/bin" / program).touch()
    monkeypatch.setattr(module, "run", lambda argv, **_words: ran.append(argv))
    module.create = module._create  # as it is, for the test of a link
    monkeypatch.setattr(module, "_create", lambda: None)
    yield module, ran
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_both_packages_are_installed_in_place_without_a_network(
    venv: tuple[Any, list[list[str]]], tmp_path: Path
) -> None:
    module, ran = venv
    module.ensure("runtime")
    locked, in_place = ran
    assert locked[-3:] == ["--require-hashes", "-r", str(tmp_path / "requirements.lock")]
    assert in_place[-4:] == ["-e", str(tmp_path), "-e", str(tmp_path / "src/rackready_sim")]
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(in_place)


@pytest.mark.parametrize("changed", ["pyproject.toml", "src/rackready_sim/pyproject.toml", "requirements.lock"])
def test_a_second_run_does_nothing_until_something_changes(
    venv: tuple[Any, list[list[str]]], tmp_path: Path, changed: str
) -> None:
    module, ran = venv
    module.ensure("runtime")
    module.ensure("runtime")
    assert len(ran) == 2, "the second run found all of it done"
    with (tmp_path / changed).open("a", encoding="utf-8") as out:
        out.write("# another line\n")
    module.ensure("runtime")
    assert len(ran) == 4
    assert json.loads((tmp_path / ".venv/.rackready.json").read_text(encoding="utf-8"))["kind"] == "runtime"


def test_an_environment_behind_a_link_is_not_emptied(venv: tuple[Any, list[list[str]]], tmp_path: Path) -> None:
    module, ran = venv
    shared = tmp_path / "shared"
    (tmp_path / ".venv").rename(shared)
    (tmp_path / ".venv").symlink_to(shared)
    module.create()
    assert not (tmp_path / ".venv").is_symlink()
    assert (shared / "bin/python").exists()
    assert ran[-1][-2:] == ["--clear", str(tmp_path / ".venv")]
