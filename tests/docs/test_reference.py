"""References are as the code is: `make reference` writes them, and says which are old."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rackready.gates.engine.registry import all_gates
from rackready.model.keys import site_sections

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference"


def test_references_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/reference", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_gate_has_its_part() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (REFERENCE / "gates").glob("*.md")]
    assert sorted(re.findall(r"^## (\S+/\S+)$", "\n".join(texts), re.MULTILINE)) == sorted(all_gates())


def test_every_key_has_its_row() -> None:
    text = (REFERENCE / "site-file.md").read_text(encoding="utf-8")
    assert text.count('<a id="') == sum(len(section.keys) for section in site_sections())


def test_every_command_has_an_example() -> None:
    text = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(parts) > 30
    assert [part.splitlines()[0] for part in parts if "Examples:" not in part] == []
