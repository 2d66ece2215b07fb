"""Set-up of programs in Go: built once, again when a program or its recipe differs, and every module pinned."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "actionlint": ("github.com/rhysd/actionlint", "v1.7.12"),
    "cosign": ("github.com/sigstore/cosign/v3", "v3.1.2"),
    "versitygw": ("github.com/versity/versitygw", "v1.8.0"),
}
"""The Go module of each program, and its version."""


@pytest.fixture(params=MODULES)
def name(request: pytest.FixtureRequest) -> str:
    """Each program's name, which is that of its module in scripts/setup."""
    return str(request.param)


@pytest.fixture
def scripts(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/setup, with the program below an empty folder."""
    names = ("console", "go_modules", name)
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {module: sys.modules.pop(module) for module in names if module in sys.modules}
    modules = {module: importlib.import_module(module) for module in names}
    monkeypatch.setattr(modules[name], "BIN", tmp_path / "bin")
    monkeypatch.setattr(modules[name], "STAMP", tmp_path / "bin/built.json")
    monkeypatch.setattr(modules[name], "make_private", lambda: None)
    monkeypatch.setattr(modules["go_modules"], "check_go", lambda: None)
    monkeypatch.setattr(modules["go_modules"], "module_version", lambda *_: MODULES[name][1])
    yield modules
    for module in names:
        sys.modules.pop(module, None)
    sys.modules.update(before)


def test_it_is_built_once_and_again_when_something_differs(
    name: str, scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, built = scripts[name], []
    module, version = MODULES[name]

    def build(folder: Path, package: str, program: Path, flags: str) -> None:
        built.append((folder.name, package, program.name))
        if name == "cosign":
            assert flags.endswith(f"gitVersion={version}")
        program.touch()

    monkeypatch.setattr(scripts["go_modules"], "build", build)
    script.ensure()
    assert built == [(name, f"{module}/cmd/{name}", name)]
    script.ensure()
    assert len(built) == 1
    (script.BIN / name).unlink()
    script.ensure()
    assert len(built) == 2, "a program that is gone is built again"
    monkeypatch.setattr(script, "RECIPE", script.RECIPE[1:])
    script.ensure()
    assert len(built) == 3


def test_every_module_is_pinned_by_checksum(name: str, scripts: dict[str, ModuleType]) -> None:
    module, sums = scripts[name].RECIPE
    pinned = sums.read_text(encoding="utf-8")
    wanted = re.findall(
        r"^\s*(?:require )?([a-z][\w./~-]+) (v[\w.+-]+)(?: // indirect)?$", module.read_text(), re.MULTILINE
    )
    assert MODULES[name] in wanted
    assert [f"{what} {version}" for what, version in wanted if f"{what} {version}/go.mod h1:" not in pinned] == []
