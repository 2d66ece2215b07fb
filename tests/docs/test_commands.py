"""Commands in README and docs: the command line accepts each, read-only ones are run, the rest is marked `not run`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from rackready.cli import main
from scripts.reference.blocks import Shown, shown
from tests.gates import plain_texts
from tests.unit.cli.keys import put_key

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
WITH_COMMANDS = [path for path in DOCUMENTS if any(shown(path))]
ADDRESS = {"ids": lambda path: path.relative_to(ROOT).as_posix()}

READS = (
    "gate list",
    "gate show",
    "gate explain",
    "gate evaluate",
    "plan",
    "size",
    "schema",
    "help",
    "sim faults",
    "status",
    "evidence export-kit",
    "--help",
)
"""Commands of rackready that touch no machine: every one that a document shows is run."""
SHELL = ("cp", "mkdir")
"""Programs that a document may call beside rackready and make; they are run, too."""
GOOD = {"plan": {0, 1}}
"""Exit codes that are no failure, where not only 0 is one: a site that was never applied differs."""
OPERATORS = re.compile(r" (?:\|\|?|&&|>>?|<) .*$")


def refusal(call: str) -> str:
    """Return why the command line would refuse a call, "" when it takes it. Nothing is run."""
    command, names = commands(), ["rackready"]
    words = shlex.split(OPERATORS.sub("", call))[1:]
    while words and words[0] in getattr(command, "commands", {}):
        names.append(words.pop(0))
        command = command.commands[names[-1]]
    if not words or words == ["--help"]:
        return ""
    if hasattr(command, "commands"):  # options of a group act at once: they are looked up, not taken
        known = {option for param in command.params for option in param.opts}
        return "" if words[0] in known else f"{call}: no command {words[0]!r}"
    try:
        command.make_context(" ".join(names), words)
    except main._MISUSE as error:
        return f"{call}: {type(error).__name__} {error}"
    return ""


@cache
def commands() -> Any:  # noqa: ANN401 - click's command, of whichever click typer brings
    """Return the whole command line."""
    return typer.main.get_command(main.build([]))


def wrong(item: Shown) -> str:
    """Return what is wrong with a command line of a block, "" when nothing is."""
    program, _, rest = item.call.partition(" ")
    if item.not_run:
        return "" if program != "rackready" or item.call.endswith("...") else refusal(item.call)
    if program == "rackready":
        return refusal(item.call)
    if program == "make":
        return make_refusal(rest)
    return "" if program in SHELL else f"{item.call}: no test runs it: put <!-- not run: REASON --> before its block"


def make_refusal(words: str) -> str:
    """Return what the Makefile lacks of a call."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE)) | {
        f"{name}=" for name in re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE)
    }
    given = [re.sub(r"=.*", "=", word) for word in shlex.split(words)]
    return "".join(f"make {words}: {word} is not in the Makefile" for word in given if word not in known)


@pytest.mark.parametrize("document", WITH_COMMANDS, **ADDRESS)
def test_commands_in_blocks_are_taken_as_they_stand(document: Path) -> None:
    assert [f"line {item.line}: {text}" for item in shown(document) if (text := wrong(item))] == []


@pytest.mark.parametrize("document", DOCUMENTS, **ADDRESS)
def test_calls_in_sentences_are_taken_as_they_stand(document: Path) -> None:
    """A name without arguments is a mention, and left out."""
    prose = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = [" ".join(span.split()).removeprefix(".venv/bin/") for span in re.findall(r"`([^`]+)`", prose)]
    calls = [
        span
        for span in spans
        if span.startswith("rackready ") and "..." not in span.replace("'...'", "").replace('"..."', "")
    ]
    assert [
        text for call in calls if "[OPTIONS]" not in call and "COMMAND" not in call and (text := refusal(call))
    ] == []


def test_marks_stand_before_blocks_of_commands() -> None:
    for document in DOCUMENTS:
        marks = len(re.findall(r"^<!-- not run: ", document.read_text(encoding="utf-8"), re.MULTILINE))
        blocks = {item.not_run for item in shown(document) if item.not_run}
        assert (marks == 0) == (not blocks), document


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rackready repair NODE", "MissingParameter"),
        ("rackready status --colour", "NoSuchOption"),
        ("rackready gate liste", "no command 'liste'"),
        ("rackready plan --env prod > plan.md || test $? -eq 1", ""),
        ("rackready repair NODE --reason 'a b'", ""),
        ("make deploi ENV=sim", "deploi is not in the Makefile"),
        ("make deploy COLOUR=red", "COLOUR= is not in the Makefile"),
        ("createdb rackready", "no test runs it"),
    ],
)
def test_a_wrong_command_is_found(line: str, said: str) -> None:
    found = wrong(Shown(Path("x.md"), 1, line, ""))
    assert said in found if said else found == ""


def test_blocks_are_read_as_people_read_them(tmp_path: Path) -> None:
    page = tmp_path / "x.md"
    page.write_text(
        "<!-- not run: a reason -->\n\n```sh\nfirst \\\n  --more   # why\n```\n\n```console\n$ "
        "second\noutput\n```\n\n```yaml\nkey: 1\n```\n",
        encoding="utf-8",
    )
    assert [(item.line, item.text, item.not_run) for item in shown(page)] == [
        (4, "first --more", "a reason"),
        (9, "second", ""),
    ]


# those that only read are run ----------------------------------------------------------------------------------------


def reads(item: Shown) -> bool:
    """Say whether a command line is one that a test runs."""
    program, _, rest = item.call.partition(" ")
    if item.not_run:
        return False
    return program in SHELL or (program == "rackready" and (rest.startswith(READS) or rest.endswith("--help")))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the example site as ``prod``, and the outputs that the documents' examples name."""
    for folder in ("playbooks", ".venv/bin", "llama-3.1-70b"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "inventories", tmp_path / "inventories")
    put_key(tmp_path / ".rackready/sim/keys/id_ed25519")
    fixtures = ROOT / "tests/fixtures/made"
    shutil.copy(fixtures / "llm/llama31_70b.json", tmp_path / "llama-3.1-70b/config.json")
    shutil.copy(fixtures / "smi/dgx_h100_healthy.xml", tmp_path / "smi.xml")
    shutil.copy(fixtures / "dcgm/dgx_h100_r1_dcgm4_healthy.json", tmp_path / "dcgm.json")
    (tmp_path / "nvlink.txt").write_text(plain_texts.nvlink(), encoding="utf-8")
    program = tmp_path / ".venv/bin/rackready"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rackready "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.delenv("ENV", raising=False)
    return tmp_path


def run(item: Shown) -> int:
    """Run a command line: in this process, where no shell is needed."""
    if item.call.startswith("rackready ") and not OPERATORS.search(item.call):
        return main.run(shlex.split(item.call)[1:]).code
    return subprocess.run(["/bin/sh", "-c", item.text], timeout=120, check=False).returncode


def good(item: Shown) -> set[int]:
    """Return the exit codes that are no failure; a shell line says itself what it takes."""
    return {0} if OPERATORS.search(item.call) else GOOD.get(item.call.split()[1], {0})


@pytest.mark.parametrize("document", [path for path in WITH_COMMANDS if any(map(reads, shown(path)))], **ADDRESS)
def test_commands_that_only_read_end_well(document: Path, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [item for item in shown(document) if reads(item)]
    if not any(item.call.startswith("cp ") for item in lines):
        shutil.copytree(project / "inventories/example", project / "inventories/prod")
    for item in lines:
        code = run(item)
        assert code in good(item), f"line {item.line}: {item.call} ended with {code}: {capfd.readouterr().err}"
