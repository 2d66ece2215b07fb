"""Disks of a simulated bare-metal node: sparse files, blank when the machine is built, kept over power cycles."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rackready_sim.host import run

State = dict[str, Any]
_MIB = 1 << 20
_TABLE = (
    "label: gpt\nstart=1MiB, size=64MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=EFI\nstart=65MiB, name=data\n"
)
_DATA_AT, _DATA_MIB = 65 * _MIB, 256
"""Place and size of the file system in the second partition; a small one is made faster."""


def ensure(folder: Path, disk: State) -> Path:
    """Return the disk's file, made if it is absent; a disk that a fault gave other content is made anew."""
    path, said = folder / f"disk{disk['id']}.raw", folder / f"disk{disk['id']}.holds"
    now = said.read_text(encoding="utf-8") if said.exists() else ""
    if path.exists() and now == disk["holds"]:
        return path
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with part.open("wb") as out:
        out.truncate(disk["bytes"])
    if disk["holds"]:
        _fill(part)
    part.replace(path)
    said.write_text(disk["holds"], encoding="utf-8")
    return path


def _fill(path: Path) -> None:
    """Write a partition table and an ext4 file system with one file, by the programs that an installer uses."""
    run(["sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", str(path)], stdin=_TABLE.encode(), timeout_s=60.0)
    with tempfile.TemporaryDirectory(prefix="disk-") as folder:
        (Path(folder) / "precious.txt").write_text("data of somebody\n", encoding="utf-8")
        argv = ["mke2fs", "-q", "-t", "ext4", "-L", "data", "-d", folder, "-E", f"offset={_DATA_AT}", str(path)]
        run([*argv, f"{_DATA_MIB}M"], timeout_s=120.0, shown="mke2fs")
