"""The operator's field diagnostic and nvdebug: run as documented, and every way in which they do not tell."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.rma import field_diagnostic, node_room
from rackready.campaign.rma.field_diagnostic import judged
from rackready.drivers.remote import Answer
from tests.unit.campaign.rma_node import Faulty, by_name, inside
from tests.unit.cli.bmc_node import Node
from tests.unit.cli.conftest import call, command, no_controller
from tests.unit.sim.bmc_service import served

__all__ = ["call", "command", "no_controller"]
SCRIPT = """#!/bin/sh
echo testing $1
mkdir -p logs
echo gpu 3 password=hunter2 > logs/fieldiag.log
echo {word}
exit {code}
"""
FAST = ["evidence", "history", "bmc-parts", "bmc-log", "node-parts", "kernel-log", "nvidia-bug-report"]


@pytest.fixture
def faulty(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:  # noqa: ANN401
    del call
    with served(tmp_path) as service:
        yield Faulty(Node(service, tmp_path), tmp_path, monkeypatch)


def diagnostic(faulty: Faulty, word: str, code: int, **more: Any) -> None:
    """Supply a diagnostic that prints a word and ends with a code."""
    path, text = faulty.root / "fieldiag.tar.gz", SCRIPT.format(word=word, code=code).encode()
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("fieldiag/fieldiag.sh")
        info.size, info.mode = len(text), 0o755
        tar.addfile(info, io.BytesIO(text))
    wanted = {
        "archive": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "command": ["./fieldiag.sh", "--level1"],
    }
    faulty.site(field_diagnostic=wanted | more)


def test_the_field_diagnostic_runs_on_the_node_and_its_log_is_gathered(faulty: Faulty) -> None:
    diagnostic(faulty, "FAIL", 1)
    case, document = faulty.leave(without=FAST)
    found = document["field_diagnostic"]
    assert (found["verdict"], found["exit_code"]) == ("FAIL", 1)
    assert found["why"] == "exit code 1, and it printed FAIL"
    files = inside(case)
    assert files["field-diagnostic/logs/logs/fieldiag.log"] == b"gpu 3 password=[scrubbed]\n"
    assert files["field-diagnostic/field-diagnostic.out"] == b"testing --level1\nFAIL\n"
    assert "## Field diagnostic\n\nFAIL: exit code 1, and it printed FAIL\n" in files["SUMMARY.md"].decode()


def test_another_archive_is_not_run(faulty: Faulty) -> None:
    diagnostic(faulty, "PASS", 0, sha256="0" * 64)
    _, document = faulty.leave(without=FAST)
    found = hashlib.sha256((faulty.root / "fieldiag.tar.gz").read_bytes()).hexdigest()
    assert by_name(document)["field-diagnostic"]["reason"] == (
        f"{faulty.root}/fieldiag.tar.gz - Expected: sha256 {'0' * 64} Actual: {found}."
    )
    assert not any("fieldiag.sh" in line for line in faulty.here.ran)


def test_a_diagnostic_that_cannot_start_gathers_nothing(faulty: Faulty) -> None:
    diagnostic(faulty, "PASS", 0, command=["./nope.sh"])
    _, document = faulty.leave(without=FAST)
    reason = by_name(document)["field-diagnostic"]["reason"]
    assert reason.startswith("./nope.sh could not be started: "), reason
    assert document["field_diagnostic"]["verdict"] == "NOT RUN"


def test_a_verdict_is_not_lost_with_its_logs(faulty: Faulty) -> None:
    diagnostic(faulty, "FAIL", 1, logs=["logs*"])
    faulty.site(limit_mib=1, field_diagnostic=_declared(faulty) | {"command": ["sh", "-c", LARGE]})
    _, document = faulty.leave(without=FAST)
    assert document["field_diagnostic"]["verdict"] == "FAIL"
    row = by_name(document)["field-diagnostic"]
    assert row["note"].startswith("FAIL: exit code 1, and it printed FAIL; logs not copied: "), row["note"]
    assert "at most 1 MiB" in row["note"]


def test_more_files_than_are_copied_are_told(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_room, "_MANY", 1)
    diagnostic(
        faulty, "FAIL", 1, command=["sh", "-c", "mkdir logs; echo a > logs/1; echo b > logs/2; echo FAIL; exit 1"]
    )
    case, document = faulty.leave(without=FAST)
    assert by_name(document)["field-diagnostic"]["note"].endswith("Expected: at most 1 Actual: 2.")
    assert [name for name in inside(case) if name.startswith("field-diagnostic/logs/")] == [
        "field-diagnostic/logs/logs/1"
    ]


LARGE = "mkdir logs; dd if=/dev/zero of=logs/x bs=1048576 count=3 2>/dev/null; echo FAIL; exit 1"


def _declared(faulty: Faulty) -> dict[str, Any]:
    path = faulty.root / "fieldiag.tar.gz"
    return {"archive": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize(("word", "code", "verdict"), [("FAIL", 1, "FAIL"), ("PASS", 0, "UNCLEAR")])
def test_a_pass_whose_output_was_not_copied_is_none(faulty: Faulty, word: str, code: int, verdict: str) -> None:
    diagnostic(faulty, word, code)
    many = f"dd if=/dev/zero bs=1048576 count=3 2>/dev/null; echo {word}; exit {code}"
    faulty.site(limit_mib=1, field_diagnostic=_declared(faulty) | {"command": ["sh", "-c", many]})
    _, document = faulty.leave(without=FAST)
    found = document["field_diagnostic"]
    assert found["verdict"] == verdict
    assert found["why"].startswith(f"exit code {code}; what it printed was not copied: "), found["why"]


def test_a_node_that_dies_under_the_diagnostic_is_not_said_to_have_run_none(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnostic(faulty, "PASS", 0)
    lost = Answer(None, "", "", 60.0, failure="the connection was lost before the command ended")
    monkeypatch.setattr(field_diagnostic, "run_in", lambda *_, **__: lost)
    _, document = faulty.leave(without=FAST)
    found = document["field_diagnostic"]
    assert (found["verdict"], found["why"]) == ("UNCLEAR", lost.failure)
    reason = f"it was started, and then {lost.failure}"
    assert by_name(document)["field-diagnostic"]["reason"].rstrip(".") == reason


@pytest.mark.parametrize(
    ("code", "text", "verdict", "why"),
    [
        (0, "a\nPASS\n", "PASS", "exit code 0, and it printed PASS"),
        (2, "RETEST: seat the board", "RETEST", "exit code 2, and it printed RETEST"),
        (0, "no word", "PASS", "exit code 0; it printed none of PASS, FAIL, RETEST"),
        (0, "PASS\nFAIL", "UNCLEAR", "it printed FAIL and ended with exit code 0"),
        (1, "PASS", "UNCLEAR", "it printed PASS and ended with exit code 1"),
        (139, "PASS", "UNCLEAR", "exit code 139, and NVIDIA documents 0, 1 and 2"),
        (None, "PASS", "UNCLEAR", "it did not end within its time limit"),
        (1, "BYPASS FAILURE", "FAIL", "exit code 1; it printed none of PASS, FAIL, RETEST"),
    ],
)
def test_code_and_word_must_not_contradict(code: int | None, text: str, verdict: str, why: str) -> None:
    assert judged(code, text) == (verdict, why)


NVDEBUG = """#!/usr/bin/env python3
import json, sys, zipfile, pathlib, os
a = sys.argv
out, dut = pathlib.Path(a[a.index("--outdir") + 1]), pathlib.Path(a[a.index("--dutconfig") + 1])
import yaml
told = yaml.safe_load(dut.read_text())["node01"]
pathlib.Path(os.environ["RMA_LOG"]).write_text(json.dumps([a[1:], oct(dut.stat().st_mode), told["BMC_PASSWORD"]]))
print("BMC password is", told["BMC_PASSWORD"])
with zipfile.ZipFile(out / "nvdebug_logs.zip", "w") as z:
    z.writestr("R1.json", os.environ.get("RMA_TEXT", "{}").replace("PASSWORD", told["BMC_PASSWORD"]))
