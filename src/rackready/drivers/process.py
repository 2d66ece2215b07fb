"""Child processes, each in its own session and recorded, so that a later run can end them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rackready.drivers.marked_processes import (
    VARIABLE,
    child_mark,
    end_all,
    marked,
    masters,
    name_of,
    project_mark,
    stat_fields,
)
from rackready.drivers.stop_flag import StopFlag
from rackready.ledger.store import Ledger

_log = logging.getLogger(__name__)

STOP = StopFlag()
"""Set by the first SIGINT: no new work begins, children are asked to stop."""

OUTPUT_LIMIT = 32 << 20
"""Bytes of output after which a command is ended, here and over SSH; a captured output may be as long."""

_live: dict[int, str] = {}
"""Session leader to the mark of everything that it started."""

_under_way: list[int] = []
_live_lock = threading.RLock()
"""Reentrant: the handler of a second SIGINT takes it, too, and may interrupt the thread that holds it."""
_GRACE_S = 20.0


class Interrupted(BaseException):
    """The operator asked to stop. A BaseException, so that the workflow engine records no result of the step."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended; ``returncode`` is negative for a signal."""

    returncode: int
    timed_out: bool
    seconds: float


@contextmanager
def working() -> Iterator[None]:
    """Mark work that cleans up after itself when it is asked to stop: the controller waits for its end."""
    with _live_lock:
        _under_way.append(1)
    try:
        yield
    finally:
        with _live_lock:
            _under_way.pop()


def busy() -> bool:
    """Whether any work is under way."""
    with _live_lock:
        return bool(_under_way)


def check_stop() -> None:
    """Raise Interrupted when the operator asked to stop."""
    if STOP.is_set():
        raise Interrupted


def run_child(  # noqa: PLR0913 - what a child process has
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin_text: str | None = None,
    timeout_s: float | None = None,
    on_line: Callable[[str], None] | None = None,
    ledger: Ledger | None = None,
    what: str = "",
) -> ChildResult:
    """Run a program to its end; its output goes to ``log`` (mode 0600) and line by line to ``on_line``.

    On STOP the child gets SIGINT, and its whole session SIGKILL after 20 s; then Interrupted is raised. At the time-out
    the whole session is killed and ``timed_out`` is set. Raises OSError when the program cannot be started.
    """
    check_stop()
    begun = time.monotonic()
    mark = child_mark(project_mark(ledger.home) if ledger else "unrecorded")
    with _private(log) as sink:
        gate_read, gate_write = os.pipe()
        try:
            child = _spawn(argv, gate_read, cwd, {**(os.environ if env is None else env), VARIABLE: mark}, stdin_text)
        finally:
            os.close(gate_read)
        try:
            row = ledger.child_begun(child.pid, start_ticks(child.pid), boot_id(), what or argv[0]) if ledger else None
            with _live_lock:
                _live[child.pid] = mark
            os.write(gate_write, b"\n")
            _log.info("began %s (pid %d), output in %s", what or argv[0], child.pid, log)
        finally:
            os.close(gate_write)
        try:
            timed_out = _drive(child, mark, sink, stdin_text, timeout_s, on_line)
        finally:
            _end(child.pid, mark)
            child.wait()
            with _live_lock:
                _live.pop(child.pid, None)
            if ledger and row is not None:
                ledger.child_ended(row)
    _log.info(
        "%s (pid %d) ended with %d after %.1f s", what or argv[0], child.pid, child.returncode, time.monotonic() - begun
    )
    if STOP.is_set():
        raise Interrupted
    return ChildResult(child.returncode, timed_out, time.monotonic() - begun)


def _spawn(
    argv: Sequence[str], gate: int, cwd: Path | None, env: Mapping[str, str], stdin_text: str | None
) -> subprocess.Popen[str]:
    """Start the program behind a gate: it runs only after its record is committed, and never if we die before that."""
    wrapper = ["/bin/sh", "-c", f'read -r _ < /dev/fd/{gate} || exit 125; exec "$@"', "sh"]
    return subprocess.Popen(
        [*wrapper, *argv],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.PIPE if stdin_text is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(gate,),
    )


def _private(log: Path) -> IO[str]:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8")


