"""Start, stop and signal the daemons, by their pid files: a process counts only when it is ours."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rackready import files
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.nodes import BootServiceError
from rackready.drivers.boot_service.programs import Program, said
from rackready.drivers.marked_processes import VARIABLE, name_of
from rackready.drivers.process import start_ticks

_START_S = 30
_PID_FILE_S = 5.0
_STOP_S = 10.0
_RELOAD_S = 10.0
_SLACK_S = 2.0
"""A process begins this much after its pid file at the latest: boot time and clock are read one after the other."""


def pid_of(program: Program) -> int:
    """Return the daemon's process id, 0 when it does not run.

    A pid that another process has by now is recognised: it has another program or configuration, or began after the
    pid file was written.
    """
    try:
        text, written = program.pid_file.read_text(encoding="ascii"), program.pid_file.stat().st_mtime
        pid = int(text)
    except (FileNotFoundError, ValueError):
        return 0
    ours = name_of(pid) == program.name and str(program.conf).encode() in _command(pid)
    return pid if ours and _began(pid) <= written + _SLACK_S else 0


def start(program: Program, layout: Layout) -> None:
    """Start a daemon; it leaves our session and does not carry our mark, so that no clean-up of a run ends it.

    Raises BootServiceError with its own words when it refuses.
    """
    env = {key: value for key, value in os.environ.items() if key != VARIABLE} | {"LC_ALL": "C"}
    program.pid_file.unlink(missing_ok=True)
    with (layout.logs / f"{program.name}-start.log").open("w+", encoding="utf-8", errors="replace") as log:
        # A file, not a pipe: the daemon would keep a pipe open, and we would wait for its end.
        ended = subprocess.run(
            program.start,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            cwd="/",
            start_new_session=True,
            timeout=_START_S,
            check=False,
        )
        log.seek(0)
        words = said(subprocess.CompletedProcess(program.start, ended.returncode, log.read(), ""))
    if ended.returncode != 0 or not _until(lambda: pid_of(program) > 0, _PID_FILE_S):
        raise BootServiceError(
            "boot service",
            program.name,
            expected="it starts",
            actual=words,
            next_step=f"Look at {layout.logs}, then run `rackready boot-service start` again.",
        )
    remember(program, layout)


def stop(program: Program, layout: Layout) -> bool:
    """Stop a daemon, and return whether it ran. Raises BootServiceError when it is another user's."""
    pid = pid_of(program)
    if pid:
        _signal(program, pid, signal.SIGTERM)
        if not _until(lambda: pid_of(program) != pid, _STOP_S):
            _signal(program, pid, signal.SIGKILL)
            _until(lambda: pid_of(program) != pid, _STOP_S)
    program.pid_file.unlink(missing_ok=True)
    _memory(program, layout).unlink(missing_ok=True)
    return bool(pid)


def reload(program: Program, layout: Layout) -> None:
    """Make a running daemon read its files again, and wait until it acts by them.

    Raises BootServiceError when it keeps the old ones.
    """
    pid = pid_of(program)
    if not pid:
        return
    taken = _hosts_read(layout) if program.name == "dnsmasq" else partial(_replaced, pid, _children(pid))
    _signal(program, pid, signal.SIGHUP)
    if _until(taken, _RELOAD_S):
        return
    refused = "; ".join(str(item.actual) for item in program.refusal())
    raise BootServiceError(
        "boot service",
        f"{program.name} does not take its new configuration",
        expected=f"taken within {_RELOAD_S:.0f} s",
        actual=refused or "the old one",
        next_step=f"Look at {layout.logs}, then run the same command again.",
    )


def _hosts_read(layout: Layout) -> Callable[[], bool]:
    """Return a function that says whether dnsmasq has read every file of armed nodes since now: its log names each."""
    log = layout.dnsmasq_log
    begin = log.stat().st_size if log.exists() else 0
    wanted = [f"{path}\n".encode() for path in layout.hosts.glob("[!.]*")]

    def done() -> bool:
        with log.open("rb") as stream:
            stream.seek(begin)
            fresh = stream.read()
        return all(each in fresh for each in wanted)

    return done


def current(program: Program, layout: Layout) -> bool:
    """Whether a daemon runs with the present configuration."""
    try:
        return pid_of(program) > 0 and _memory(program, layout).read_text(encoding="ascii") == _digest(program, layout)
    except FileNotFoundError:
        return False


def began_configured(program: Program, layout: Layout) -> bool:
    """Whether a daemon runs that began after its present configuration was written, whoever started it."""
    pid = pid_of(program)
    return pid > 0 and _began(pid) > max(path.stat().st_mtime for path in _read_at_start(program, layout))


def remember(program: Program, layout: Layout) -> None:
    """Record the configuration with which a daemon was started."""
    files.replace(_memory(program, layout), _digest(program, layout).encode())


def _memory(program: Program, layout: Layout) -> Path:
    return layout.run / f"{program.name}.started-with"


def _digest(program: Program, layout: Layout) -> str:
    """Return the hash of everything that a daemon reads only at its start."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in _read_at_start(program, layout))).hexdigest()


def _read_at_start(program: Program, layout: Layout) -> list[Path]:
    read = [program.conf, *([layout.tls / "server.pem"] if program.name == "nginx" else [])]
    return [path for path in read if path.exists()]


def _replaced(master: int, old: set[int]) -> bool:
    """Whether nginx has new workers, and the old ones are gone or only finish what they began."""
    now = _children(master)
    return bool(now - old) and all(b"shutting down" in _command(pid) or pid not in _children(master) for pid in old)


def _children(pid: int) -> set[int]:
    try:
        return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()}
    except OSError:
        return set()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _began(pid: int) -> float:
    """Return when a process began, in seconds since 1970."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + start_ticks(pid) / os.sysconf("SC_CLK_TCK")


def _signal(program: Program, pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise BootServiceError(
            "boot service",
            f"{program.name}, pid {pid}",
            expected="our user may signal it",
            actual="another user's process",
            next_step="Run the command as the user who started the boot service.",
        ) from error


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
