"""One controller's command at a time on a node: an flock, and a marker with the fencing token of the controller.

The kernel releases the lock when its holder dies. A command that outlives its killed controller still holds it, so the
resumed run waits for it here and then observes its effect, instead of doing the same beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command import NodeProblem
from .disk import disk_full
from .whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("/var/lib/rackready")
FENCE_OPTIONS = {
    "token": {"type": "int", "default": 0},
    "ledger": {"type": "str", "default": ""},
    "lock_wait_s": {"type": "int", "default": 600},
}
"""Options of every module that changes a node behind the fence, as Ansible's argument_spec has them."""


@contextmanager
def fence(
    operation: str, token: int, ledger: str, *, folder: Path = FOLDER, wait_s: float = 600.0
) -> Iterator[list[str]]:
    """Hold the node's lock for an operation; yield the list of notes about other runs, to which the holder may add.

    ``token`` 0 means that a person runs the playbook by hand: the lock is taken, nothing is compared. Raises
    NodeProblem when a newer controller of the same ledger was here already, when the lock is not free in time, or when
    the disk is full.
    """
    notes: list[str] = []
    lock, marker = folder / f"{operation}.lock", folder / f"{operation}.json"
    words = {"operation": operation, "token": token, "ledger": ledger, "pid": os.getpid()}
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, marker, wait_s, notes)
            _compare(marker, token, ledger, notes)
            _write(marker, {**words, "begun": time.time(), "state": "begun"})
            try:
                yield notes
            except NodeProblem:
                with suppress(OSError):  # a full or broken disk may be the obstacle: it is what must be told
                    _write(marker, {**words, "ended": time.time(), "state": "refused"})
                raise
            _write(marker, {**words, "ended": time.time(), "state": "done"})
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise disk_full(
            f"free disk space below {folder}", path=Path(error.filename) if error.filename else None
        ) from error


def at_work(operation: str, *, folder: Path = FOLDER) -> bool:
    """Return whether an operation was started here and did not end well: at work, interrupted, or with an obstacle."""
    return _read(folder / f"{operation}.json").get("state") in {"begun", "refused"}


def _lock(descriptor: int, marker: Path, wait_s: float, notes: list[str]) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(marker).get("pid", "unknown")
            if time.monotonic() > deadline:
                expected = f"the lock {marker.with_suffix('.lock')} within {wait_s:.0f} s"
                raise NodeProblem(
                    expected, f"held by process {holder} of another run", "End that run, then run again."
                ) from None
            if not notes:
                notes.append(f"waited for process {holder}, left by another run")
            time.sleep(0.5)
        else:
            return


def _compare(marker: Path, token: int, ledger: str, notes: list[str]) -> None:
    before = _read(marker)
    seen = int(before.get("token", 0))
    if token and seen > token and before.get("ledger") == ledger:
        raise NodeProblem(
            f"fencing token {seen} or newer",
            f"token {token}",
            "A newer controller acts on this node: stop this one (`rackready status`). If none does and the ledger was "
            "restored from a backup, follow docs/howto/ledger-backup.md.",
        )
    if before.get("state") == "begun":
        notes.append(f"an earlier run (token {seen}) was interrupted here: its effect is observed first")


def _read(path: Path) -> dict[str, Any]:
    try:
        marker = json.loads(path.read_text(encoding="utf-8"))
    except (
        OSError,
        ValueError,
    ):  # no marker, or a torn one from a power cut: nothing is known, so observation decides
        return {}
    return marker if isinstance(marker, dict) else {}


def _write(path: Path, marker: dict[str, Any]) -> None:
    replace_file(path, json.dumps(marker))
