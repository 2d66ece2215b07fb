"""Golden files: exports for the operators of a Kubernetes cluster. `GOLDENS=rewrite pytest tests/golden` rewrites."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.design.kubernetes_sites import CASES, case, text

HERE = Path(__file__).resolve().parent / "kubernetes"


@pytest.mark.parametrize("name", CASES)
def test_export_is_as_reviewed(name: str) -> None:
    found = {file.name: text(file) for file in case(name).files} | {"notes.txt": "\n".join(case(name).notes) + "\n"}
    folder = HERE / name
    if os.environ.get("GOLDENS") == "rewrite":
        folder.mkdir(exist_ok=True, parents=True)
        for path in folder.iterdir():
            path.unlink()
        for file, content in found.items():
            (folder / file).write_text(content, encoding="utf-8")
    assert found == {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
