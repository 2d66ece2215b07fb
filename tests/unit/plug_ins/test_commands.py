"""Commands of other packages: found, a broken one named while all others work, and a name that two have refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from rackready.cli import main
from tests import plug_ins

GROUP = "rackready.commands"
GOOD = """
import typer

app = typer.Typer(help="Greets.", no_args_is_help=True)


@app.callback()
def _group() -> None: ...


@app.command()
def hello() -> None:
    print("hello")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with plug_ins.installed(tmp_path):
        yield tmp_path


def bring(folder: Path, package: str, commands: Mapping[str, str], text: str) -> None:
    module = package.replace("-", "_")
    plug_ins.package(
        folder,
        package,
        {GROUP: {name: f"{module}:{value}" for name, value in commands.items()}},
        {f"{module}.py": text},
    )


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main.run(list(words)).code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_group_and_a_function_are_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GOOD + '\n\ndef shout(word: str) -> None:\n    """Say it."""\n    print(word.upper())\n'
    bring(folder, "greeter", {"greet": "app", "shout": "shout"}, text)
    assert called(capsys, "greet", "hello") == (0, "hello\n", "")
    assert called(capsys, "shout", "hello") == (0, "HELLO\n", "")
    code, out, _ = called(capsys, "--help")
    assert code == 0
    assert all(word in out for word in ("greet", "Greets.", "shout", "Say it.", "deploy", "doctor"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import no_such_module_anywhere\n",
            "it can be imported Actual: ModuleNotFoundError: No module named 'no_such_module_anywhere'",
        ),
        ("other = 1\n", "it can be imported Actual: AttributeError: module 'broken' has no attribute 'app'"),
        ("def app(:\n", "it can be imported Actual: SyntaxError: "),
        ("raise SystemExit(0)\n", "it can be imported Actual: SystemExit: 0"),
        ("app = 3\n", "broken:app is a typer.Typer or a function Actual: a int"),
        (
            "def app(word: bytes | int) -> None: ...\n",
            "a command that typer supports Actual: AssertionError: Typer currently doesn't support Union types",
        ),
    ],
    ids=["import", "attribute", "syntax", "exit", "number", "parameter"],
)
def test_a_broken_one_is_named_and_the_others_work(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    bring(folder, "broken", {"wreck": "app"}, text)
    bring(folder, "greeter", {"greet": "app"}, GOOD)
    code, out, err = called(capsys, "wreck", "--anything")
    assert (code, out) == (2, "")
    assert err.startswith(f"plug-in wreck of broken 1.0 (rackready.commands: broken:app) - Expected: {said}")
    assert err.endswith("Repair it (`python -c 'import broken'` shows where it fails), or uninstall broken.\n")
    assert called(capsys, "greet", "hello")[:2] == (0, "hello\n")
    assert called(capsys, "schema")[0] == 0
    code, out, _ = called(capsys, "--help")
    assert code == 0
    assert "Cannot be used: plug-in wreck of broken 1.0" in " ".join(out.replace("│", " ").split())
    assert "Greets." in out
    assert called(capsys, "--version")[0] == 0


def test_a_name_that_two_packages_have_is_refused_and_their_others_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(folder, "first", {"greet": "app", "other": "app"}, GOOD)
    bring(folder, "second", {"greet": "app"}, GOOD)
    code, out, err = called(capsys, "greet", "hello")
    assert (code, out) == (2, "")
    assert err == (
        "rackready.commands: greet - Expected: one Actual: 2: plug-in greet of first 1.0 (rackready.commands: "
        "first:app); "
        "plug-in greet of second 1.0 (rackready.commands: second:app). Uninstall first or second.\n"
    )
    assert called(capsys, "other", "hello")[:2] == (0, "hello\n")
    assert called(capsys, "--help")[0] == 0


def test_a_command_of_ours_is_taken_by_nobody(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bring(folder, "thief", {"schema": "app"}, GOOD)
    code, out, err = called(capsys, "schema", "hello")
    assert (code, out) == (2, "")
    assert err.startswith(
        "rackready.commands: schema - Expected: one Actual: 2: rackready itself; plug-in schema of thief 1.0"
    )
    assert called(capsys, "doctor", "--help")[0] == 0
    assert called(capsys, "--help")[0] == 0


def test_the_simulated_rack_says_how_it_is_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackready.entry_points.entry_points", lambda: EntryPoints(()))  # no plug-in is installed
    monkeypatch.syspath_prepend("/no/such/folder")
    code, out, err = called(capsys, "sim", "up")
    assert (code, out) == (2, "")
    step = "Run: pip install 'rackready[sim]' (in a checkout: make setup)."
    assert err == f"rackready sim - Expected: a command of rackready[sim] Actual: that is not installed. {step}\n"
    assert " sim " not in called(capsys, "--help")[1]
    assert called(capsys, "no-such-command")[0] == 2
