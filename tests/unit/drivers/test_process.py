"""Children lead recorded sessions and carry a mark; a later run ends exactly what a killed run left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.drivers import marked_processes, process
from rackready.ledger.store import Ledger
from tests.waiting import until


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


@pytest.fixture(autouse=True)
def no_stop() -> Iterator[None]:
    process.STOP.clear()
    yield
    process.STOP.clear()


def alive(pid: int) -> bool:
    return (
        process.start_ticks(pid) != 0 and Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split(") ")[1][0] != "Z"
    )


def time_out_after_a_line(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of the time-out jump by 1000 s after the child's first line, however slow the machine is.

    It jumps only once the limit has been set, that is once the loop sleeps: a line that comes before would move the
    limit as well.
    """
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (1000 if lines and slept else 0), sleep=sleep)
    monkeypatch.setattr(process, "time", clock)


def test_output_goes_to_the_log_and_to_the_listener(tmp_path: Path, ledger: Ledger) -> None:
    lines: list[str] = []
    result = process.run_child(
        ["sh", "-c", "echo one; echo two >&2; exit 3"], log=tmp_path / "x.log", ledger=ledger, on_line=lines.append
    )
    assert result.returncode == 3
    assert lines == ["one", "two"]
    assert (tmp_path / "x.log").read_text(encoding="utf-8") == "one\ntwo\n"
    assert (tmp_path / "x.log").stat().st_mode & 0o077 == 0
    assert ledger.open_children() == []


def test_stdin_reaches_the_child(tmp_path: Path) -> None:
    lines: list[str] = []
    process.run_child(["cat"], log=tmp_path / "x.log", stdin_text="secret request\n", on_line=lines.append)
    assert lines == ["secret request"]


def test_time_out_ends_the_whole_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    time_out_after_a_line(lines, monkeypatch)
    result = process.run_child(
        ["sh", "-c", "sleep 300 & echo $!; sleep 300"], log=tmp_path / "x.log", timeout_s=200, on_line=lines.append
    )
    assert result.timed_out
    assert not alive(int(lines[0]))


@pytest.fixture
def heeded() -> Iterator[None]:
    """Handle interrupts, as the controller does: what a process ignores (pytest's workers do), its children ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_stop_asks_first_and_raises_interrupted(tmp_path: Path) -> None:
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        process.STOP.set()

    with pytest.raises(process.Interrupted):
        process.run_child(
            ["sh", "-c", "trap 'echo asked; exit 0' INT; echo up; while :; do sleep 0.05; done"],
            log=tmp_path / "x.log",
            on_line=hear,
        )
    assert lines == ["up", "asked"]


HANDLER = """
import signal, sys
from pathlib import Path
from rackready.drivers import process
signal.signal(signal.SIGINT, lambda *_: process.STOP.set())
try:
    process.run_child(["sh", "-c", "trap 'echo asked; exit 0' INT; echo up; while :; do sleep 0.05; done"],
                      log=Path(sys.argv[1]), on_line=lambda line: print(line, flush=True))
except process.Interrupted:
    print("interrupted")
"""


def test_child_is_asked_also_when_the_controller_was_started_with_interrupts_ignored(tmp_path: Path) -> None:
    """What a process ignores, its children would ignore too, and a shell could not even trap it."""
    argv = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", HANDLER, str(tmp_path / "x.log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "up\n"
        controller.send_signal(signal.SIGINT)
        assert controller.communicate(timeout=120)[0] == "asked\ninterrupted\n"


def test_no_child_begins_after_stop(tmp_path: Path) -> None:
    process.STOP.set()
    with pytest.raises(process.Interrupted):
        process.run_child(["touch", str(tmp_path / "made")], log=tmp_path / "x.log")
    assert not (tmp_path / "made").exists()


PARENT = """
import sys
from pathlib import Path
from rackready.drivers.process import run_child
from rackready.ledger.store import Ledger
run_child(["sh", "-c", "sleep 300 & echo $! ; sleep 300"], log=Path(sys.argv[2]),
          ledger=Ledger.open(Path(sys.argv[1])), what="install", on_line=lambda line: print(line, flush=True))
"""


def test_reap_ends_what_a_killed_controller_left(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(database), str(tmp_path / "x.log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    orphan = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert alive(orphan), "the test is void when the orphan dies with its parent"
    ended = process.reap(Ledger.open(database))
    assert len(ended) == 1
    assert ended[0].startswith("ended what an earlier run left behind: install (session ")
    until(lambda: not alive(orphan))
    assert process.reap(Ledger.open(database)) == []


def test_reap_spares_a_stranger_with_a_reused_pid(ledger: Ledger) -> None:
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        ledger.child_begun(stranger.pid, process.start_ticks(stranger.pid) - 5, process.boot_id(), "install")
        assert process.reap(ledger) == []
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_child_is_gone_when_its_session_is_and_a_reused_pid_is_a_stranger(ledger: Ledger) -> None:
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        ticks = process.start_ticks(child.pid)
        for begun, boot in ((ticks, process.boot_id()), (ticks - 5, process.boot_id()), (ticks - 5, "another-boot")):
            ledger.child_begun(child.pid, begun, boot, "install")
        first, reused, _elsewhere = (row["id"] for row in ledger.open_children())
        assert process.gone(ledger.open_children()) == [reused]
        child.kill()
        child.wait()
        assert process.gone(ledger.open_children()) == [first, reused]
    finally:
        child.kill()
        child.wait()


def test_reap_spares_everything_of_another_boot(ledger: Ledger) -> None:
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        ledger.child_begun(stranger.pid, process.start_ticks(stranger.pid), "another-boot", "install")
        assert process.reap(ledger) == []
        assert alive(stranger.pid)
    finally:
        os.kill(stranger.pid, signal.SIGKILL)
        stranger.wait()


ESCAPE = "setsid sh -c 'echo $$; sleep 300' & wait"
"""A process that leaves the session of its parent, as Ansible's workers do."""


