"""One controller at a time: an flock that the kernel releases when its holder dies.

Where the records are on a server, its lock (``postgres_lock``) is taken next. The flock guards this machine's files.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from rackready.ledger.backend import backend_of
from rackready.ledger.error import ControllerBusyError
from rackready.paths import Database, private_dir

_LOOKS_S = 0.5
"""How long `status` or `doctor` may have the lock to see whether it is free, s: far longer than that takes."""


class ControllerLock:
    """Held while this process may act on a site. Children do not inherit it: it is free before they have ended."""

    def __init__(self, path: Path, what: str, database: Database | Path) -> None:
        self._path = path
        self._what = what
        self._database = database
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Take the lock. Raises ControllerBusyError with its holder, LedgerError when a server does not answer."""
        with ExitStack() as taken:
            taken.callback(_release, self._flock())
            taken.enter_context(backend_of(self._database).controller(self._what))
            self._held = taken.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._held.close()

    def _flock(self) -> int:
        private_dir(self._path.parent)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(fd)
        except OSError as error:
            holder = _holder(fd)
            os.close(fd)
            raise ControllerBusyError(
                self._path,
                "another controller works on this site",
                expected="none",
                actual=holder,
                next_step="Wait for it (`rackready status`), or stop it with Ctrl-C.",
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "what": self._what, "since": time.time()}).encode(), 0)
        return fd


def is_held(path: Path, database: Database | Path) -> bool:
    """Return whether a live controller holds the lock, here or on another machine. It only reads.

    Raises LedgerError when a server does not answer.
    """
    return is_held_here(path) or bool(backend_of(database).holder())


def held_since(path: Path) -> float:
    """Return when the controller of this machine that holds the lock took it, 0.0 when none says so."""
    try:
        found = json.loads(path.read_bytes() or b"{}")
        return float(found.get("since", 0.0))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0.0


def is_held_here(path: Path) -> bool:
    """Return whether a live controller of this machine holds the lock."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _release(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.close(fd)


def _take(fd: int) -> None:
    """Take the lock. Raises BlockingIOError while another controller has it.

    A command that only looks has it for a moment and is waited for.
    """
    deadline = time.monotonic() + _LOOKS_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOKS_S / 10)
        else:
            return


def _holder(fd: int) -> str:
    try:
        data = json.loads(os.pread(fd, 4096, 0) or b"{}")
    except ValueError:
        data = {}
    if not data:
        return "an unknown process"
    minutes = (time.time() - data.get("since", time.time())) / 60
    return f"pid {data.get('pid')} (`{data.get('what')}`, for {minutes:.0f} min)"
