"""Packages as an installation leaves them: a folder with modules and metadata, put on the search path."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from rackready.design.site import forget_sites
from rackready.gates.base import REGISTRY
from rackready.gates.engine import registry
from rackready.gates.engine.registry import all_gates
from rackready.gates.judging.finding_kinds import KINDS
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[1]
SIMULATED_RACK = ROOT / "src" / "rackready_sim" / "pyproject.toml"

Points = Mapping[str, Mapping[str, str]]
"""Group -> name -> what is imported."""


def write_metadata(folder: Path, package: str, points: Points, version: str = "1.0") -> None:
    """Write what says that a package is installed in a folder."""
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8")
    lines = [
        line
        for group, names in points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def declared(pyproject: Path) -> Points:
    """Return the entry points that a pyproject.toml declares."""
    points: Points = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["entry-points"]
    return points


def simulated_rack(folder: Path) -> Iterator[None]:
    """Let the simulated rack be installed as its source says, whatever set-up put into this environment and when."""
    write_metadata(folder, "rackready-sim", declared(SIMULATED_RACK))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


@contextmanager
def installed(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Put a folder of installed packages on the search path; afterwards nothing of them is left in this process."""
    gates, kinds, modules = dict(all_gates()), dict(KINDS), set(sys.modules)
    _forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        try:
            yield patch
        finally:
            REGISTRY.clear()
            REGISTRY.update(gates)
            KINDS.clear()
            KINDS.update(kinds)
            for name in [name for name in set(sys.modules) - modules if _lies_in(sys.modules[name], folder)]:
                del sys.modules[name]
            _forget()


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = [
        getattr(module, "__file__", None),
        *getattr(module, "__path__", ()),
    ]  # a folder without __init__.py has no file
    return any(str(place).startswith(str(folder)) for place in places)


def _forget() -> None:
    forget_sites()
    registry._import_plug_ins.cache_clear()
    loader._folders.cache_clear()
    for cached in (loader.gpu, loader.platform, loader.switch, loader.software, loader.gate_set, loader.parts):
        cached.cache_clear()


def package(folder: Path, name: str, points: Points, modules: Mapping[str, str]) -> None:
    """Install a package with these entry points and files (path -> text)."""
    write_metadata(folder, name, points)
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