def _drive(
    child: subprocess.Popen[str],
    mark: str,
    sink: IO[str],
    stdin_text: str | None,
    timeout_s: float | None,
    on_line: Callable[[str], None] | None,
) -> bool:
    reader = threading.Thread(target=_pump, args=(child, sink, on_line), daemon=True)
    reader.start()
    if stdin_text is not None and child.stdin is not None:
        try:
            child.stdin.write(stdin_text)
            child.stdin.close()
        except BrokenPipeError:
            sink.write("(the child closed its input early)\n")
    deadline = time.monotonic() + timeout_s if timeout_s else None
    asked_at: float | None = None
    timed_out = False
    while child.poll() is None:
        now = time.monotonic()
        if STOP.is_set() and asked_at is None:
            asked_at = now
            child.send_signal(signal.SIGINT)
        if asked_at is not None and now > asked_at + _GRACE_S:
            break
        if deadline is not None and now > deadline:
            timed_out = True
            break
        time.sleep(0.05)
    _end(child.pid, mark)  # before reading the rest of its output: leftovers hold the other end of the pipe
    child.wait()
    reader.join(timeout=5)
    return timed_out


def _pump(child: subprocess.Popen[str], sink: IO[str], on_line: Callable[[str], None] | None) -> None:
    if child.stdout is None:
        return
    with child.stdout as stream:
        for line in stream:
            sink.write(line)
            sink.flush()
            if on_line:
                on_line(line.rstrip("\n"))


def kill_all_children() -> None:
    """SIGKILL every live child of this process with everything that it started (second SIGINT)."""
    with _live_lock:
        live = list(_live.items())
    for pid, mark in live:
        _end(pid, mark)


def end_session(session: int) -> None:
    """SIGKILL every process of a session, those in other process groups included."""
    end_all(lambda: session_members(session))


def _end(session: int, mark: str) -> None:
    """SIGKILL a session and the processes that left it: Ansible's workers create sessions of their own."""
    end_all(lambda: [*session_members(session), *marked(mark)])


def session_members(session: int) -> list[int]:
    """Return the processes of a session, zombies left out."""
    out = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = stat_fields(int(entry.name))
        if fields and int(fields[3]) == session and fields[0] != "Z":
            out.append(int(entry.name))
    return out


def start_ticks(pid: int) -> int:
    """Return when a process began (clock ticks since boot, field 22 of its stat), 0 when it is gone."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def boot_id() -> str:
    """Return the running kernel's boot id."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


_ENDED = "ended what an earlier run left behind: "


def reap(ledger: Ledger) -> list[str]:
    """End what a dead controller left running, and return a line for people about each.

    Call it only while holding the controller lock. It ends recorded sessions, also those whose leader is gone, and
    processes that left their session. A start time identifies a reused pid, and a session number that another leader
    uses. Processes that left their session have this project's mark in their environment; a shared SSH connection has
    its socket below the state folder.
    """
    ended = []
    for child in ledger.open_children():
        if child["boot_id"] == boot_id():
            members = _members(child)
            if members:
                end_session(child["pid"])
                ended.append(f"{_ENDED}{child['what']} (session {child['pid']}, {len(members)} processes)")
        elif machine := ledger.machine_of(child["boot_id"]):
            ended.append(
                f"{child['what']} was not ended: it was started on {machine}. Nodes refuse its older token; "
                "the next controller there ends it"
            )
        ledger.child_ended(child["id"])
    return ended + _end_strays(ledger.home)


def gone(children: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the rows, of those of this machine since its start, of whose session no process is left."""
    here = boot_id()
    return [child["id"] for child in children if child["boot_id"] == here and not _members(child)]


def _members(child: Mapping[str, Any]) -> list[int]:
    """Return what is left of a recorded session: none where another leader uses its number."""
    ticks = start_ticks(child["pid"])
    members = session_members(child["pid"]) if ticks in {0, child["start_ticks"]} else []
    return [pid for pid in members if start_ticks(pid) >= child["start_ticks"]]


def _end_strays(database: Path) -> list[str]:
    project = project_mark(database)

    def find() -> list[int]:
        return [*marked(project), *masters(database.parent)]

    strays = find()
    if not strays:
        return []
    names = ", ".join(sorted({name_of(pid) or "gone by now" for pid in strays}))
    end_all(find)
    what = (
        "1 process that had left its session"
        if len(strays) == 1
        else f"{len(strays)} processes that had left their session"
    )
    return [f"{_ENDED}{what} ({names})"]
