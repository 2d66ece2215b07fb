"""What tools say is recorded and shown without secrets and without what moves a terminal, whichever way it came."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rackready.cli.main import run
from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.engine.runner import Attempt, Runner
from rackready.gates.records.sanitize import clean, tools
from rackready.model.outcome import Finding, Metric, Outcome, Verdict
from rackready.model.printable import readable, visible
from tests.gates import fake
from tests.gates.support import rack, text

INVENTORY = "node/gpu/sanity/inventory"
NAME = "HF_TOKEN=hf_TOPSECRET password=TOPSECRET https://u:TOPSECRET@h \x1b[2J\x00\x9b\u202e\u200b"
SHOWN = r"HF_TOKEN=[scrubbed] password=[scrubbed] https://[scrubbed]@h \x1b[2J\x00\x9b\u202e\u200b"
HEALTHY = text("nvml/dgx_h100_healthy.json")


def named(name: str) -> str:
    """What a driver would print whose first GPU is called so."""
    return re.sub(r'"name": "[^"]*"', lambda _: f'"name": {json.dumps(name)}', HEALTHY, count=1)


def test_what_the_runner_hands_on_is_clean() -> None:
    attempts: list[Attempt] = []
    runner = Runner(
        fake.FakeConnection({"Print NVML's inventory": fake.answered(named(NAME))}),
        rack(1),
        lambda _, attempt: attempts.append(attempt),
    )
    done = runner.gate(gate(INVENTORY), ["node01"])
    assert [finding.actual for finding in done[0].verdict.findings] == [SHOWN]
    assert attempts[0].verdict == done[0].verdict


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_is_evaluated_is_shown_clean(output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.json").write_text(named(NAME))
    assert (
        run(
            [
                "gate",
                "evaluate",
                INVENTORY,
                "--input",
                str(tmp_path / "out.json"),
                "--profile",
                "dgx_h100",
                "--output",
                output,
            ]
        ).code
        == 1
    )
    shown = capsys.readouterr().out
    assert "TOPSECRET" not in shown
    assert visible(shown) == shown
    assert (SHOWN if output == "text" else json.dumps(SHOWN)[1:-1]) in shown


def test_half_a_character_in_a_document_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.json").write_text(named("a\ud800b"))
    assert (
        run(["gate", "evaluate", INVENTORY, "--input", str(tmp_path / "out.json"), "--profile", "dgx_h100"]).code == 2
    )
    assert "half a character (\\ud800 alone) in a JSON string" in capsys.readouterr().out


def test_a_refusal_moves_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gate", "evaluate", INVENTORY, "--input", f"{tmp_path}/\x1b[2J", "--profile", "dgx_h100"]).code == 2
    assert f"--input {tmp_path}/\\x1b[2J - Expected: a readable file" in capsys.readouterr().err


def test_every_text_of_a_verdict_is_looked_at() -> None:
    bad = "password=TOPSECRET\x1b"
    shown = "password=[scrubbed]"
    finding = Finding(where=bad, what=bad, expected=bad, actual=bad, next_step=bad)
    metric = Metric(name="m\x00", target="t", value=1, unit="1")
    found = clean(
        Verdict(
            outcome=Outcome.FAIL,
            findings=[finding],
            metrics=[metric],
            measured=["node01/gpu0", "\x07"],
            blamed=["node01"],
            note=bad,
        )
    )
    assert found == Verdict(
        outcome=Outcome.FAIL,
        findings=[Finding(where=shown, what=shown, expected=shown, actual=shown, next_step=shown)],
        metrics=[Metric(name=r"m\x00", target="t", value=1, unit="1")],
        measured=["node01/gpu0", r"\x07"],
        blamed=["node01"],
        note=shown,
    )
    assert found.outcome is Outcome.FAIL
    assert clean(found) is found, "what is clean stays as it is"


def test_versions_of_tools_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gate(INVENTORY)
    monkeypatch.setattr(type(found), "tools", lambda *_: {"t\x1b": "1.0 token=TOPSECRET"})
    assert tools(found, {}) == {r"t\x1b": "1.0 token=[scrubbed]"}


def test_a_version_that_cannot_be_read_ends_nothing() -> None:
    endless = text("nccl/dgx_h100_8_healthy.txt").replace("nccl-library=", f"nccl-library={'9' * 5000}")
    found = gate("node/gpu/performance/nccl-all-reduce")
    assert tools(found, {"launch0": Output("launch0", "node01", "all_reduce_perf", 0, stdout=endless)}) == {}


@pytest.mark.parametrize("words", ["op\x1b[2Js", "\u200b\u200b", "a\u202eb", "\u3164\u3164", "--", "\x00"], ids=ascii)
def test_what_nobody_sees_is_no_answer(words: str) -> None:
    with pytest.raises(ValueError, match=r"^Expected: (visible characters|words, with a letter or a digit)$"):
        readable(words)


@pytest.mark.parametrize("words", ["Zoë, night shift", "two\nlines\t!", "日本", "7", ""], ids=ascii)
def test_what_is_said_stays(words: str) -> None:
    assert readable(words) == words
    assert visible(words) == words
