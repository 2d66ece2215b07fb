"""Writes files whole or not at all: what a reader or a restart finds is the old content or the new, never a part."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def replace(path: Path, data: bytes, *, mode: int = PRIVATE, sync: bool = True) -> None:
    """Replace a file atomically, after fsync of its content (``sync``). Its rights are ``mode``, whatever the umask.

    The command line sets a private umask, and servers without our rights read some files. Raises OSError; no partial
    file remains.
    """
    fresh = _fresh(path, data, mode, sync=sync)
    try:
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def settle(path: Path, data: bytes, *, mode: int = PRIVATE, sync: bool = True) -> bool:
    """Replace a file that has other content or rights, and return whether it had. Raises OSError.

    ``sync=False``: without fsync, for many files whose readers notice what a power cut left of one.
    """
    try:
        same = path.stat().st_mode & 0o777 == mode and path.read_bytes() == data
    except FileNotFoundError:
        same = False
    if not same:
        replace(path, data, mode=mode, sync=sync)
    return not same


def create(path: Path, data: bytes, *, mode: int = PRIVATE) -> bool:
    """Write a file unless it exists, and return whether it was written; the first process wins. Raises OSError."""
    fresh = _fresh(path, data, mode)
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def _fresh(path: Path, data: bytes, mode: int, *, sync: bool = True) -> Path:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(fresh, _NEW, PRIVATE), "wb") as out:
            os.fchmod(out.fileno(), mode)
            out.write(data)
            out.flush()
            if sync:
                os.fsync(out.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return fresh
