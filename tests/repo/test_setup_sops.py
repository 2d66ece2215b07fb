"""Set-up of sops: built once, again when its recipe changes, and every module pinned."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "go_modules", "sops")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/setup, with the programs below an empty folder."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    modules = {name: importlib.import_module(name) for name in NAMES}
    monkeypatch.setattr(modules["sops"], "BIN", tmp_path / "bin")
    monkeypatch.setattr(modules["sops"], "STAMP", tmp_path / "bin/built.json")
    monkeypatch.setattr(modules["sops"], "make_private", lambda: None)
    monkeypatch.setattr(modules["go_modules"], "check_go", lambda: None)
    yield modules
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_both_are_built_once_and_again_when_one_is_gone_or_the_recipe_is_another(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    sops, built = scripts["sops"], []

    def build(folder: Path, package: str, program: Path, flags: str) -> None:
        built.append((folder.name, package, program.name, flags))
        program.touch()

    monkeypatch.setattr(scripts["go_modules"], "build", build)
    sops.ensure()
    assert built == [
        ("sops", "github.com/getsops/sops/v3/cmd/sops", "sops", "-s -w"),
        ("sops", "filippo.io/age/cmd/age-keygen", "age-keygen", "-s -w"),
    ]
    sops.ensure()
    assert len(built) == 2
    (sops.BIN / "age-keygen").unlink()
    sops.ensure()
    assert len(built) == 4, "a program that is gone is built again"
    monkeypatch.setattr(sops, "RECIPE", sops.RECIPE[1:])
    sops.ensure()
    assert len(built) == 6


def test_every_module_is_pinned_by_checksum(scripts: dict[str, ModuleType]) -> None:
    module, sums = scripts["sops"].RECIPE
    pinned = sums.read_text(encoding="utf-8")
    wanted = re.findall(
        r"^\s*(?:require )?([a-z][\w./~-]+) (v[\w.+-]+)(?: // indirect)?$", module.read_text(), re.MULTILINE
    )
    assert {("github.com/getsops/sops/v3", "v3.13.3"), ("filippo.io/age", "v1.3.2")} <= set(wanted)
    assert [f"{name} {version}" for name, version in wanted if f"{name} {version}/go.mod h1:" not in pinned] == []
