"""Forked programs begin and end as started ones do: code, signal, output, environment, and what takes too long."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import forked

PROGRAM = """import os, signal, sys, time
print(__name__, sys.argv[1:], os.environ["SAID"], os.environ.get("PATH"), sys.stdin.read(), flush=True)
print("an error", file=sys.stderr)
if sys.argv[1] == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("ready", flush=True)
    time.sleep(60)
sys.exit(sys.argv[2] if sys.argv[1] == "text" else int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that prints what it was given, and ends as it is told."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.mark.parametrize("on", [[], ["sh", "-c", 'exec "$@"', "sh"]], ids=["forked", "started"])
def test_it_has_its_arguments_and_environment_and_tells_its_code(program: Path, on: list[str]) -> None:
    child = forked.start([program, "3", "b"], env={"SAID": "here"}, on=on)
    text, _ = child.communicate(timeout=60)
    assert (text, child.returncode) == ("__main__ ['3', 'b'] here None \nan error\n", 3)
    assert child.poll() == child.wait() == 3


@pytest.mark.parametrize("on", [[], ["sh", "-c", 'exec "$@"', "sh"]], ids=["forked", "started"])
def test_output_and_errors_go_to_files_and_a_text_is_code_1(program: Path, tmp_path: Path, on: list[str]) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as to, err.open("w") as errors:
        child = forked.start([program, "text", "no disk"], out=to, err=errors, env={"SAID": ""}, on=on)
    assert child.wait(60) == 1
    assert out.read_text() == "__main__ ['text', 'no disk']  None \n"
    assert err.read_text() == "an error\nno disk\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 7), (signal.SIGINT, -2)])
def test_a_signal_reaches_it(program: Path, tmp_path: Path, number: int, code: int) -> None:
    out = tmp_path / "out"
    with out.open("w") as to:
        child = forked.start([program, "wait"], out=to, env={"SAID": ""})
    _until_ready(out)
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.send_signal(number)
    assert child.wait(60) == code
    child.kill()
    assert not Path(f"/proc/{child.pid}/stat").exists(), "nobody has to wait for it"


def test_output_that_does_not_end_in_time_is_said(program: Path) -> None:
    child = forked.start([program, "wait"], env={"SAID": ""})
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=0.2)
    finally:
        child.kill()
    assert child.wait(60) == -signal.SIGKILL


def test_two_run_side_by_side(program: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "a", tmp_path / "b"]
    children = []
    for out in outs:
        with out.open("w") as to:
            children.append(forked.start([program, "wait"], out=to, env={"SAID": out.name}))
    for out in outs:
        _until_ready(out)
    assert len({child.pid for child in children} | {os.getpid()}) == 3
    for child in reversed(children):
        child.terminate()
    assert [child.wait(60) for child in children] == [7, 7]


def _until_ready(out: Path) -> None:
    deadline = time.monotonic() + 300
    while "ready" not in out.read_text():
        assert time.monotonic() < deadline, out.read_text()
        time.sleep(0.01)
