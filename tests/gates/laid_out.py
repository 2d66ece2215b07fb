"""Trees of simulated machines, laid out once per process and put back between tests: a node has 3,000 files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG

import pytest

Mark = tuple[int, int, int, int]
"""Inode, mode, size and time of the last change: what tells that a file is no longer the one that was laid out."""


@dataclass(slots=True)
class Entry:
    """A folder, link or file as it was laid out."""

    mark: Mark
    link: str = ""
    content: bytes = b""


@dataclass
class Tree:
    """A folder with everything below it. ``held`` while a test has it; the end of its MonkeyPatch gives it back."""

    root: Path
    held: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)

    def note(self) -> None:
        """Note what lies below the root now."""
        self.entries = {path: _entry(path, mark) for path, mark in _walk(str(self.root))}

    def put_back(self) -> None:
        """Make everything below the root again what was noted."""
        now = dict(_walk(str(self.root)))
        for path in sorted(now, reverse=True):  # what lies in a folder comes before it
            if path not in self.entries or now[path][1] != self.entries[path].mark[1]:
                _remove(path)
                del now[path]
        for path, entry in self.entries.items():  # folders come before what lies in them
            if path not in now or (now[path] != entry.mark and not S_ISDIR(entry.mark[1])):
                _make(path, entry)


_TREES: dict[str, list[Tree]] = {}


def free(name: str, patch: pytest.MonkeyPatch) -> Tree | None:
    """Return a tree of this name that no test has, put back; it is held until ``patch`` is undone."""
    for tree in _TREES.get(name, []):
        if not tree.held and tree.root.is_dir():
            patch.setattr(tree, "held", True)
            tree.put_back()
            return tree
    return None


def keep(name: str, root: Path, patch: pytest.MonkeyPatch) -> None:
    """Keep a tree as it lies there now for later tests; it is held until ``patch`` is undone."""
    tree = Tree(root)
    tree.note()
    _TREES.setdefault(name, []).append(tree)
    patch.setattr(tree, "held", True)


def _walk(top: str) -> Iterator[tuple[str, Mark]]:
    with os.scandir(top) as found:
        for item in found:
            told = item.stat(follow_symlinks=False)
            yield item.path, (told.st_ino, told.st_mode, told.st_size, told.st_mtime_ns)
            if S_ISDIR(told.st_mode):
                yield from _walk(item.path)


def _entry(path: str, mark: Mark) -> Entry:
    if S_ISLNK(mark[1]):
        return Entry(mark, link=str(Path(path).readlink()))
    return Entry(mark, content=Path(path).read_bytes() if S_ISREG(mark[1]) else b"")


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - thousands of paths, as text
        shutil.rmtree(path)
    else:
        os.unlink(path)  # noqa: PTH108


def _make(path: str, entry: Entry) -> None:
    mode = entry.mark[1]
    if S_ISDIR(mode):
        os.mkdir(path)  # noqa: PTH102
        os.chmod(path, mode & 0o7777)  # noqa: PTH101
    elif S_ISLNK(mode):
        Path(path).unlink(missing_ok=True)
        os.symlink(entry.link, path)  # noqa: PTH211
    else:
        file = Path(path)
        if not file.exists() or file.read_bytes() != entry.content:
            file.write_bytes(entry.content)
        os.chmod(path, mode & 0o7777)  # noqa: PTH101
        os.utime(path, ns=(entry.mark[3], entry.mark[3]))  # so that a change within the clock's next tick still shows
    told = os.lstat(path)
    entry.mark = (told.st_ino, told.st_mode, told.st_size, told.st_mtime_ns)
