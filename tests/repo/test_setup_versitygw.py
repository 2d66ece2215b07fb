"""Set-up of versitygw: built once, again when its recipe changes, and every module pinned."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "go_modules", "versitygw")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/setup, with the program below an empty folder."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    modules = {name: importlib.import_module(name) for name in NAMES}
    monkeypatch.setattr(modules["versitygw"], "BIN", tmp_path / "bin")
    monkeypatch.setattr(modules["versitygw"], "STAMP", tmp_path / "bin/built.json")
    monkeypatch.setattr(modules["versitygw"], "make_private", lambda: None)
    monkeypatch.setattr(modules["go_modules"], "check_go", lambda: None)
    yield modules
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_it_is_built_once_and_again_with_another_recipe(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    versitygw, built = scripts["versitygw"], []

    def build(folder: Path, package: str, program: Path, _flags: str) -> None:
        built.append((folder.name, package, program.name))
        program.touch()

    monkeypatch.setattr(scripts["go_modules"], "build", build)
    versitygw.ensure()
    versitygw.ensure()
    assert built == [("versitygw", "github.com/versity/versitygw/cmd/versitygw", "versitygw")]
    monkeypatch.setattr(versitygw, "RECIPE", versitygw.RECIPE[1:])
    versitygw.ensure()
    assert len(built) == 2


def test_every_module_is_pinned_by_checksum(scripts: dict[str, ModuleType]) -> None:
    module, sums = scripts["versitygw"].RECIPE
    pinned = sums.read_text(encoding="utf-8")
    wanted = re.findall(
        r"^\s*(?:require )?([a-z][\w./~-]+) (v[\w.+-]+)(?: // indirect)?$", module.read_text(), re.MULTILINE
    )
    assert ("github.com/versity/versitygw", "v1.8.0") in wanted
    assert [f"{name} {version}" for name, version in wanted if f"{name} {version}/go.mod h1:" not in pinned] == []
