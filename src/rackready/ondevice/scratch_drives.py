"""The drives of a node's scratch disks: what they are, marks on them, and their erase by themselves."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from . import nvme_admin

MARK_BYTES = 4096
_FORMAT_S, _SLOWEST = 3600.0, 1e9
"""Longest erase of one drive: s, and its size at bytes/s. A user data erase may overwrite all of it. Judgement: drives
with PCIe 4 and 5 write 2 to 7 GB/s."""


class RefusedError(Exception):
    """The disks are not erased, or not as asked; the argument says why."""


class Drives:
    """The node's files, programs and devices below a root."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)

    def at(self, path: str) -> Path:
        """Return where a path of the node lies."""
        return self.root / path.lstrip("/")

    def run(self, *argv: str, timeout_s: float = 120) -> tuple[int, str]:
        """Return exit code and output, errors included; 127 when the program is not there, 124 after the limit."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError:
            return 127, f"{argv[0]} is not installed"
        except subprocess.TimeoutExpired:
            return 124, f"{argv[0]}: no end within {timeout_s:g} s"
        return done.returncode, done.stdout.decode(errors="replace")

    def must(self, *argv: str, timeout_s: float = 120) -> str:
        """Return a program's output. Raises RefusedError with what it said when it fails."""
        code, out = self.run(*argv, timeout_s=timeout_s)
        if code != 0:
            raise RefusedError(f"{' '.join(argv)}: exit {code}: {' '.join(out.split())[-300:] or 'no output'}")
        return out

    def real(self, path: str) -> str:
        """Return the name of a block device without /dev/ and links."""
        return os.path.realpath(self.at(path)).rsplit("/", 1)[-1]

    def take(self, device: str) -> None:
        """Make sure that no mount of any namespace and no array has a device (open(2), O_EXCL). Raises OSError."""
        os.close(os.open(self.at(device), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))

    def drive_id(self, name: str) -> str:
        """Return what the kernel knows a namespace by, and the serial number of its drive. Raises RefusedError."""
        texts = []
        for file in ("wwid", "device/serial"):
            path = self.at(f"sys/block/{name}/{file}")
            texts.append(path.read_text(errors="replace").strip() if path.exists() else "")
        if not all(texts):
            raise RefusedError(
                f"/dev/{name}: the kernel tells no identity of it: wwid {texts[0]!r}, serial {texts[1]!r}"
            )
        return " ".join(texts)

    def look(self, device: str) -> nvme_admin.NvmeDrive:
        """Return what a drive can do. Raises OSError and NvmeError."""
        return nvme_admin.look(str(self.at(device)))

    def format(self, device: str, drive: nvme_admin.NvmeDrive, timeout_s: float) -> None:
        """Have a drive erase itself. Raises OSError and NvmeError."""
        nvme_admin.erase(str(self.at(device)), drive, timeout_s)

    def has(self, program: str) -> bool:
        """Return whether a program is installed."""
        return shutil.which(program) is not None

    def size(self, device: str) -> int:
        """Return the size of a device, bytes."""
        with self.at(device).open("rb") as file:
            return file.seek(0, os.SEEK_END)

    def places(self, device: str) -> list[int]:
        """Return the offsets of the marks on a device, bytes."""
        size = self.size(device)
        if size < 3 * MARK_BYTES:
            raise RefusedError(f"{device}: {size} bytes: too small to be marked")
        return [place // MARK_BYTES * MARK_BYTES for place in (0, size // 2, size - MARK_BYTES)]

    def mark(self, device: str, mark: bytes) -> None:
        """Write a mark to each of its places, and make sure that it is on the device."""
        with self.at(device).open("r+b", buffering=0) as file:
            for place in self.places(device):
                os.pwrite(file.fileno(), mark, place)
            os.fsync(file.fileno())

    def marked(self, device: str, mark: bytes) -> list[int]:
        """Return the offsets at which a mark can be read. The page cache is left out."""
        self.run("blockdev", "--flushbufs", device)
        places = self.places(device)
        with self.at(device).open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return [place for place in places if os.pread(file.fileno(), MARK_BYTES, place) == mark]


def drive_that_formats(disks: Drives, member: str) -> nvme_admin.NvmeDrive:
    """Return what a drive can do. Raises RefusedError for one that has no Format NVM, or gives no answer."""
    try:
        drive = disks.look(member)
    except (nvme_admin.NvmeError, OSError) as error:
        raise RefusedError(f"{member}: its drive does not say what it can do: {error}") from error
    if not drive.formats:
        raise RefusedError(f"{member}: its drive cannot erase itself: no Format NVM (OACS bit 1)")
    return drive


def longest_s(disks: Drives, member: str) -> float:
    """Return the longest time that an erase of a drive may take, s."""
    return _FORMAT_S + disks.size(member) / _SLOWEST


def erase_drive(disks: Drives, member: str) -> None:
    """Mark a drive, have it erase itself, and look for the marks. Raises RefusedError."""
    drive = drive_that_formats(disks, member)
    mark = secrets.token_bytes(MARK_BYTES)
    disks.mark(member, mark)
    if len(disks.marked(member, mark)) != len(disks.places(member)):
        raise RefusedError(f"{member}: a mark that was written cannot be read: the drive does not keep data")
    try:
        disks.format(member, drive, longest_s(disks, member))
    except (nvme_admin.NvmeError, OSError) as error:
        raise RefusedError(f"{member}: its drive did not erase itself: {error}") from error
    left = disks.marked(member, mark)
    if left:
        raise RefusedError(f"{member}: Format NVM ended well, but the mark at byte {left[0]} is still there")
