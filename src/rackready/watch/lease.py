"""One watch per environment: a lock of its own, so that it never stands in the way of `rackready deploy`."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from rackready.ledger.error import ControllerBusyError
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths, private_dir

_TAKE = sa.text("SELECT pg_try_advisory_lock(1918985067, 3)")
"""The first number is that of the ledger's own locks ("rack" in ASCII); 1 and 2 are the controller and the writer."""
_STEP = "Leave it running: `rackready watch status` shows what it does. Or stop it first."


def lock_file(paths: EnvPaths) -> Path:
    """Return the file that the watch of this machine locks."""
    return paths.state / "watch.lock"


@contextmanager
def lease(paths: EnvPaths, ledger: Ledger) -> Iterator[None]:
    """Be the only watch, on this machine and on the records. Raises ControllerBusyError with the other one."""
    private_dir(paths.state)
    fd = os.open(lock_file(paths), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(fd, lock_file(paths))
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "since": time.time()}).encode(), 0)
        if ledger.alone:
            yield
            return
        with ledger.engine.connect() as connection:
            if not connection.execute(_TAKE).scalar_one():
                raise ControllerBusyError(
                    paths.env,
                    "another rackready watch runs on these records",
                    expected="none",
                    actual="one on another machine",
                    next_step=_STEP,
                )
            yield
    finally:
        os.close(fd)


def runs(paths: EnvPaths) -> bool:
    """Return whether a watch runs on this machine. It only reads."""
    path = lock_file(paths)
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _take(fd: int, path: Path) -> None:
    for left in range(10, -1, -1):  # `watch status` has it for a moment to see whether it is free
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                actual = f"pid {_pid(fd)}"
                raise ControllerBusyError(
                    path, "another rackready watch runs", expected="none", actual=actual, next_step=_STEP
                ) from error
            time.sleep(0.05)
        else:
            return


def _pid(fd: int) -> str:
    try:
        return str(json.loads(os.pread(fd, 4096, 0) or b"{}").get("pid", "unknown"))
    except ValueError:
        return "unknown"
