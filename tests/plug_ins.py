"""Packages as an installation leaves them: a folder with modules and metadata, put on the search path."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SIMULATED_RACK = ROOT / "src" / "rackready_sim" / "pyproject.toml"

Points = Mapping[str, Mapping[str, str]]
"""Group -> name -> what is imported."""


def write_metadata(folder: Path, package: str, points: Points, version: str = "1.0") -> None:
    """Write what says that a package is installed in a folder."""
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8")
    lines = [line for group, names in points.items() for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))]
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
