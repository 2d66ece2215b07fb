"""Every runbook that a message names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"docs/runbooks/[a-z0-9-]+\.md")


def test_every_runbook_that_a_gate_names_exists() -> None:
    named = {
        name
        for file in (ROOT / "src/rackready/gates").rglob("*.py")
        for name in _NAMED.findall(file.read_text(encoding="utf-8"))
    }
    assert named
    assert {name for name in named if not (ROOT / name).is_file()} == set()
