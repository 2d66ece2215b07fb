"""A command that a message tells people to run names the environment of the call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from rackready.cli import main, named_env
from rackready.cli.output import console, print_lines, print_table
from rackready.model.commands import WITHOUT
from rackready.model.problems import RackreadyError

ROOT = Path(__file__).resolve().parents[3]
STEP = "Run `rackready deploy`, or `rackready repair node03 --reason '...'`."
NAMED = "Run `rackready deploy --env prod`, or `rackready repair node03 --reason '...' --env prod`."


@pytest.fixture(autouse=True)
def no_env(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    monkeypatch.delenv("ENV", raising=False)
    yield
    named_env.remember([])


@pytest.mark.parametrize(
    ("outside", "arguments", "text"),
    [
        (None, ["status", "--env", "prod"], NAMED),
        (None, ["status", "--env=prod"], NAMED),
        ("prod", ["status"], NAMED),
        ("lab", ["status", "--env", "prod"], NAMED),
        (None, ["status"], STEP),
        (None, ["status", "--env", "sim"], STEP),
        ("", ["status"], STEP),
        (None, ["plan", "--site", "x.yml"], STEP),
        ("lab", ["status", "--env", "sim"], NAMED.replace("prod", "sim")),
    ],
)
def test_the_environment_is_named_where_it_is_not_the_default(
    outside: str | None, arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if outside is not None:
        monkeypatch.setenv("ENV", outside)
    named_env.remember(arguments)
    assert named_env.with_env(STEP) == text


@pytest.mark.parametrize(
    "text",
    [
        "`rackready deploy --env lab` shows it.",
        "`rackready plan --site x.yml` shows it.",
        "`rackready help fabric`",
        "`rackready image build debian12`",
        "`rackready size model --config x`",
        "`rackready --show-completion`",
        "`rackready bmc --help`",
        "`systemctl restart rackready`",
        "rackready deploy",
    ],
)
def test_what_names_one_or_takes_none_stays(text: str) -> None:
    named_env.remember(["status", "--env", "prod"])
    assert named_env.with_env(text) == text


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, bool]]:
    """Return every command and whether it has ``--env``."""
    inner = getattr(command, "commands", {})
    own = [] if inner else [(" ".join(path), any("--env" in one.opts for one in command.params))]
    return own + [found for name, item in inner.items() for found in commands(item, (*path, name))]


def test_the_commands_without_the_option_are_those_that_are_written_down() -> None:
    found = commands(typer.main.get_command(main.build([])))
    without = {name for name, has in found if not has}
    assert {name for name, _ in found if {name, name.split()[0]} & WITHOUT} == without
    assert "help" in without


def test_refusals_and_lines_of_a_command_name_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(_arguments: list[str]) -> typer.Typer:
        console.print(STEP)
        print_lines([f"node03: {STEP}"])
        print_table(["node", "reason"], [["node03", STEP]])
        raise RackreadyError("node03", expected="ready", actual="quarantined", next_step=STEP)

    monkeypatch.setattr(main, "build", build)
    assert main.run(["status", "--env", "prod", "--output", "json"]).code == 2
    said = capsys.readouterr()
    lines, _, document = said.out.partition("{")
    assert said.err == f"node03 - Expected: ready Actual: quarantined. {NAMED}\n"
    assert lines.splitlines()[:2] == [NAMED, f"node03: {NAMED}"]
    assert f"│ {NAMED} │" in lines
    found = json.loads("{" + document)
    assert (found["error"], found["next_step"], found["problems"][0]["next_step"]) == (said.err.strip(), NAMED, NAMED)


def test_the_next_step_of_an_environment_without_a_deploy_can_be_typed(
    command: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "inventories/prod").mkdir(parents=True)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/prod/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    code, _, said = command("report", "--env", "prod")
    assert (code, said) == (
        2,
        (
            f"{tmp_path}/.rackready/prod/state.sqlite: no ledger - Expected: one made by a run Actual: none. "
            "Nothing was deployed from this checkout yet: run `rackready deploy --env prod`.\n"
        ),
    )
