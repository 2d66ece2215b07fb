"""The node's file system that is full: programs that fail for lack of space seldom name it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem

PLACES = (
    "",
    "usr",
    "var",
    "var/lib/dpkg",
    "var/lib/apt/lists",
    "var/cache/apt/archives",
    "var/lib/rpm",
    "var/cache/dnf",
    "var/lib/rackready",
    "var/log",
    "boot",
    "etc",
    "tmp",
)
"""Folders that an installation writes to, below the root; each may be a file system of its own."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Room:
    """One file system: its mount point, free and total size in bytes, and whether it can hold no more files."""

    place: str
    free: int
    size: int
    no_inodes: bool

    def __str__(self) -> str:
        """Return the text for messages, with df's figures."""
        files = ", no inode is free" if self.no_inodes else ""
        return f"{self.place} has {self.free // _MIB} MiB free of {self.size // _MIB} MiB{files}"


@dataclass(frozen=True)
class Disks:
    """The file systems of a node. Tests pass ``stat`` and ``device``, which return what os.statvfs and st_dev give."""

    root: Path = Path("/")
    stat: Callable[[Path], os.statvfs_result] = os.statvfs
    device: Callable[[Path], int] = lambda path: path.stat().st_dev

    def fullest(self) -> Room:
        """Return the file system with the least space among those that an installation writes to."""
        rooms = [self.room(self.root / place) for place in PLACES if (self.root / place).is_dir()]
        return min(rooms, key=lambda room: (not room.no_inodes, room.free))

    def room(self, path: Path) -> Room:
        """Return the file system that holds a path, whether or not the path itself exists."""
        while not path.exists():
            path = path.parent
        here = self.device(path)
        while path != self.root and self.device(path.parent) == here:
            path = path.parent
        found = self.stat(path)
        # A file system without a fixed number of inodes reports 0 of 0.
        no_inodes = found.f_files > 0 and found.f_favail == 0
        return Room(
            "/" + path.relative_to(self.root).as_posix().removeprefix("."),
            found.f_bavail * found.f_frsize,
            found.f_blocks * found.f_frsize,
            no_inodes,
        )


def disk_full(
    expected: str, words: str = "No space left on device", path: Path | None = None, disks: Disks | None = None
) -> NodeProblem:
    """Return the problem that names the file system of ``path``, or else the one with the least space."""
    disks = disks or Disks()
    room = disks.room(path) if path is not None else disks.fullest()
    return NodeProblem(expected, f"{words} ({room})", f"Free disk space on the node in {room.place}, then run again.")
