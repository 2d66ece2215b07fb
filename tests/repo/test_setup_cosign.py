"""Set-up of cosign: built once, again when its recipe changes, and every module pinned."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "go_modules", "cosign")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/setup, with the program below an empty folder."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    modules = {name: importlib.import_module(name) for name in NAMES}
    monkeypatch.setattr(modules["cosign"], "BIN", tmp_path / "bin")
    monkeypatch.setattr(modules["cosign"], "STAMP", tmp_path / "bin/built.json")
    monkeypatch.setattr(modules["cosign"], "make_private", lambda: None)
    monkeypatch.setattr(modules["go_modules"], "check_go", lambda: None)
    monkeypatch.setattr(modules["go_modules"], "module_version", lambda *_: "v3.1.2")
    yield modules
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_it_is_built_once_and_again_with_another_recipe(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    cosign, built = scripts["cosign"], []

    def build(folder: Path, package: str, program: Path, flags: str) -> None:
        built.append((folder.name, package, program.name))
        assert flags.endswith("gitVersion=v3.1.2")
        program.touch()

    monkeypatch.setattr(scripts["go_modules"], "build", build)
    cosign.ensure()
    assert built == [("cosign", "github.com/sigstore/cosign/v3/cmd/cosign", "cosign")]
    cosign.ensure()
    assert len(built) == 1
    (cosign.BIN / "cosign").unlink()
    cosign.ensure()
    assert len(built) == 2, "a program that is gone is built again"
    monkeypatch.setattr(cosign, "RECIPE", cosign.RECIPE[1:])
    cosign.ensure()
    assert len(built) == 3


def test_every_module_is_pinned_by_checksum(scripts: dict[str, ModuleType]) -> None:
    module, sums = scripts["cosign"].RECIPE
    pinned = sums.read_text(encoding="utf-8")
    wanted = re.findall(
        r"^\s*(?:require )?([a-z][\w./~-]+) (v[\w.+-]+)(?: // indirect)?$", module.read_text(), re.MULTILINE
    )
    assert ("github.com/sigstore/cosign/v3", "v3.1.2") in wanted
    assert [f"{name} {version}" for name, version in wanted if f"{name} {version}/go.mod h1:" not in pinned] == []
