"""One controller at a time: an flock that the kernel gives back when its holder dies, and words about who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rackready.model.problems import RackreadyError

_LOOKS_S = 0.5
"""How long the lock may be had by `status` or `doctor`, which look whether it is free: far longer than that takes."""


class ControllerBusyError(RackreadyError):
    """Another controller works on the same site."""


class ControllerLock:
    """Held while this process may act on a site. Not inherited by children: their death is not needed for it to be free."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._fd: int | None = None

    def __enter__(self) -> Self:
        """Take the lock. Raises ControllerBusyError that says who holds it and what to do."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(fd)
        except OSError as error:
            holder = _holder(fd)
            os.close(fd)
            text = (
                f"{self._path}: another controller works on this site - Expected: none Actual: {holder}. "
                "Wait for it (`rackready status`), or stop it with Ctrl-C."
            )
            raise ControllerBusyError(text) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "what": self._what, "since": time.time()}).encode(), 0)
        self._fd = fd
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Give the lock back."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def is_held(path: Path) -> bool:
    """Whether a controller that lives holds the lock; reads only."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _take(fd: int) -> None:
    """Take the lock. Raises BlockingIOError while another controller has it: who only looks has it for a moment, and is waited for."""
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
        return "a process that has not said who it is"
    minutes = (time.time() - data.get("since", time.time())) / 60
    return f"pid {data.get('pid')} (`{data.get('what')}`, for {minutes:.0f} min)"
