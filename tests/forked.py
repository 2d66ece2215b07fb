"""Programs of tests as processes that begin at once: forked from a server that has imported what they import.

A controller imports for a second, and tests of kills start hundreds. A forked program is a process of its own, with its
own arguments, environment and files; it runs its file as ``__main__`` and ends as any Python does. It works in the
checkout unless another folder is given, in the session of its server, and /proc shows the server's arguments and
environment as its own. Its modules are loaded already: tests that start a fresh process see an import that fails only
there.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = (
    "tests.unit.campaign.fake_site",
    "tests.unit.campaign.fake_workers",
    "tests.unit.campaign.upgrade.fake_fleet",
)
"""What the server imports: another program imports for itself what these do not."""
COMMAND = ROOT / "src/rackready/__main__.py"
_REQUEST = 1 << 17
"""Bytes of a request at most: arguments and an environment, about 10 KiB."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGTERM", "SIGCHLD", "SIGPIPE"))


class Forked:
    """A forked program: what tests use of ``subprocess.Popen``, with the same meaning."""

    def __init__(self, pid: int, ended: int, stdout: IO[str] | None) -> None:
        self.pid, self.stdout, self.returncode = pid, stdout, None
        self._ended = ended

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the program runs."""
        self._look(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the program has ended. Raises ``subprocess.TimeoutExpired``."""
        self._look(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float = 120.0) -> tuple[str, None]:
        """Return what the program printed until it closed its output, and wait for it."""
        assert self.stdout is not None
        until, parts = time.monotonic() + timeout, []
        while select.select([self.stdout], [], [], max(until - time.monotonic(), 0.0))[0]:
            if not (part := os.read(self.stdout.fileno(), 65536)):
                self.wait(max(until - time.monotonic(), 0.0))
                self.stdout.close()
                return b"".join(parts).decode(), None
            parts.append(part)
        raise subprocess.TimeoutExpired("a forked program", timeout, b"".join(parts))

    def send_signal(self, number: int) -> None:
        """Send a signal to the program, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended in between
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the program to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            told = os.read(self._ended, 20)
            if not told:  # its server was killed
                os.kill(self.pid, signal.SIGKILL)
                raise RuntimeError(f"the server of forked programs ended, and nobody knows how {self.pid} ends")
            self.returncode = os.waitstatus_to_exitcode(int(told))
            os.close(self._ended)


Child: TypeAlias = "Forked | subprocess.Popen[str]"


def start(
    argv: Sequence[str | Path],
    *,
    out: IO[str] | None = None,
    err: IO[str] | None = None,
    env: Mapping[str, str] | None = None,
    on: Sequence[str] = (),
    cwd: Path = ROOT,
) -> Child:
    """Start a Python file with its arguments. Programs ``on`` start it as an ordinary process, in a machine or a shell.

    Its output goes to ``out``, or to a pipe that tests read; its errors to ``err``, or where its output goes.
    """
    words = [str(word) for word in argv]
    env = dict(os.environ if env is None else env)
    if on:
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        streams = {"stdin": subprocess.DEVNULL, "stdout": out or pipe, "stderr": err or both}
        return subprocess.Popen([*on, sys.executable, *words], env=env, cwd=cwd, text=True, **streams)
    ended, end = os.pipe()
    ours, theirs = os.pipe() if out is None else (None, os.dup(out.fileno()))
    server = _server()
    request = json.dumps({"argv": words, "env": env, "cwd": str(cwd)}).encode()
    socket.send_fds(server, [request], [end, theirs, theirs if err is None else err.fileno()])
    pid = server.recv(20)
    os.close(theirs)
    os.close(end)
    if not pid:
        _server.cache_clear()
        raise RuntimeError("the server of forked programs ended: the first test that failed shows its error")
    return Forked(int(pid), ended, None if ours is None else os.fdopen(ours, encoding="utf-8"))


def rackready(
    *arguments: str, env: Mapping[str, str], cwd: Path, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run a command of rackready to its end, as ``subprocess.run`` does. Raises ``subprocess.TimeoutExpired``."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        child = start([COMMAND, *arguments], out=out, err=err, env=env, cwd=cwd)
        try:
            code = child.wait(timeout)
        finally:
            child.kill()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
    return subprocess.CompletedProcess(["rackready", *arguments], code, *texts)


@cache
def _server() -> socket.socket:
    """Return a connection to the server of this process, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,  # a Ctrl-C of the tests is not its own: it ends when they do
    )
    theirs.close()

    def end() -> None:
        ours.close()
        child.wait()

    atexit.register(end)
    return ours


def _serve(connection: socket.socket) -> dict[str, object] | None:
    """Fork for each request and tell its end. Returns the request in the child, None once nobody asks any more."""
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection, wake], [], [])
        if wake in ready:
            os.read(wake, 65536)
            _tell(ends)
        if connection not in ready:
            continue
        text, fds, _, _ = socket.recv_fds(connection, _REQUEST, 3)
        if not text:
            return None
        end, out, err = fds
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for used in (connection.fileno(), wake, woken, end, *ends.values()):
                os.close(used)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.close(out)
            os.close(err)
            return dict(json.loads(text))
        os.close(out)
        os.close(err)
        ends[pid] = end
        connection.send(str(pid).encode())


def _tell(ends: dict[int, int]) -> None:
    """Write down how each program ended that has."""
    with suppress(ChildProcessError):  # none is left
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            with suppress(BrokenPipeError):  # its test does not ask any more
                os.write(ends[pid], str(status).encode())
            os.close(ends.pop(pid))


def _become(request: dict[str, object]) -> None:
    """Be the program."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    env, argv = request["env"], request["argv"]
    os.chdir(str(request["cwd"]))
    assert isinstance(env, dict)
    assert isinstance(argv, list)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    for program in PROGRAMS:
        importlib.import_module(program)
    gc.collect()
    gc.freeze()
    if (asked := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        _become(asked)
