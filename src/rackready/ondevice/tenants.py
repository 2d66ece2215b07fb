"""A node whose tenants leave: its files, programs and users, and which of them are tenants."""

from __future__ import annotations

import os
import pwd
import re
import signal
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import safe_files

_MOUNT_FIELDS = 3
SERVICES = range(61184, 65536)
"""Numbers of services: systemd's dynamic ones and nobody (systemd.io/UIDS-GIDS), and Debian's fixed ones such as
slurm's 64030 (Debian Policy 9.2.2)."""


def unescaped(text: str) -> str:
    """Return a path of /proc/self/mounts with its blanks (proc_pid_mounts(5))."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"})
"""File systems of the node's own disks: all of each is searched for files of tenants."""
OWN = DISKS | {"overlay", "tmpfs", "ramfs"}
"""File systems on which nothing of the site's storage is."""


class Machine:
    """A node's files and programs below a root."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)

    def at(self, path: str) -> Path:
        """Return where a path of the node lies."""
        return self.root / path.lstrip("/")

    def real(self, path: str) -> str:
        """Return a path of the node without links."""
        found = Path(os.path.realpath(self.at(path)))
        return f"/{found.relative_to(self.root)}" if found != self.root else "/"

    def owns(self, folder: int) -> bool:
        """Return whether a descriptor is on a disk or in the memory of this node."""
        rows = [line.split(" - ", 1) for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()]
        kinds = {int(row[0].split()[0]): row[1].split()[0] for row in rows if len(row) > 1}
        return kinds.get(safe_files.mount_of(folder), "") in OWN

    def text(self, path: str) -> str:
        """Return the text of a file, empty where it does not exist."""
        try:
            return self.at(path).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            return ""

    def run(self, *argv: str) -> tuple[int, str]:
        """Return exit code and output of a program; 127 when it is not there."""
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=False)
        except FileNotFoundError:
            return 127, ""
        return done.returncode, done.stdout.decode(errors="replace")

    def users(self) -> list[Any]:
        """Return the users that the node lists. A directory may know more."""
        return pwd.getpwall()

    def user(self, name: str) -> Any:  # noqa: ANN401 - an entry of pwd, None for an unknown name
        """Return a user by name, also one that a directory does not list."""
        with suppress(KeyError):
            return pwd.getpwnam(name)
        return None

    def mounts(self) -> list[list[str]]:
        """Return the mounts: device, mount point, type, options."""
        rows = [line.split() for line in self.text("proc/self/mounts").splitlines()]
        return [[row[0], unescaped(row[1]), *row[2:]] for row in rows if len(row) > _MOUNT_FIELDS]

    def end(self, pid: int) -> None:
        """End a process."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    @staticmethod
    def shown(text: str) -> str:
        """Return a tenant's text for a terminal and for JSON: what cannot be printed is a question mark."""
        return "".join(letter if letter.isprintable() else "?" for letter in text)[:200]


class Tenants:
    """Which users are tenants."""

    def __init__(self, node: Machine, keep: list[str]) -> None:
        found = re.search(r"^\s*UID_MIN\s+(\d+)", node.text("etc/login.defs"), re.MULTILINE)
        self.first = int(found[1]) if found else 1000
        self.kept = [user for name in keep for user in [node.user(name)] if user is not None]
        self.names = {user.pw_uid: user.pw_name for user in [*node.users(), *self.kept]}
        self._kept = {user.pw_uid for user in self.kept}

    def has(self, uid: int) -> bool:
        """Return whether a number is a tenant's."""
        return uid >= self.first and uid not in SERVICES and uid not in self._kept

    def called(self, uid: int) -> str:
        """Return the name of a user, its number where the node knows none."""
        return str(self.names.get(uid, f"uid {uid}"))

    def trusts(self, link: os.stat_result, folder: os.stat_result) -> bool:
        """Return whether a link may be followed: a tenant could have made neither it nor another one in its place."""
        return not self.has(link.st_uid) and not self.has(folder.st_uid) and not folder.st_mode & stat.S_IWOTH
