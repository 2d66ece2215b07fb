"""The rehearsal of every example site, held by golden files: its site file, and what it does not cover.

`GOLDENS=rewrite pytest tests/golden` rewrites them: read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackready.design.yaml import dump_yaml
from rackready_sim.rehearse.scaled import Scaled
from tests.unit.rehearse.small import SITES, rehearsal

HERE = Path(__file__).resolve().parent / "rehearse"


def text_of(small: Scaled) -> str:
    notes = "".join(f"# {note.line()}\n" for note in small.not_covered)
    profiles = "".join(f"---\n# profiles/{name}\n{dump_yaml(item)}" for name, item in small.profiles.items())
    return f"{notes}{dump_yaml(small.document)}{profiles}"


@pytest.mark.parametrize("name", SITES)
def test_rehearsal_is_as_reviewed(name: str) -> None:
    file, text = HERE / f"{name}.txt", text_of(rehearsal(name))
    if os.environ.get("GOLDENS") == "rewrite":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_golden_sees_a_node_less() -> None:
    assert text_of(rehearsal("lab-4-nodes", most=3)) != (HERE / "lab-4-nodes.txt").read_text(encoding="utf-8")
