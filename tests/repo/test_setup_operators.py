"""Set-up of charts and custom resources: copied once, again when the recipe changes, and every module pinned."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "go_modules", "operators")


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The script, with an empty folder for its files, and modules that have one file each."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    made, go = importlib.import_module("operators"), importlib.import_module("go_modules")
    monkeypatch.setattr(made, "TOOLS", tmp_path / "tools")
    monkeypatch.setattr(made, "BIN", tmp_path / "tools/operators")
    monkeypatch.setattr(made, "STAMP", tmp_path / "tools/operators/built.json")
    monkeypatch.setattr(made, "make_private", lambda: None)
    for module, part in made.COPIED.values():
        folder = tmp_path / "cache" / module / part
        folder.mkdir(parents=True)
        (folder / "one.yaml").write_text(f"of: {module}\n", encoding="utf-8")
        (folder / "one.yaml").chmod(0o400)
    monkeypatch.setattr(go, "check_go", lambda: None)
    monkeypatch.setattr(go, "go", lambda *_, **_named: "")
    monkeypatch.setattr(go, "module_version", lambda *_: "v3.1.0")
    monkeypatch.setattr(go, "module_folder", lambda module, _folder: tmp_path / "cache" / module)
    yield made
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_files_are_copied_once_and_again_with_another_recipe(
    operators: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = []

    def build(_folder: Path, package: str, program: Path, flags: str) -> None:
        built.append(package)
        assert flags.endswith("version=v3.1.0")
        program.touch()

    monkeypatch.setattr(operators.go_modules, "build", build)
    operators.ensure()
    copy = tmp_path / "tools/operators/kueue/one.yaml"
    assert copy.read_text(encoding="utf-8") == "of: sigs.k8s.io/kueue\n"
    assert copy.stat().st_mode & 0o777 == 0o600
    operators.ensure()
    assert built == ["helm.sh/helm/v3/cmd/helm"]
    copy.write_text("stale\n", encoding="utf-8")
    monkeypatch.setattr(operators, "RECIPE", operators.RECIPE[1:])
    operators.ensure()
    assert copy.read_text(encoding="utf-8") == "of: sigs.k8s.io/kueue\n"
    (tmp_path / "tools/helm").unlink()
    operators.ensure()
    assert len(built) == 3


def test_every_module_is_pinned_by_checksum(operators: ModuleType) -> None:
    for module, _ in operators.COPIED.values():
        required = (operators.SOURCES / "operators/go.mod").read_text(encoding="utf-8")
        (version,) = [line.split()[1] for line in required.splitlines() if line.strip().startswith(f"{module} v")]
        assert f"{module} {version} h1:" in (operators.SOURCES / "operators/go.sum").read_text(encoding="utf-8")
    assert "helm.sh/helm/v3 v3.21.4 h1:" in (operators.SOURCES / "helm/go.sum").read_text(encoding="utf-8")
