"""Slurm's files on their disk: copied with their owners for a trial, kept, and replaced as a whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from pathlib import Path

from .slurm_conf import MAIN

KEPT = "rackready.kept"
BYTES = "latin-1"
"""Every byte is a character, so that whatever others wrote comes back as it was. Our own lines are ASCII."""
OLDEST_KEPT = 20
"""Sets of old files that stay. Our judgement: the last weeks of a cluster that grows daily."""


def copy_folder(folder: Path, place: Path, without: str) -> None:
    """Copy a folder with modes and owners, except one name in it: slurmctld must read its keys there as SlurmUser."""

    def ignore(where: str, _names: list[str]) -> list[str]:
        return [without] if Path(where) == folder else []

    shutil.copytree(folder, place, ignore=ignore, copy_function=_copy, ignore_dangling_symlinks=True)
    for at in [place, *(path for path in place.rglob("*") if path.is_dir())]:
        _own(folder / at.relative_to(place), at)


def _copy(source: str, target: str) -> None:
    shutil.copy2(source, target)
    _own(Path(source), Path(target))


def _own(source: Path, target: Path) -> None:
    of = source.stat()
    os.chown(target, of.st_uid, of.st_gid)
    target.chmod(of.st_mode & 0o7777)


def keep(folder: Path, old: dict[str, str | None]) -> Path:
    """Copy the files that are about to change into a folder named by the time, UTC; remove the oldest ones."""
    place = folder / KEPT / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    place.mkdir(parents=True, exist_ok=True)
    for name in old:
        if (folder / name).exists():
            shutil.copy2(folder / name, place / name)
    for gone in sorted((folder / KEPT).iterdir())[:-OLDEST_KEPT]:
        shutil.rmtree(gone)
    return place


def write(folder: Path, found: dict[str, str | None]) -> None:
    """Write files; those that were not there go. slurm.conf is last: until then nothing includes the new ones.

    Raises OSError before any changed when one of them cannot be replaced.
    """
    prepare(folder, found)
    for name in sorted(found, key=lambda item: item == MAIN):
        if found[name] is None:
            (folder / name).unlink(missing_ok=True)
        else:
            part_of(folder / name).replace(folder / name)


def prepare(folder: Path, found: dict[str, str | None]) -> None:
    """Write new texts beside their files. Raises OSError, with none left there, when a file cannot be replaced."""
    try:
        for name, text in found.items():
            _replaceable(folder / name)
            if text is not None:
                _write_part(folder / name, text)
    except OSError:
        for name in found:
            part_of(folder / name).unlink(missing_ok=True)
        raise


def _replaceable(path: Path) -> None:
    """Raise OSError for a file that a new one cannot take the place of: a link, a mount, an immutable one."""
    if path.is_symlink():
        raise OSError(
            errno.ELOOP, "is a link, which rackready would replace by a file; put the file itself here", str(path)
        )
    if str(path.parent.resolve() / path.name) in mounts():
        raise OSError(errno.EBUSY, "is a mount of one file, which cannot be replaced", str(path))
    if path.exists():
        path.chmod(path.stat().st_mode & 0o7777)  # EPERM for an immutable one (chattr(1), +i and +a)


def mounts(table: Path = Path("/proc/self/mountinfo")) -> dict[str, str]:
    """Return mount point -> type of its file system (proc_pid_mountinfo(5)); {} where that is unknown."""
    try:
        lines = table.read_text(encoding=BYTES).splitlines()
    except OSError:
        return {}
    pairs = [line.partition(" - ")[::2] for line in lines]
    return {_unescaped(left.split()[4]): right.split()[0] for left, right in pairs if right}


def _unescaped(text: str) -> str:
    """Return a path of mountinfo, where a blank is a backslash and 040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def part_of(path: Path) -> Path:
    """Return where a new text lies until it takes its file's place."""
    return path.with_name(f".{path.name}.rackready")


def replace(path: Path, text: str) -> None:
    """Replace a file as a whole, with mode and owner of the old one; a new one is readable by all."""
    _write_part(path, text)
    part_of(path).replace(path)


def _write_part(path: Path, text: str) -> None:
    there = path.stat() if path.exists() else None
    part = part_of(path)
    with part.open("w", encoding=BYTES) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(0o644 if there is None else there.st_mode & 0o7777)
    if there is not None:
        os.chown(part, there.st_uid, there.st_gid)
