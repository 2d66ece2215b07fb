"""Commands on the machine that runs rackready, with the same contract as commands over SSH."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from rackready.drivers.process import OUTPUT_LIMIT, STOP, Interrupted
from rackready.drivers.remote import Answer, UnreachableError

_POLL_S = 0.05
_NOT_FOUND = 127
"""A shell's exit code when there is no such program (POSIX, sh, Exit Status)."""


class Local:
    """Commands on this machine, whatever node they are for.

    ``python3`` is the Python that runs rackready: it has the library that reads GPUs.
    """

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Answer:
        """Run a command to its end. Never raises for what it does; raises Interrupted when the operator stops.

        A program that is not installed gives what a shell would: exit code 127 and its name on standard error.
        """
        try:
            job = self.start(node, argv, stdin=stdin, env=env, timeout_s=timeout_s)
        except UnreachableError as error:
            return Answer(_NOT_FOUND, "", str(error), 0.0)
        try:
            return job.wait(timeout_s)
        finally:
            job.end()

    def start(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> LocalJob:
        """Start a command and return at once. Raises UnreachableError when there is no such program.

        ``timeout_s`` has no effect: ``wait`` keeps the time limit.
        """
        del node, timeout_s
        try:
            return LocalJob(argv, stdin, {**os.environ, "PATH": _path(), **(env or {})})
        except OSError as error:
            raise UnreachableError(argv[0], f"command not found ({error.strerror})") from error


def _path() -> str:
    here = str(Path(sys.executable).parent)
    return os.pathsep.join([here, os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class LocalJob:
    """One command on this machine, in its own session."""

    def __init__(self, argv: Sequence[str], stdin: str, env: Mapping[str, str]) -> None:
        self._begun = time.monotonic()
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._last: Answer | None = None
        try:
            self._child = subprocess.Popen(
                _resolved(argv, env),
                stdin=subprocess.PIPE,
                stdout=self._out,
                stderr=self._err,
                env=dict(env),
                start_new_session=True,
            )
        except OSError:
            self._close()
            raise
        # A script may be longer than a pipe holds, and a command need not read it.
        threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()

    def _feed(self, text: str) -> None:
        pipe = self._child.stdin
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError), pipe:
                pipe.write(text.encode())

    def alive(self) -> bool:
        """Whether the command still runs."""
        return self._last is None and self._child.poll() is None

    def wait(self, timeout_s: float) -> Answer:
        """Return the answer, at the time limit with ``timed_out``. Raises Interrupted when the operator stops."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if STOP.is_set():
                self.end()
                raise Interrupted
            much = self._size() > OUTPUT_LIMIT
            if much or time.monotonic() > deadline:
                self._kill()
                return self._answer(
                    None, timed_out=not much, failure=f"more than {OUTPUT_LIMIT >> 20} MiB of output" if much else ""
                )
            time.sleep(_POLL_S)
        return self.so_far()

    def so_far(self) -> Answer:
        """Return the output up to now."""
        return self._last or self._answer(self._child.poll())

    def end(self) -> None:
        """End the command with everything that it started in its session."""
        if self._last is None:
            self._last = self.so_far()
            self._kill()
            self._close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _close(self) -> None:
        self._out.close()
        self._err.close()

    def _size(self) -> int:
        return os.fstat(self._out.fileno()).st_size + os.fstat(self._err.fileno()).st_size

    def _answer(self, code: int | None, *, timed_out: bool = False, failure: str = "") -> Answer:
        return Answer(code, _text(self._out), _text(self._err), time.monotonic() - self._begun, timed_out, failure)


def _resolved(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command with its program looked up on the PATH that it gets, not on ours."""
    if "/" in argv[0]:
        return list(argv)
    for folder in env["PATH"].split(os.pathsep):
        place = Path(folder) / argv[0]
        if place.is_file() and os.access(place, os.X_OK):
            return [str(place), *argv[1:]]
    raise FileNotFoundError(2, "No such file or directory", argv[0])


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), OUTPUT_LIMIT, 0).decode(errors="replace")
