"""One controller's command at a time on a node: an flock, and a marker with the fencing token of who acts.

The lock is given back by the kernel when its holder dies. A command that outlives its killed controller still holds it, so
the resumed run waits for it here and then looks at what it has done, instead of doing the same beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .command import NodeProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "/var/lib/rackready"


@contextmanager
def fence(operation: str, token: int, ledger: str, *, folder: str = FOLDER, wait_s: float = 600.0) -> Iterator[list[str]]:
    """Hold the node's lock for an operation; yields the list of notes about what was found, to which the holder may add.

    ``token`` 0 means that a person runs the playbook by hand: the lock is taken, nothing is compared. Raises NodeProblem when
    a newer controller of the same ledger was here already, when the lock is not free in time, or when the disk is full.
    """
    notes: list[str] = []
    path = os.path.join(folder, operation)
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, path, wait_s, notes)
            _compare(path, token, ledger, notes)
            _write(path, {"operation": operation, "token": token, "ledger": ledger, "pid": os.getpid(), "begun": time.time(), "state": "begun"})
            yield notes
            _write(path, {"operation": operation, "token": token, "ledger": ledger, "pid": os.getpid(), "ended": time.time(), "state": "done"})
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise disk_full(folder) from error


def disk_full(path: str) -> NodeProblem:
    """Return the problem that says how much is free where nothing could be written."""
    stat = os.statvfs(path if os.path.isdir(path) else "/")
    free = stat.f_bavail * stat.f_frsize // 2**20
    return NodeProblem(f"free disk space below {path}", f"no space left on the node's disk ({free} MiB free)", "Free disk space on the node, then run again.")


def _lock(descriptor: int, path: str, wait_s: float, notes: list[str]) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(path).get("pid", "unknown")
            if time.monotonic() > deadline:
                raise NodeProblem(f"the lock {path}.lock within {wait_s:.0f} s", f"held by process {holder} of another run", "End that run, then run again.") from None
            if not notes:
                notes.append(f"waited for process {holder}, left by another run")
            time.sleep(0.5)
        else:
            return


def _compare(path: str, token: int, ledger: str, notes: list[str]) -> None:
    before = _read(path)
    seen = int(before.get("token", 0))
    if token and seen > token and before.get("ledger") == ledger:
        raise NodeProblem(f"fencing token {seen} or newer", f"token {token}", "A newer controller acts on this node: stop this one (`rackready status`).")
    if before.get("state") == "begun":
        notes.append(f"an earlier run (token {seen}) was interrupted here: its effect is observed first")


def _read(path: str) -> dict[str, object]:
    try:
        with open(path + ".json", encoding="utf-8") as stream:
            marker = json.load(stream)
    except (OSError, ValueError):  # no marker, or a torn one from a power cut: nothing is known, which observation settles
        return {}
    return marker if isinstance(marker, dict) else {}


def _write(path: str, marker: dict[str, object]) -> None:
    temporary = f"{path}.json.new"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(marker, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path + ".json")
