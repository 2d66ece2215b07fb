"""Locks of a package manager: who holds one, and waiting until it is free."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from .command import NodeProblem


def lock_holder(path: Path) -> int:
    """Return the process that holds a POSIX record lock on a file; 0 when none does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        # struct flock of Linux on 64 bits: type, whence, start, length, pid.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def pid_in(path: Path) -> int:
    """Return the live process that a lock file names; 0 when there is none."""
    try:
        pid = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no file, or its owner is about to write it
        return 0
    return pid if Path(f"/proc/{pid}/stat").exists() else 0


def process_name(pid: int) -> str:
    """Return a process's program, with the script that it runs.

    The rest of its command line is left out: it may hold a secret.
    """
    folder = Path(f"/proc/{pid}")
    try:
        name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return "gone by now"
    return f"{name} {words[1]}" if len(words) > 1 and words[1].startswith("/") else name


def wait_until_free(held: Callable[[], tuple[str, int] | None], limit_s: float, notes: list[str]) -> None:
    """Wait until ``held`` returns no lock with its holder; report the wait in ``notes``. Raises NodeProblem."""
    deadline = time.monotonic() + limit_s
    while found := held():
        lock, holder = found
        if time.monotonic() > deadline:
            expected = f"/{lock} is free within {limit_s:.0f} s"
            step = "Wait until that process has ended, or end it on the node; then run again."
            raise NodeProblem(expected, f"held by process {holder} ({process_name(holder)})", step)
        note = f"waited for process {holder} ({process_name(holder)}), which held /{lock}"
        if note not in notes:
            notes.append(note)
        time.sleep(0.5)
