"""Unpacking of a release: regular files below one folder, nothing else, whole or not at all."""

from __future__ import annotations

import ctypes
import os
import shutil
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from .places import sync_folder
from .problem import PullProblem

_MOST_BYTES = 4 << 30
_MOST_FILES = 100_000
_STEP = "Run the phase again on the controller: it writes the release again."
_WHEEL_PARTS = ("purelib", "platlib")
"""Folders of a wheel's .data that belong beside its packages (Binary distribution format, PyPA)."""

LAUNCHER = """#!/bin/sh
# Ansible's own program, of this release. No PYTHONPATH: modules run by the system's Python must not see these packages.
exec "$RACKREADY_PULL_PYTHON" -I -u -B -c '
import sys
sys.path[:0] = sys.argv[1:3]
del sys.argv[1:3]
sys.argv[0] = "ansible-playbook"
from ansible.cli.playbook import main
sys.exit(main())' "$RACKREADY_PULL_RELEASE/wheels" "$RACKREADY_PULL_RELEASE/code/src" "$@"
"""


class _Room:
    """What may still be unpacked."""

    def __init__(self, where: str) -> None:
        self.where, self.files, self.bytes = where, _MOST_FILES, _MOST_BYTES

    def take(self, size: int) -> None:
        """Count one file. Raises PullProblem when a release is larger than any can be."""
        self.files, self.bytes = self.files - 1, self.bytes - size
        if self.files < 0 or self.bytes < 0:
            expected = f"at most {_MOST_FILES} files and {_MOST_BYTES >> 30} GiB"
            raise PullProblem("release-damaged", self.where, expected, "more", _STEP)


def unpack(node: str, code: Path, wheels: list[Path], target: Path) -> None:
    """Unpack code and wheels into a new folder, and rename it to ``target``. Raises PullProblem, OSError."""
    where, fresh = f"{node}: release {target.name[:12]}", target.with_name(f".new-{target.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(mode=0o700)
        room = _Room(where)
        _tar(code, fresh / "code", room)
        for wheel in wheels:
            _wheel(wheel, fresh / "wheels", room)
        (fresh / "bin").mkdir()
        (fresh / "bin/ansible-playbook").write_text(LAUNCHER, encoding="utf-8")
        (fresh / "bin/ansible-playbook").chmod(0o755)
        _sync(fresh)
        fresh.replace(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Write a folder's file system to the disk: a renamed folder must not have empty files after a power cut.

    os.sync() would wait for every other file system, too, and for ever for one whose NFS server is away. Raises
    OSError.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def _tar(path: Path, target: Path, room: _Room) -> None:
    target.mkdir()
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isdir():
                    _inside(target, member.name, room.where)
                    continue
                if not member.isreg():
                    raise _strange(room.where, f"{member.name}, which is no regular file")
                room.take(member.size)
                source = archive.extractfile(member)
                _write(source, _inside(target, member.name, room.where), executable=bool(member.mode & 0o100))
    except (tarfile.TarError, EOFError) as error:
        raise _strange(room.where, f"a damaged archive of code ({error})") from error


def _wheel(path: Path, target: Path, room: _Room) -> None:
    target.mkdir(exist_ok=True)
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                kind = entry.external_attr >> 16 & 0o170000
                if kind not in {0, 0o100000, 0o040000}:
                    raise _strange(room.where, f"{entry.filename}, which is no regular file")
                name = _placed(entry.filename)
                if entry.is_dir() or name is None:
                    continue
                room.take(entry.file_size)
                with archive.open(entry) as source:
                    _write(source, _inside(target, name, room.where), executable=False)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise _strange(room.where, f"a damaged wheel ({error})") from error


def _placed(name: str) -> str | None:
    """Return where a wheel's file belongs, None for scripts and headers, which nobody here uses."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    part, _, inner = rest.partition("/")
    return inner if part in _WHEEL_PARTS and inner else None


def _inside(target: Path, name: str, where: str) -> Path:
    """Return the place of a file below ``target``. Raises PullProblem for a name that leads elsewhere."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
        raise _strange(where, f"{name!r}, which lies outside of it")
    return target.joinpath(*pure.parts)


def _write(source: IO[bytes] | None, place: Path, *, executable: bool) -> None:
    """Write a file. One that two wheels have is the later one's, as with pip; there are no links to follow."""
    if source is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755 if executable else 0o644), "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def _strange(where: str, said: str) -> PullProblem:
    return PullProblem("release-damaged", where, "regular files below its folder", said, _STEP)
