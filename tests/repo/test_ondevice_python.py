"""Code that runs on nodes works with the oldest Python of a supported system: 3.9, of RHEL 9."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONDEVICE = ROOT / "src/rackready/ondevice"
FILES = sorted([*ONDEVICE.glob("*.py"), *ONDEVICE.glob("pull/*.py")])
NEWER = {"strict", "slots", "kw_only"}
"""Keywords of zip and dataclass that Python 3.10 brought."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ONDEVICE).as_posix())
def test_code_for_nodes_is_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    used = [(call.lineno, word.arg) for call in calls for word in call.keywords if call.func.id in {"zip", "dataclass"}]  # type: ignore[attr-defined]
    assert [(line, word) for line, word in used if word in NEWER] == []
