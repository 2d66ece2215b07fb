"""Set-up of the Kubernetes control plane: built once, again when its recipe changes, and every module pinned."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "go_modules", "control_plane")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/setup, with programs below an empty folder and a module cache that has kwok's stages."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    modules = {name: importlib.import_module(name) for name in NAMES}
    plane, go = modules["control_plane"], modules["go_modules"]
    monkeypatch.setattr(plane, "BIN", tmp_path / "bin")
    monkeypatch.setattr(plane, "STAMP", tmp_path / "bin/built.json")
    monkeypatch.setattr(plane, "make_private", lambda: None)
    for stage in plane.STAGES:
        (tmp_path / "kwok/kustomize/stage" / stage).mkdir(parents=True)
        (tmp_path / "kwok/kustomize/stage" / stage / "one.yaml").write_text(f"kind: {stage}\n", encoding="utf-8")
        (tmp_path / "kwok/kustomize/stage" / stage / "kustomization.yaml").write_text("no: stage\n", encoding="utf-8")
    crd = tmp_path / "kwok/manifests/base/kubeflow.org_mpijobs.yaml"
    crd.parent.mkdir(parents=True)
    crd.write_text("kind: CustomResourceDefinition\n", encoding="utf-8")
    monkeypatch.setattr(go, "check_go", lambda: None)
    monkeypatch.setattr(go, "module_version", lambda *_: "v1.35.0")
    monkeypatch.setattr(go, "module_folder", lambda *_: tmp_path / "kwok")
    yield modules
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_programs_are_built_once_and_again_with_another_recipe(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plane, built = scripts["control_plane"], []

    def build(_folder: Path, package: str, program: Path, flags: str) -> None:
        built.append((program.name, package))
        assert flags.endswith("gitVersion=v1.35.0")
        program.touch()

    monkeypatch.setattr(scripts["go_modules"], "build", build)
    plane.ensure()
    assert [name for name, _ in built] == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubeadm",
        "kwok",
        "mpi-operator",
    ]
    assert (tmp_path / "bin/mpijobs.yaml").read_text(encoding="utf-8") == "kind: CustomResourceDefinition\n"
    stages = (tmp_path / "bin/stages.yaml").read_text(encoding="utf-8")
    assert stages == "kind: node/fast\n---\nkind: node/heartbeat-with-lease\n---\nkind: pod/fast\n"
    plane.ensure()
    assert len(built) == 7
    (tmp_path / "bin/kwok").unlink()
    plane.ensure()
    assert len(built) == 14, "a program that is gone is built again"
    monkeypatch.setattr(plane, "RECIPE", plane.RECIPE[1:])
    plane.ensure()
    assert len(built) == 21


def test_every_module_is_pinned_by_checksum(scripts: dict[str, ModuleType]) -> None:
    for file in scripts["control_plane"].RECIPE[::2]:
        pinned = (file.parent / "go.sum").read_text(encoding="utf-8")
        wanted = re.findall(
            r"^\s*(?:require )?([a-z][\w./-]+) (v[\w.+-]+)(?: // indirect)?$", file.read_text(), re.MULTILINE
        )
        assert wanted
        replaced = dict(re.findall(r"^\s*(\S+) => \S+ (v\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
        lost = [
            f"{name} {replaced.get(name, version)}"
            for name, version in wanted
            if f"{name} {replaced.get(name, version)}/go.mod h1:" not in pinned
        ]
        assert lost == []
