"""A copy of the folder of Slurm's files, for a trial: with owners, which shutil leaves out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


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
