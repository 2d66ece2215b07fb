"""`rackready profile learn`: prints or writes a profile; refuses to invent values and to overwrite a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.cli import profile
from rackready.drivers.remote import Answer
from rackready.model.problems import RackreadyError
from tests.unit.design.learning.machines import two_gpus

Call = Callable[..., tuple[int, str, str]]
LEARN = ("profile", "learn", "--local", "--env", "sim")


def here(monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]) -> None:
    """Let this machine print a document."""
    text = json.dumps({"format": "rackready/platform-parts/v1", **document, "complete": True})
    monkeypatch.setattr(profile, "_script", lambda: f"print({text!r})")


def written(tmp_path: Path) -> Path:
    return tmp_path / "inventories/sim/profiles/platform/box_2_h100_sxm.yml"


def test_a_profile_is_printed_and_nothing_written(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, two_gpus())
    code, out, err = call(*LEARN, "--max-power", "3000")
    assert (code, yaml.safe_load(out)["id"]) == (0, "box_2_h100_sxm")
    assert f"{written(tmp_path)}: not written (--write writes it), " in err
    assert not written(tmp_path).exists()


def test_a_profile_is_written_once_and_not_overwritten(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(monkeypatch, two_gpus())
    assert call(*LEARN, "--max-power", "3000", "--write")[0] == 0
    first = written(tmp_path).read_text(encoding="utf-8")
    assert yaml.safe_load(first)["max_power"]["value"] == 3000
    assert call(*LEARN, "--max-power", "3000", "--write")[0] == 0
    code, out, err = call(*LEARN, "--max-power", "4000", "--write")
    assert code == 2
    assert "-  value: 3000.0\n+  value: 4000.0\n" in out
    refusal = (
        f"{written(tmp_path)} - Expected: no file, or the same Actual: another profile; the difference is above. "
        "Give --replace to overwrite it, or another --id."
    )
    assert refusal in " ".join(err.split())
    assert written(tmp_path).read_text(encoding="utf-8") == first
    assert call(*LEARN, "--max-power", "4000", "--write", "--replace")[0] == 0


def test_a_value_that_nobody_gives_is_not_invented(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, two_gpus())
    code, out, err = call(*LEARN, "--write")
    assert code == 1
    assert "# question: max_power: a machine does not report its highest draw." in out
    assert "  max_power - Expected: known Actual: a machine does not report its highest draw. " in err
    assert not written(tmp_path).exists()


def test_what_was_asked_is_in_a_log(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, two_gpus())
    code, out, err = call(*LEARN, "-v", "--output", "json")
    log = Path(json.loads(out)["log"])
    assert (code, log.name, log.is_relative_to(tmp_path / ".rackready/sim/logs")) == (1, "rackready.log", True)
    assert "rackready profile learn --local --env sim: begins" in log.read_text(encoding="utf-8")
    assert "cli: rackready profile learn --local --env sim: begins" in err


def test_json_holds_the_text_the_questions_and_what_is_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, two_gpus())
    code, out, _ = call(*LEARN, "--output", "json")
    found = json.loads(out)
    assert (code, found["id"], found["written"], len(found["missing"])) == (1, "box_2_h100_sxm", False, 1)


@pytest.mark.parametrize(("words", "given"), [(("node01", "--local"), "both"), ((), "neither")])
def test_a_node_or_this_machine(call: Call, words: tuple[str, ...], given: str) -> None:
    code, _, err = call("profile", "learn", *words, "--env", "sim")
    assert code == 2
    assert f"profile learn - Expected: a node, or --local Actual: {given}. Give one of them." in err


def test_a_profile_of_another_product_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, two_gpus())
    code, _, err = call(*LEARN, "--like", "xe9680_h100")
    assert code == 2
    text = (
        "profile learn --like xe9680_h100 - Expected: a profile of Box 2 Actual: of PowerEdge XE9680. "
        "Leave it out, or name a profile of this product."
    )
    assert text in " ".join(err.split())


def test_an_unknown_node_is_refused(call: Call) -> None:
    code, _, err = call("profile", "learn", "node77", "--env", "sim")
    assert code == 2
    assert "profile learn node77 - Expected: a node of " in err
    assert "Correct the name, or add the node to the site file." in " ".join(err.split())


def test_a_refused_login_is_quoted_without_an_expected_of_its_own() -> None:
    refused = "node01: login as root - Expected: accepted Actual: refused. Check access.user."
    with pytest.raises(RackreadyError) as caught:
        profile._parsed("node01", Answer(None, "", "", 1.0, failure=refused, reached=False))
    assert str(caught.value) == (
        "node01 - Expected: a login, to read the machine "
        "Actual: node01: login as root: refused (expected: accepted). Check access.user. "
        "Then run again."
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(None, "", "", 180.0, timed_out=True), "Actual: no answer within 180 s. Run again."),
        (
            Answer(None, "", "", 1.0, failure="the connection was lost before the command ended"),
            "Actual: the connection was lost before the command ended. Run again.",
        ),
        (Answer(3, "", "", 1.0), "Actual: exit code 3. Correct that on the machine, then run again."),
        (
            Answer(0, "hello\n", "a warning", 1.0),
            (
                "Actual: not JSON (expected value at line 1 column 1). "
                "Run ondevice/platform_parts.py there by hand, and look at what it prints."
            ),
        ),
    ],
)
def test_what_is_no_answer_is_told_with_the_next_step(answer: Answer, words: str) -> None:
    with pytest.raises(RackreadyError) as caught:
        profile._parsed("node01", answer)
    assert str(caught.value) == f"node01 - Expected: what ondevice/platform_parts.py prints {words}"


def test_a_machine_without_an_answer_is_an_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_script", lambda: "import sys; sys.exit('no python here')")
    code, _, err = call(*LEARN)
    assert code == 2
    text = (
        "this machine - Expected: what ondevice/platform_parts.py prints Actual: no python here. "
        "Correct that on the machine, then run again."
    )
    assert text in " ".join(err.split())


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            "on",
            "Secure Boot: on. Install needs a firmware that trusts the key of DKMS: docs/runbooks/driver-build.md.",
        ),
        ("off (setup mode)", "Secure Boot: off (setup mode)."),
    ],
)
def test_the_state_of_secure_boot_is_reported(
    call: Call, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    here(monkeypatch, two_gpus(secure_boot=state))
    _, out, err = call(*LEARN, "--max-power", "3000")
    assert f"# Secure Boot: {state}.\n" in out
    assert words in " ".join(err.split())
    assert json.loads(call(*LEARN, "--output", "json")[1])["secure_boot"] == state


def test_a_document_without_the_state_is_read(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, two_gpus())
    code, out, err = call(*LEARN)
    assert (code, "# Secure Boot: unknown.\n" in out, "Secure Boot: unknown." in err) == (1, True, True)
