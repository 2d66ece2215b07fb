"""A refusal with `--output json`: a document with its fields, its code and every problem."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import pytest
import typer
from jsonschema import validate

import rackready
from rackready.cli import campaign_run, main
from rackready.drivers.scheduler.base import SchedulerError
from rackready.model.problems import Message, RackreadyError, StoppedError
from rackready.model.refusal import Refusal, refusal

ROOT = Path(__file__).resolve().parents[3]
CODES = Path(__file__).with_name("refusal_codes.txt")


@pytest.mark.parametrize(
    ("error", "text", "fields"),
    [
        (
            RackreadyError("node07", "power", expected="on", actual="off", next_step="Run `x`. Then wait."),
            "node07: power - Expected: on Actual: off. Run `x`. Then wait.",
            ("node07", "power", "on", "off", "Run `x`. Then wait."),
        ),
        (
            RackreadyError("--kv int4", expected="bf16", actual=4, next_step="Choose."),
            "--kv int4 - Expected: bf16 Actual: 4. Choose.",
            ("--kv int4", None, "bf16", "4", "Choose."),
        ),
        (
            RackreadyError(expected="free", actual="held by pid 4"),
            "Expected: free Actual: held by pid 4.",
            (None, None, "free", "held by pid 4", None),
        ),
        (
            RackreadyError("x", expected="10.0.0.1", next_step="`rackready plan` shows it."),
            "x - Expected: 10.0.0.1. `rackready plan` shows it.",
            ("x", None, "10.0.0.1", None, "`rackready plan` shows it."),
        ),
        (
            RackreadyError("a - b: c", "d. E", expected="f Actual: g", actual="h. I - Expected: j", next_step="K."),
            "a - b: c: d. E - Expected: f Actual: g Actual: h. I - Expected: j. K.",
            ("a - b: c", "d. E", "f Actual: g", "h. I - Expected: j", "K."),
        ),
        (
            RackreadyError(what="No such option: --x", next_step="See `rackready --help`."),
            "No such option: --x. See `rackready --help`.",
            (None, "No such option: --x", None, None, "See `rackready --help`."),
        ),
        (RackreadyError("not a clone"), "not a clone", (None, "not a clone", None, None, None)),
    ],
)
def test_text_and_document_of_an_error_come_from_its_fields(
    error: RackreadyError, text: str, fields: tuple[str | None, ...]
) -> None:
    found = refusal(error)
    assert (found.error, str(error)) == (text, text)
    assert (found.where, found.what, found.expected, found.actual, found.next_step) == fields
    assert refusal(SchedulerError.of(error.messages)).problems == found.problems, "another error keeps the fields"


@pytest.mark.parametrize(
    ("arguments", "code", "where", "problems"),
    [
        (["status", "--colour"], "usage", None, 1),
        (["nonsense"], "usage", None, 1),
        (["gate", "run"], "refused", "gate run", 1),
        (["gate", "show", "nope"], "unknown-gate", "gate 'nope' does not exist", 1),
        (["size", "model", "--config", "/nonexistent/x"], "system-call", "/nonexistent/x", 1),
    ],
)
def test_every_refusal_is_a_document_of_the_schema(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, where: str | None, problems: int
) -> None:
    assert main.run([*arguments, "--output", "json"]).code == 2
    said = capsys.readouterr()
    document = json.loads(said.out)
    validate(document, Refusal.model_json_schema())
    assert (document["code"], document["where"], len(document["problems"])) == (code, where, problems)
    assert said.err.strip() == document["error"]
    assert list(document)[:2] == ["error", "code"]


def test_a_site_file_with_several_problems_gives_each_its_fields(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "inventories/lab").mkdir(parents=True)
    (tmp_path / "inventories/lab/site.yml").write_text("name: lab\nfrob: 1\nracks: 3\n")
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    assert main.run(["plan", "--env", "lab", "--output=json"]).code == 2
    document = json.loads(capsys.readouterr().out)
    validate(document, Refusal.model_json_schema())
    assert document["code"] == "site-invalid"
    found = {item["where"]: item for item in document["problems"]}
    assert (found["frob"]["what"], found["frob"]["path"]) == ("unknown key", "frob")
    assert found["frob"]["next_step"] == found["frob"]["hint"]
    assert len(found) == len(document["problems"]) > 2


def test_every_problem_of_a_refusal_has_its_fields(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(_arguments: list[str]) -> typer.Typer:
        raise RackreadyError.of([Message("a", "", 1, 2, "Correct it."), Message("b", "", 3, 4, "Correct it.")])

    monkeypatch.setattr(main, "build", build)
    assert main.run(["status", "--output", "json"]).code == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == "a - Expected: 1 Actual: 2. Correct it.\nb - Expected: 3 Actual: 4. Correct it."
    assert [item["where"] for item in document["problems"]] == ["a", "b"]
    assert (document["where"], document["expected"], document["actual"]) == ("a", "1", "2")


def test_the_codes_of_refusals_stay_the_same() -> None:
    """Scripts depend on the codes, which come from the names of classes. A renamed class keeps its code as `code`."""
    for module in pkgutil.walk_packages(rackready.__path__, "rackready."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    found, todo = {RackreadyError.code}, [RackreadyError]
    while todo:
        for kind in todo.pop().__subclasses__():
            todo.append(kind)
            if kind.__module__.startswith("rackready."):
                found.add(kind.code)
    assert sorted(found) == CODES.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["plan"],
            (
                "{root}/inventories/sim/site.yml: 1 problem; nothing was changed.\n"
                "  no such file. Without --env and ENV, the environment is sim. "
                "{root} has no environments: cd into your site repository, or set RACKREADY_ROOT to it. "
                f"To begin one here: `mkdir -p inventories && cp -r {ROOT}/inventories/example inventories/sim`\n"
            ),
        ),
        (
            ["gate", "explain", "node/gpu/sanity/ecc"],
            (
                "rackready gate explain - Expected: a server "
                "Actual: no --profile, and environment sim has no site file. "
                "Give a profile, e.g. --profile dgx_h100, or an environment with --env.\n"
            ),
        ),
    ],
)
def test_without_an_environment_the_next_step_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.delenv("ENV", raising=False)
    assert main.run(arguments).code == 2
    assert capsys.readouterr().err == text.format(root=tmp_path)


def test_a_stopped_campaign_prints_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    error = StoppedError(what="stopped", next_step="Nothing is lost: `make deploy ENV=sim` continues where it stopped.")
    text = "stopped. Nothing is lost: `make deploy ENV=sim` continues where it stopped."
    campaign_run.stopped(error, json=True)
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["code"], document["what"], said.err) == ("stopped", "stopped", f"{text}\n")
    assert document["next_step"] == "Nothing is lost: `make deploy ENV=sim` continues where it stopped."
    campaign_run.stopped(error, json=False)
    assert capsys.readouterr() == ("", f"{text}\n")
