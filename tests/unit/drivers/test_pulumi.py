from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi import automation as auto

from rackready.drivers import pulumi as driver
from rackready.drivers.pulumi import (
    EngineError,
    StackBusyError,
    child_environment,
    environment,
    free_lock,
    last_words,
    open_stack,
    passphrase_file,
    require_engine,
    stack_name,
)
from rackready.paths import EnvPaths, private_dir, shipped
from rackready.stacks import shell

ROOT = Path(__file__).resolve().parents[3]


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
    assert "PULUMI_CONFIG_PASSPHRASE" not in variables  # the engine takes it before the file, even empty


def test_a_passphrase_of_the_caller_never_reaches_the_engine(
    paths: EnvPaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "theirs")
    monkeypatch.setenv("THEIR_PROXY", "kept")
    variables = child_environment(paths)
    assert "PULUMI_CONFIG_PASSPHRASE" not in variables
    assert variables["PULUMI_CONFIG_PASSPHRASE_FILE"] == str(passphrase_file(paths))
    assert variables["THEIR_PROXY"] == "kept"
    monkeypatch.setattr(shell, "project_root", lambda: paths.root)
    monkeypatch.setattr("sys.argv", ["shell", "t"])
    shell.main()
    assert capsys.readouterr().out.splitlines()[0] == "unset PULUMI_CONFIG_PASSPHRASE"


@pytest.fixture
def engine_here(paths: EnvPaths, monkeypatch: pytest.MonkeyPatch) -> EnvPaths:
    """The real engine, as in a child process of ours."""
    tools = ROOT / ".rackready/tools"
    if not (tools / "bin/pulumi").exists():
        pytest.skip("no Pulumi engine is installed: run `make setup`")
    private_dir(paths.root / ".rackready")
    (paths.root / ".rackready/tools").symlink_to(tools)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.setenv("PATH", driver.search_path(paths.root))
    return paths


def works(stack: auto.Stack) -> bool:
    try:
        stack.up()
    except auto.CommandError as error:
        if "incorrect passphrase" not in str(error):
            raise
        return False
    return True


def test_a_secret_of_a_stack_needs_the_passphrase_of_the_file(engine_here: EnvPaths) -> None:
    stack = open_stack(engine_here, "rack01", lambda: pulumi.export("token", pulumi.Output.secret("hunter2")))
    assert works(stack)
    stack.workspace.env_vars = {**stack.workspace.env_vars, "PULUMI_CONFIG_PASSPHRASE": ""}
    assert not works(stack)
    passphrase_file(engine_here).write_text("another")
    again = open_stack(engine_here, "rack01", lambda: None)
    assert not works(again)


def test_a_stack_of_an_earlier_release_opens_and_gets_our_passphrase(engine_here: EnvPaths) -> None:
    """They were made with the empty passphrase and hold no secret."""

    def program() -> None:
        pulumi.export("power", "On")

    old = open_stack(engine_here, "rack01", program)
    work = Path(old.workspace.work_dir)
    empty = {**old.workspace.env_vars, "PULUMI_CONFIG_PASSPHRASE": ""}
    old.workspace.env_vars = empty
    (work / "Pulumi.t-rack01.yaml").unlink()
    assert works(old)
    (work / "passphrase.sha256").unlink()
    stack = open_stack(engine_here, "rack01", program)
    assert works(stack)
    assert works(open_stack(engine_here, "rack01", program))
    stack.workspace.env_vars = empty
    assert not works(stack)


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


def locked_by(pid: int, host: str = socket.gethostname()) -> auto.ConcurrentUpdateError:
    error = auto.ConcurrentUpdateError.__new__(auto.ConcurrentUpdateError)
    Exception.__init__(
        error, f"error: the stack is currently locked by 1 lock(s)\n  created by root@{host} (pid {pid}) at now"
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


def test_the_lock_of_another_host_is_respected() -> None:
    """The folder may be on shared storage: a process id of another host says nothing here."""
    stack: Any = FakeStack()
    error = locked_by(dead_pid(), "head2")
    with pytest.raises(
        StackBusyError, match=r"Actual: locked by pulumi on head2, pid \d+\. Wait until it has ended on"
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