def test_time_out_ends_also_what_left_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    time_out_after_a_line(lines, monkeypatch)
    assert process.run_child(
        ["sh", "-c", ESCAPE], log=tmp_path / "x.log", timeout_s=200, on_line=lines.append
    ).timed_out
    assert not alive(int(lines[0]))


def test_end_of_a_child_ends_also_what_left_its_session(tmp_path: Path) -> None:
    lines: list[str] = []
    script = f"({ESCAPE.replace('sleep', 'touch up; sleep')}) & until [ -e up ]; do sleep 0.05; done"
    result = process.run_child(
        ["sh", "-c", script], log=tmp_path / "x.log", cwd=tmp_path, timeout_s=200, on_line=lines.append
    )
    assert result.returncode == 0
    assert not alive(int(lines[0]))


def test_second_interrupt_ends_also_what_left_the_session(tmp_path: Path) -> None:
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        process.kill_all_children()

    assert not process.run_child(["sh", "-c", ESCAPE], log=tmp_path / "x.log", timeout_s=200, on_line=hear).timed_out
    assert not alive(int(lines[0]))


def test_a_child_that_ends_leaves_what_its_neighbour_started(tmp_path: Path, ledger: Ledger) -> None:
    """Two batches run side by side: each has a mark of its own."""
    lines: list[str] = []
    neighbour = threading.Thread(
        target=process.run_child,
        args=(["sh", "-c", ESCAPE],),
        kwargs={"log": tmp_path / "x.log", "timeout_s": 200, "on_line": lines.append, "ledger": ledger},
    )
    neighbour.start()
    until(lambda: lines)
    process.run_child(["true"], log=tmp_path / "y.log", ledger=ledger)
    assert alive(int(lines[0]))
    process.kill_all_children()
    neighbour.join()


def killed_with_a_stray(database: Path, log: Path) -> int:
    """Return the pid of a process that left the session of a child whose controller was killed."""
    script = PARENT.replace("sleep 300 & echo $! ; sleep 300", ESCAPE)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(database), str(log)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    stray = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert alive(stray), "the test is void when the stray dies with its parent"
    return stray


def test_reap_ends_what_left_its_session(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"
    stray = killed_with_a_stray(database, tmp_path / "x.log")
    ended = process.reap(Ledger.open(database))
    assert ended[1] == "ended what an earlier run left behind: 2 processes that had left their session (sh, sleep)"
    assert not alive(stray)
    assert process.reap(Ledger.open(database)) == []


def test_reap_spares_what_works_for_another_checkout(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stray = killed_with_a_stray(tmp_path / "other" / "state.sqlite", tmp_path / "x.log")
    try:
        assert process.reap(Ledger.open(tmp_path / "state.sqlite")) == []
        assert alive(stray)
    finally:
        process.reap(Ledger.open(tmp_path / "other" / "state.sqlite"))
    assert not alive(stray)


@pytest.mark.parametrize(("folder", "ended"), [("", True), ("-other", False)])
def test_reap_ends_shared_ssh_connections_of_this_checkout_alone(
    tmp_path: Path,
    ledger: Ledger,
    folder: str,
    ended: bool,  # noqa: FBT001 - expected
) -> None:
    """OpenSSH writes its title over its environment, mark included."""
    title = f"ssh: {tmp_path}{folder}/cp/1-2-0/0a1b [mux]"
    master = subprocess.Popen(["bash", "-c", f"exec -a '{title}' sleep 300"], start_new_session=True)
    try:
        until(lambda: Path(f"/proc/{master.pid}/cmdline").read_bytes().startswith(b"ssh: "))
        said = "ended what an earlier run left behind: 1 process that had left its session (sleep)"
        assert process.reap(ledger) == ([said] if ended else [])
        assert alive(master.pid) is not ended
    finally:
        master.kill()
        master.wait()


@pytest.mark.parametrize("value", ["", "{mark}0", "{mark}0.0123456789ab", "x{mark}"])
def test_only_this_very_mark_counts(tmp_path: Path, value: str) -> None:
    mark = marked_processes.project_mark(tmp_path / "state.sqlite")
    stranger = subprocess.Popen(
        ["sleep", "300"], env={**os.environ, marked_processes.VARIABLE: value.format(mark=mark)}
    )
    try:
        assert stranger.pid not in marked_processes.marked(mark)
    finally:
        stranger.kill()
        stranger.wait()


def test_whoever_looks_is_not_found_itself_nor_who_started_it(tmp_path: Path) -> None:
    mark = marked_processes.child_mark(marked_processes.project_mark(tmp_path / "state.sqlite"))
    look = (
        f"import os; from rackready.drivers.marked_processes import marked; found = marked({mark!r}); "
        "print(len(found), {os.getpid(), os.getppid()} & set(found))"
    )
    script = f'sleep 300 & "{sys.executable}" -c "$LOOK"; kill $!'
    env = {**os.environ, marked_processes.VARIABLE: mark, "LOOK": look, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "1 set()\n", done.stderr
