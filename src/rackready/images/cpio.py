"""Writes a folder as a cpio archive (newc), the form of an initial root file system, the same for the same content.

Source of the layout: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"
_CHUNK = 1 << 20


def write(folder: Path, sink: IO[bytes], *, mtime: int) -> int:
    """Write everything below a folder in the order of names, and return the number of bytes.

    Owners are root, times are ``mtime`` (seconds since 1970). Hard links become copies. Device nodes and sockets are
    left out: the kernel's devtmpfs makes those of the running machine. Raises OSError.
    """
    size = 0
    for number, (name, path) in enumerate(_entries(folder), start=1):
        size += _entry(sink, number, name, path, mtime)
    return size + _header(sink, 0, _TRAILER, 0, 0, 0)


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*"), key=lambda item: item.relative_to(folder).parts):
        kind = path.lstat().st_mode
        if stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind):
            yield str(path.relative_to(folder)), path


def _entry(sink: IO[bytes], number: int, name: str, path: Path, mtime: int) -> int:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        target = os.fsencode(path.readlink())
        written = _header(sink, number, name, found.st_mode, mtime, len(target))
        return written + sink.write(target) + _pad(sink, len(target))
    if stat.S_ISDIR(found.st_mode):
        return _header(sink, number, name, found.st_mode, mtime, 0)
    written = _header(sink, number, name, found.st_mode, mtime, found.st_size)
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            written += sink.write(chunk)
    return written + _pad(sink, found.st_size)


def _header(sink: IO[bytes], number: int, name: str, mode: int, mtime: int, size: int) -> int:
    encoded = os.fsencode(name) + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (number, mode, 0, 0, links, mtime, size, 0, 0, 0, 0, len(encoded), 0)
    head = (_MAGIC + "".join(f"{field:08x}" for field in fields)).encode() + encoded
    return sink.write(head) + _pad(sink, len(head))


def _pad(sink: IO[bytes], length: int) -> int:
    return sink.write(b"\0" * (-length % 4))
