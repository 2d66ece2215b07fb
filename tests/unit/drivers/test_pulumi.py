from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from pulumi import automation as auto

from rackready.drivers import pulumi as driver
from rackready.drivers.pulumi import (
    EngineError,
    StackBusyError,
    environment,
    free_lock,
    last_words,
    passphrase_file,
    require_engine,
    stack_name,
)
from rackready.paths import EnvPaths, shipped


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    return EnvPaths(tmp_path, "t")


def test_the_passphrase_is_made_once_and_private(paths: EnvPaths) -> None:
    first = passphrase_file(paths)
    text = first.read_text()
    assert len(text) >= 32
    assert first.stat().st_mode & 0o777 == 0o600
    assert passphrase_file(paths).read_text() == text
    assert [path.name for path in first.parent.iterdir()] == ["pulumi"]


def test_two_who_come_first_at_once_agree_on_the_passphrase(paths: EnvPaths) -> None:
    barrier = threading.Barrier(2)
    seen: list[str] = []

    def read() -> None:
        barrier.wait()
        seen.append(passphrase_file(paths).read_text())

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_nothing_of_the_environment_is_told_to_anybody_else(paths: EnvPaths) -> None:
    variables = environment(paths, campaign="c1")
    assert variables["PULUMI_BACKEND_URL"] == f"file://{paths.pulumi}"
    assert variables["PULUMI_SKIP_UPDATE_CHECK"] == "true"
    assert variables["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"
    assert variables["PULUMI_HOME"].startswith(str(paths.state))
    assert variables["RACKREADY_CAMPAIGN"] == "c1"
    secret = passphrase_file(paths).read_text()
    assert secret not in str(variables)


@pytest.mark.parametrize(("elsewhere", "command"), [(False, "make setup"), (True, "rackready setup")])
def test_without_an_engine_the_next_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool, command: str
) -> None:
    """`make setup` would install it below the checkout, which a site repository elsewhere does not search."""
    monkeypatch.setattr(driver, "search_path", lambda _root: str(tmp_path))
    with pytest.raises(
        EngineError, match=rf"Pulumi engine - Expected: `pulumi` on the PATH .* Actual: none\. Run `{command}`"
    ):
        require_engine(tmp_path if elsewhere else shipped())


def test_without_our_provider_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pulumi").write_text("#!/bin/sh\n")
    (tmp_path / "pulumi").chmod(0o755)
    monkeypatch.setattr(driver, "search_path", lambda _root: str(tmp_path))
    with pytest.raises(EngineError, match=r"pulumi-resource-rackready.* Actual: none\. Run `make setup`"):
        require_engine(tmp_path)


def test_stacks_are_named_by_environment_and_rack() -> None:
    assert stack_name("sim", "rack01") == "sim-rack01"


class FakeStack:
    name = "t-rack01"
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def locked_by(pid: int) -> auto.ConcurrentUpdateError:
    error = auto.ConcurrentUpdateError.__new__(auto.ConcurrentUpdateError)
    Exception.__init__(
        error, f"error: the stack is currently locked by 1 lock(s)\n  created by root@host (pid {pid}) at now"
    )
    return error


def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_the_lock_of_a_dead_engine_is_taken_away() -> None:
    stack: Any = FakeStack()
    error = locked_by(dead_pid())
    free_lock(stack, error)
    assert stack.cancelled == 1


def test_the_lock_of_a_reused_pid_is_taken_away() -> None:
    stack: Any = FakeStack()
    error = locked_by(os.getpid())
    free_lock(stack, error)
    assert stack.cancelled == 1


def test_the_lock_of_a_living_engine_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    stack: Any = FakeStack()
    monkeypatch.setattr(driver, "_is_engine", lambda _pid: True)
    error = locked_by(4242)
    with pytest.raises(
        StackBusyError, match=r"Pulumi stack t-rack01 - Expected: not in use Actual: locked by pulumi, pid 4242\. Wait"
    ):
        free_lock(stack, error)
    assert stack.cancelled == 0


def test_an_engine_that_was_killed_and_not_waited_for_is_dead(tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(program), "60"])
    try:
        assert driver._is_engine(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not driver._is_engine(child.pid)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("output", "words"),
    [("a\nerror: no space left on device\nb\n", "no space left on device"), ("a\nb\n", "b"), ("", "no output")],
)
def test_the_line_that_says_what_went_wrong(output: str, words: str) -> None:
    assert last_words(output) == words
