"""Commands in README and docs: each is run here, or by the test that a table names, or is marked `not run`."""

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
from tests.docs.run_elsewhere import ELSEWHERE, WHERE, key, missing
from tests.gates import plain_texts
from tests.unit.cli.keys import put_key

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
WITH_COMMANDS = [path for path in DOCUMENTS if any(shown(path))]
ADDRESS = {"ids": lambda path: path.relative_to(ROOT).as_posix()}

RUN = (
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
    "import manifest",
    "doctor",
    "--help",
)
"""Commands of rackready that touch no machine: every one that a document shows is run, unless another test runs it."""
SHELL = ("cp", "mkdir")
"""Programs that a document may call beside rackready and make; they are run, too."""
GOOD = {"plan": {0, 1}, "doctor": {0, 1}}
"""Exit codes that are no failure, where not only 0 is one: a site never applied differs, a machine lacks programs."""
NO_KEY = "prod/secrets/id_ed25519 - Expected: an OpenSSH private key without passphrase Actual: No such file"
REFUSED = {
    "deploy --check": NO_KEY,
    "fabric --check": NO_KEY,
    "handover --check": NO_KEY,
    "evidence set-aside": "Expected: a ledger Actual: none. Nothing was deployed yet.",
    "gate run --local": "this machine: no NVIDIA GPU can be read - Expected: a GPU and its driver",
    "gate run --gpus --local --profile": "Check that install has run on the node and that its driver is loaded",
}
"""Commands that are run here as well, and refuse: the example site has no key and no ledger, this machine no GPU."""
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
    if program == "rackready" and not item.call.endswith("...") and (text := refusal(item.call)):
        return text
    if program == "make" and (text := make_refusal(rest)):
        return text
    if item.not_run or is_run(item) or name_of(item) in ELSEWHERE:
        return ""
    return f"{item.call}: no test runs it: name one in tests/docs/run_elsewhere.py, or mark it <!-- not run: REASON -->"


def name_of(item: Shown) -> str:
    """Return the command of a line with its options, as the tables name it; "" for programs of others."""
    if item.call.partition(" ")[0] not in {"rackready", "make"}:
        return ""
    groups = frozenset(name for name, command in commands().commands.items() if hasattr(command, "commands"))
    return key(OPERATORS.sub("", item.call), groups)


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
        ("rackready gate run --set quick --env prod", "no test runs it"),
        ("make chaos", "no test runs it"),
        ("rackready validate --env prod --again", ""),
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


# those that other tests run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "address"), ELSEWHERE.items(), ids=ELSEWHERE)
def test_the_named_test_runs_the_command(name: str, address: str) -> None:
    assert missing(address, name.removeprefix("make ").split()) == [], f"{address} does not run {name}"


def test_a_test_that_is_not_there_or_runs_something_else_is_found() -> None:
    phases = "tests/unit/cli/test_phases.py::test_validate_says_whether_everything_is_measured_anew"
    assert missing("tests/none.py::test_x", ["status"]) == ["status"]
    assert missing(phases + "_x", ["validate"]) == ["validate"]
    assert missing(phases, ["validate", "--again", "--check"]) == ["--check"]


def test_every_named_command_is_shown() -> None:
    names = {name_of(item) for document in WITH_COMMANDS for item in shown(document) if not item.not_run}
    assert sorted((ELSEWHERE.keys() | REFUSED.keys()) - names) == []
    assert not {word for name in ELSEWHERE for word in name.split()} & WHERE


# those that need no rack are run here ---------------------------------------------------------------------------------


def is_run(item: Shown) -> bool:
    """Say whether a command line is one that a test of this file runs."""
    program, _, rest = item.call.partition(" ")
    if item.not_run or name_of(item) in ELSEWHERE:
        return False
    if program in SHELL or name_of(item) in REFUSED:
        return True
    return program == "rackready" and (rest.startswith(RUN) or rest.endswith("--help"))


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
    (tmp_path / "delivery-1.csv").write_text(
        "serial,bmc_mac,password,rack,unit\n1660224000101,02:00:00:00:00:01,secret,rack-a01,1\n", encoding="utf-8"
    )
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/pynvml.py").write_text("raise ImportError('hidden')\n", encoding="utf-8")
    program = tmp_path / ".venv/bin/rackready"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rackready "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/hidden:{ROOT}/src")
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
    if name_of(item) in REFUSED:
        return {2}
    return {0} if OPERATORS.search(item.call) else GOOD.get(item.call.split()[1], {0})


@pytest.mark.parametrize("document", [path for path in WITH_COMMANDS if any(map(is_run, shown(path)))], **ADDRESS)
def test_commands_that_need_no_rack_end_as_expected(
    document: Path, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [item for item in shown(document) if is_run(item)]
    if not any(item.call.startswith("cp ") for item in lines):
        shutil.copytree(project / "inventories/example", project / "inventories/prod")
    for item in lines:
        code, said = run(item), "".join(capfd.readouterr())
        assert code in good(item), f"line {item.line}: {item.call} ended with {code}: {said}"
        assert REFUSED.get(name_of(item), "") in " ".join(said.split()), f"line {item.line}: {item.call}"
