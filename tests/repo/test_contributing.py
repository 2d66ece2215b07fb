"""CONTRIBUTING.md and the documents keep their word: places that they name exist, links lead somewhere, decisions are listed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from rackready.cli.main import _MISUSE, build
from tests import plug_ins

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NOT_THERE_BY_DESIGN = {"tests/gates/test_<topic>.py", "molecule/default"}
"""A name inside what will be made."""


@pytest.fixture(scope="module", autouse=True)
def simulated_rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Its commands stand in documents, too."""
    yield from plug_ins.simulated_rack(tmp_path_factory.mktemp("installed"))


def rows() -> list[list[str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| a")]


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


def called(text: str) -> list[str]:
    """Return the calls of rackready in a document, in sentences and in blocks of commands. A name without arguments is a mention, and left out."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.replace("\\\n", " ").splitlines()]
    spans = [*(" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)), *(line.split(" #")[0] for line in lines)]
    calls = [re.split(r" [|>] ", span)[0].removeprefix(".venv/bin/") for span in spans]
    return [call for call in calls if call.startswith("rackready ") and "..." not in call.replace("'...'", "")]


@cache
def commands() -> Any:  # noqa: ANN401 - click's command, of whichever click typer brings
    """Return the whole command line."""
    return typer.main.get_command(build([]))


def refusal(call: str) -> str:
    """Return why the command line would refuse a call, "" when it takes it. Nothing is run."""
    command = commands()
    words, names = shlex.split(call)[1:], ["rackready"]
    while words and words[0] in getattr(command, "commands", {}):
        names.append(words.pop(0))
        command = command.commands[names[-1]]
    if not words:
        return ""
    try:
        command.make_context(" ".join(names), words)
    except _MISUSE as error:
        return f"{call}: {type(error).__name__} {error}"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_calls_in_documents_are_taken_as_they_stand(document: Path) -> None:
    calls = called(document.read_text(encoding="utf-8"))
    assert [text for call in calls if (text := refusal(call))] == []


def test_a_call_that_lacks_something_is_found() -> None:
    assert "MissingParameter" in refusal("rackready repair NODE")
    assert "NoSuchOption" in refusal("rackready status --colour")
    assert refusal("rackready repair NODE --reason 'a b'") == refusal("rackready repair") == ""


def test_commands_in_documents_exist() -> None:
    named = {name for path in DOCUMENTS for name in re.findall(r"(?:bin/|`)rackready ([a-z]+)", path.read_text(encoding="utf-8"))}
    assert "sim" in named
    assert named - set(commands().commands) == set()
