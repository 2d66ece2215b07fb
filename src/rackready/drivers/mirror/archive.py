"""One tar file with a whole mirror, to be carried in."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from rackready.drivers.mirror.verify import KEY, MANIFEST, SUMS

_FIRST = (MANIFEST, SUMS, f"{SUMS}.asc", KEY)
"""At the start of the archive, so that it can be looked at without reading gigabytes."""
FOLDER = "mirror"


def is_of(archive: Path, folder: Path) -> bool:
    """Return whether an archive has this mirror: the same list of hashes, and every file in its size."""
    if not archive.is_file():
        return False
    try:
        with tarfile.open(archive, "r:") as tar:
            sizes = {item.name: item.size for item in tar if item.isfile()}
            sums = tar.extractfile(f"{FOLDER}/{SUMS}")
            same = sums is not None and sums.read() == (folder / SUMS).read_bytes()
    except (tarfile.TarError, KeyError, EOFError):
        return False
    return same and sizes == {f"{FOLDER}/{name}": (folder / name).stat().st_size for name in _names(folder)}


def write(archive: Path, folder: Path) -> None:
    """Write the archive whole or not at all. Packages are compressed already, so it is not."""
    part = archive.with_name(f".{archive.name}.{os.getpid()}.new")
    try:
        with tarfile.open(part, "w:", format=tarfile.PAX_FORMAT) as tar:
            for name in _names(folder):
                tar.add(folder / name, f"{FOLDER}/{name}", recursive=False, filter=_plain)
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [*_FIRST, *(name for name in names if name not in _FIRST)]


def _plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
    item.uid = item.gid = 0
    item.uname = item.gname = "root"
    item.mode, item.mtime = 0o644, int(item.mtime)
    return item
