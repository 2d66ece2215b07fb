"""CONTRIBUTING.md and the docs: places that they name exist, links lead somewhere, decisions are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NOT_THERE_BY_DESIGN = {"tests/gates/test_<topic>.py", "molecule/default"}
"""A name inside what will be made."""


def rows() -> list[list[str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| a")
    ]


def places(cell: str) -> list[str]:
    """Return what looks like a path of this repository."""
    return [item for item in re.findall(r"`([^` ]+)`", cell) if "/" in item and item not in NOT_THERE_BY_DESIGN]


def exists(place: str) -> bool:
    """A placeholder such as <id> stands for at least one that is there already."""
    return any(True for _ in ROOT.glob(re.sub(r"<[^>]+>", "*", place.rstrip("/"))))


def test_table_names_what_can_be_added() -> None:
    kinds = " ".join(row[0] for row in rows())
    assert len(rows()) >= 8
    assert all(word in kinds for word in ("gate", "GPU", "switch system", "role", "stack"))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_place_in_the_table_exists(row: list[str]) -> None:
    assert [place for cell in row[1:] for place in places(cell) if not exists(place)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (document.parent / target).exists()] == []


def test_every_decision_is_listed() -> None:
    listed = set(re.findall(r"\(([0-9]{4}-[^)]+\.md)\)", (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