sys.exit(int(os.environ.get("RMA_CODE", "0")))
"""


def test_nvdebug_gets_the_password_in_a_private_file(faulty: Faulty) -> None:
    faulty.program("nvdebug", NVDEBUG)
    faulty.site(nvdebug={"program": str(faulty.bin / "nvdebug"), "platform": "DGX", "baseboard": "Hopper-HGX-8-GPU"})
    case, document = faulty.leave(without=FAST)
    arguments, mode, password = json.loads(faulty.log.read_text())
    assert (mode, password in " ".join(arguments)) == ("0o100600", False)
    files = inside(case)
    assert by_name(document)["nvdebug"]["gathered"]
    assert files["nvdebug/nvdebug_logs.zip"].startswith(b"PK")
    assert not any(password.encode() in data for data in files.values())
    assert not list(case.base.rglob("dut_config.yaml"))


def test_nvdebug_without_an_archive_gathers_nothing(faulty: Faulty) -> None:
    faulty.program("nvdebug", "#!/bin/sh\necho no such platform\nexit 3\n")
    faulty.site(nvdebug={"program": str(faulty.bin / "nvdebug"), "platform": "DGX", "baseboard": "x"})
    _, document = faulty.leave(without=FAST)
    assert by_name(document)["nvdebug"]["reason"] == "exit code 3, no archive: no such platform"


def test_an_archive_of_nvdebug_with_the_bmcs_password_is_not_gathered(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.program("nvdebug", NVDEBUG)
    faulty.site(nvdebug={"program": str(faulty.bin / "nvdebug"), "platform": "DGX", "baseboard": "x"})
    monkeypatch.setenv("RMA_TEXT", '{"Password": "PASSWORD"}')
    case, document = faulty.leave(without=FAST)
    assert by_name(document)["nvdebug"]["reason"] == (
        "nvdebug_logs.zip: R1.json - Expected: no password of the node or its BMC, as LogSanitization promises Actual: "
        "one. Nothing of it is kept. Run nvdebug by hand, take the password out, or change it first."
    )
    assert not any(name.startswith("nvdebug/") for name in inside(case))
    assert not list(case.base.rglob("nvdebug_logs.zip"))
