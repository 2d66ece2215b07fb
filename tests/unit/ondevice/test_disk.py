"""A full disk is named: the file system of the file that could not be written, or else the one with the least space."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rackready.ondevice import apt_words
from rackready.ondevice.command import NodeProblem
from rackready.ondevice.disk import Disks, disk_full
from rackready.ondevice.fence import fence

MIB = 1 << 20


def node(root: Path, mounts: dict[str, tuple[int, int]], *, no_inodes: str = "") -> Disks:
    """Set a node's file systems: folder below the root ("" for the root's own) -> (free, size) in MiB."""
    for place in [*mounts, "var/lib/dpkg", "var/cache/apt/archives", "var/lib/apt/lists", "usr/bin", "boot"]:
        (root / place).mkdir(parents=True, exist_ok=True)

    def mount(path: Path) -> str:
        inside = path.relative_to(root).as_posix()
        return max(
            (place for place in mounts if not place or inside == place or inside.startswith(f"{place}/")), key=len
        )

    def stat(path: Path) -> os.statvfs_result:
        free, size = mounts[mount(path)]
        favail = 0 if mount(path) == no_inodes and no_inodes else 1000
        return os.statvfs_result((MIB, MIB, size, free, free, 1000, favail, favail, 0, 255))

    return Disks(root, stat, lambda path: sorted(mounts).index(mount(path)))


def test_the_one_with_the_least_room_is_named(tmp_path: Path) -> None:
    disks = node(tmp_path, {"": (9000, 20000), "var/cache/apt": (0, 16), "boot": (300, 400)})
    assert str(disks.fullest()) == "/var/cache/apt has 0 MiB free of 16 MiB"


def test_no_inode_left_is_full_whatever_room_there_is(tmp_path: Path) -> None:
    disks = node(tmp_path, {"": (9000, 20000), "var": (5000, 9000), "boot": (3, 400)}, no_inodes="var")
    assert str(disks.fullest()) == "/var has 5000 MiB free of 9000 MiB, no inode is free"


def test_file_system_without_a_fixed_number_of_inodes_is_not_out_of_them(tmp_path: Path) -> None:
    found = os.statvfs_result((MIB, MIB, 9, 5, 5, 0, 0, 0, 0, 255))
    assert not Disks(tmp_path, lambda _: found, lambda _: 1).room(tmp_path).no_inodes


@pytest.mark.parametrize(
    "path", ["var/cache/apt", "var/cache/apt/archives", "var/cache/apt/archives/partial/not-there.deb"]
)
def test_file_system_of_a_path_is_found_also_when_the_path_is_not_there(tmp_path: Path, path: str) -> None:
    disks = node(tmp_path, {"": (9000, 20000), "var/cache/apt": (0, 16)})
    assert disks.room(tmp_path / path).place == "/var/cache/apt"


def test_root_is_called_by_its_name(tmp_path: Path) -> None:
    assert node(tmp_path, {"": (1, 20000)}).fullest().place == "/"


LISTS = (
    "  Write error - write (28: No space left on device) Could not open file "
    "/var/lib/apt/lists/partial/m_._Packages.lz4 - open (28: No space left on device) "
    "Problem closing the file  - close (9: Bad file descriptor)\nReading package lists...\nE: Some index files "
    "failed to download.\n"
)
"""Debian 12's apt on a full /var/lib/apt/lists."""

MOUNTS = {"": (9000, 20000), "var/cache/apt": (200, 400), "usr": (30, 9000), "var/lib/apt/lists": (0, 16)}
DPKG = (
    " cannot copy extracted data for './usr/bin/nvidia-smi' to '/usr/bin/nvidia-smi.dpkg-new': failed to write (No "
    "space left on device)\n"
)


@pytest.mark.parametrize(
    ("out", "actual"),
    [
        (
            "E: You don't have enough free space in /var/cache/apt/archives/.\n",
            "/ (/var/cache/apt has 200 MiB free of 400 MiB). Free disk space on the node in /var/cache/apt,",
        ),
        (
            f"dpkg: error processing archive /var/cache/apt/archives/a.deb (--unpack):\n{DPKG}",
            "No space left on device (/usr has 30 MiB free of 9000 MiB). ",
        ),
        (
            "E: Write error - write (28: No space left on device)\n",
            (
                "No space left on device (/var/lib/apt/lists has 0 MiB free of 16 MiB). "
                "Free disk space on the node in /var/lib/apt/lists,"
            ),
        ),
        (LISTS, "No space left on device (/var/lib/apt/lists has 0 MiB free of 16 MiB). "),
        (
            (
                "E: Failed to fetch http://10.0.0.2:8080/./Packages  Error writing to file - write (28: No space left "
                "on device)\n"
            ),
            "(/var/lib/apt/lists has 0",
        ),
    ],
)
def test_apt_s_words_name_it(out: str, actual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = node(tmp_path, MOUNTS)
    monkeypatch.setattr(apt_words, "Disks", lambda _root: disks)
    text = str(apt_words.explain(out, tmp_path))
    assert text.startswith("Expected: room on the node's disk for the packages Actual: ")
    assert actual in text
    assert text.endswith(", then run again.")


def test_marker_that_cannot_be_written_names_its_file_system(tmp_path: Path) -> None:
    words = r"Expected: free disk space below .* Actual: No space left on device \(/\S* has \d+ MiB free of \d+ MiB\)"
    with pytest.raises(NodeProblem, match=words), fence("install", 1, "a", folder=tmp_path / "rackready"):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "rackready" / "install.new"))


def test_without_a_path_this_machine_s_own_disks_are_looked_at() -> None:
    assert "MiB free of" in str(disk_full("room"))
