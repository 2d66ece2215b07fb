"""Replaces one folder by another at once: readers and a killed process find the old mirror or the new one, whole."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready.drivers.mirror.tools import MirrorError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTTY}


@contextmanager
def locked(work: Path, out: Path) -> Iterator[None]:
    """Hold the lock of a mirror's work folder. Raises MirrorError when another run has it."""
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MirrorError(
                out,
                expected="one run at a time",
                actual="another run builds this mirror",
                next_step="Wait for its end.",
            ) from error
        yield


def replace_folder(fresh: Path, target: Path) -> None:
    """Put a folder in the place of another, which is removed afterwards."""
    for path in (item for item in fresh.rglob("*") if item.is_file()):
        _to_disk(path)
    old = beside(target)
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        if not _exchange(fresh, target):
            target.rename(old)
            fresh.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
    else:
        fresh.rename(target)
    _to_disk(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(target: Path) -> None:
    """Put the old folder back, or remove it, if a process died in the middle of a replacement.

    There is a moment without a mirror only on file systems that cannot exchange two folders.
    """
    old = beside(target)
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def beside(target: Path) -> Path:
    """Return where the old folder is during a replacement."""
    return target.with_name(f".{target.name}.old")


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step (renameat2, Linux), and return whether the file system can."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    words = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if library.renameat2(*words) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _to_disk(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
