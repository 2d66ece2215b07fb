"""Files of people who may be at work on them: looked at and removed by folder descriptors, never through a link.

A path is opened one name at a time with ``O_NOFOLLOW``, so nobody can lead root elsewhere by swapping a folder for a
link. What is mounted below a folder is left alone, a bind mount too: the kernel tells the mount of a descriptor
(``mnt_id`` of /proc/PID/fdinfo, proc_pid_fdinfo(5)). Folders may be nested to any depth.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40
"""Links in one path that are followed, as the kernel does (path_resolution(7))."""


class ChangedError(OSError):
    """A folder became another one while it was looked at or removed."""


class Spot(NamedTuple):
    """Where a file is: a descriptor of its folder, and its name there. ``link``: it is a link that is not followed."""

    folder: int
    name: str
    link: bool = False


class Met(NamedTuple):
    """One file that a walk meets. ``above``: names of the folders on the way, outermost first; the walk changes it."""

    folder: int
    above: list[str]
    name: str
    status: os.stat_result

    def path(self) -> str:
        """Return the path below the folder."""
        return "/".join([*self.above, self.name])


def mount_of(folder: int) -> int:
    """Return the number of the mount that a descriptor is on. Raises OSError."""
    lines = Path(f"/proc/self/fdinfo/{folder}").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("mnt_id:"))


@contextmanager
def place(root: str, path: str, trusted: Callable[[os.stat_result, os.stat_result], bool]) -> Iterator[Spot]:
    """Yield where a path below a root lies; its last name need not exist. Raises OSError.

    ``trusted``: whether a link may be followed, by the states of the link and of its folder. The first link that may
    not, on the way or at its end, is the place itself.
    """
    here, todo, links = os.open(root, _FOLDER), _names(path), 0
    try:
        while todo:
            name = todo.pop(0)
            status = status_of(here, name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _LINKS or not trusted(status, os.fstat(here)):
                    yield Spot(here, name, link=True)
                    return
                target = os.readlink(name, dir_fd=here)
                todo = [*_names(target), *todo]
                if target.startswith("/"):
                    here = _instead(here, os.open(root, _FOLDER))
            elif todo:
                here = _instead(here, os.open(name, _FOLDER, dir_fd=here))
            else:
                yield Spot(here, name)
                return
        yield Spot(here, ".")
    finally:
        os.close(here)


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def listed(folder: int) -> list[str]:
    """Return the names in a folder, sorted. Raises OSError."""
    try:
        with os.scandir(folder) as rows:
            return sorted(row.name for row in rows)
    except FileNotFoundError:
        return []


def status_of(folder: int, name: str) -> Any:  # noqa: ANN401 - os.stat_result or None
    """Return the state of a file, of a link itself; None where it is gone, or a mount that is not for root (FUSE).

    Raises OSError.
    """
    try:
        return os.lstat(name, dir_fd=folder)
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        if error.errno == errno.ENOTCONN:  # FUSE without its process
            return None
        raise


def enter(folder: int, name: str) -> int:
    """Return a descriptor of a folder that is no link; the caller closes it. Raises OSError."""
    return os.open(name, _FOLDER, dir_fd=folder)


class _Walk:
    """A place in a tree of folders, with one descriptor open however deep it is."""

    def __init__(self, folder: int) -> None:
        self.here = os.dup(folder)
        self.mount = mount_of(folder)
        self.above: list[str] = []
        self._way: list[tuple[int, int]] = []

    def down(self, name: str, status: os.stat_result) -> bool:
        """Enter a folder; one that something else is mounted on is not entered. Raises ChangedError and OSError."""
        below = enter(self.here, name)
        if mount_of(below) != self.mount:
            os.close(below)
            return False
        if _identity(os.fstat(below)) != _identity(status):
            os.close(below)
            raise ChangedError(f"{name} became another folder")
        self._way.append(_identity(os.fstat(self.here)))
        self.above.append(name)
        self.here = _instead(self.here, below)
        return True

    def up(self) -> str:
        """Leave a folder and return its name. Raises ChangedError when it was moved meanwhile."""
        here = os.open("..", _FOLDER, dir_fd=self.here)
        if _identity(os.fstat(here)) != self._way[-1]:
            os.close(here)
            raise ChangedError(f"{self.above[-1]} was moved")
        self._way.pop()
        self.here = _instead(self.here, here)
        return self.above.pop()

    def close(self) -> None:
        os.close(self.here)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def below(folder: int, enters: Callable[[Met], bool]) -> Iterator[Met]:
    """Yield every file below a folder, each folder before its files; ``enters``: whether to go into a folder.

    Raises ChangedError when a folder is moved meanwhile.
    """
    walk = _Walk(folder)
    todo = [listed(walk.here)[::-1]]
    try:
        while todo:
            if not todo[-1]:
                todo.pop()
                if todo:
                    walk.up()
                continue
            name = todo[-1].pop()
            status = status_of(walk.here, name)
            if status is None:
                continue
            item = Met(walk.here, walk.above, name, status)
            yield item
            if stat.S_ISDIR(status.st_mode) and enters(item):
                with suppress(FileNotFoundError):
                    if walk.down(name, status):
                        todo.append(listed(walk.here)[::-1])
    finally:
        walk.close()


def remove(folder: int, name: str) -> None:
    """Remove a file, or a folder with all that is in it. What is mounted below stays, with the folders on the way.

    Goes on after a file that cannot be removed, and raises its OSError at the end.
    """
    status = os.lstat(name, dir_fd=folder)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    removal = _Removal(folder)
    try:
        removal.all(name, status)
    finally:
        removal.close()
    if removal.failed:
        raise removal.failed[0]


class _Removal(_Walk):
    """A walk that removes. For each folder on the way: the names to come, and whether a mount below keeps it."""

    def __init__(self, folder: int) -> None:
        super().__init__(folder)
        self.failed: list[OSError] = []
        self._todo: list[list[str]] = []
        self._kept: list[bool] = []

    def all(self, name: str, status: os.stat_result) -> None:
        self._enter(name, status)
        while self._todo:
            if self._todo[-1]:
                self._tried(self._next)
            else:
                self._leave()

    def _next(self) -> None:
        name = self._todo[-1].pop()
        status = os.lstat(name, dir_fd=self.here)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=self.here)
        elif not self._enter(name, status):
            self._kept[-1] = True

    def _enter(self, name: str, status: os.stat_result) -> bool:
        if not self.down(name, status):
            return False
        self._todo.append(listed(self.here))
        self._kept.append(False)
        return True

    def _leave(self) -> None:
        self._todo.pop()
        name, kept = self.up(), self._kept.pop()
        if not kept:
            self._tried(lambda: os.rmdir(name, dir_fd=self.here))
        elif self._kept:
            self._kept[-1] = True

    def _tried(self, act: Callable[[], None]) -> None:
        try:
            act()
        except FileNotFoundError:
            return
        except ChangedError:
            raise
        except OSError as error:
            self.failed.append(error)


def text_of(spot: Spot, longest: int) -> str:
    """Return the text of a plain file. Raises OSError, for a longer one, a link and a pipe, too."""
    handle = os.open(spot.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=spot.folder)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("no plain file")
        data = file.read(longest + 1)
    if len(data) > longest:
        raise OSError(f"longer than {longest} bytes")
    return data.decode(errors="surrogateescape")


def replace_text(spot: Spot, text: str) -> None:
    """Write a file anew under its name, with its owner and mode. Raises OSError."""
    status = os.lstat(spot.name, dir_fd=spot.folder)
    new = f".{spot.name}.rackready"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=spot.folder)
    # A tenant's folder: a link that waits there under this name must not be written through.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(new, flags, 0o600, dir_fd=spot.folder)
    with os.fdopen(handle, "w", errors="surrogateescape") as file:
        file.write(text)
        os.fchmod(handle, stat.S_IMODE(status.st_mode))
        os.fchown(handle, status.st_uid, status.st_gid)
    os.replace(new, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
