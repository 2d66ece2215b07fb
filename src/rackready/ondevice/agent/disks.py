"""The disks of the machine: found in sysfs, told apart by serial number or stable path."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ImagingError
from .host import Host
from .plan import Ref

WAIT_S = 30.0
"""Time that disks get to appear: shelves and controllers take some after the kernel's start (ironic-python-agent)."""
_NOT_DISKS = re.compile(r"^(loop|ram|zram|md|dm-|sr|fd|nbd|rbd|mtdblock)")
_SECTOR = 512
"""Unit of sizes in sysfs, whatever the disk's own sector is, in bytes."""


@dataclass(frozen=True)
class Disk:
    """A whole disk. ``size`` in bytes; ``serials``: every number by which it may be called, the first is shown."""

    name: str
    size: int
    serials: tuple[str, ...] = ()
    model: str = ""
    links: tuple[str, ...] = ()
    read_only: bool = False

    @property
    def path(self) -> str:
        """Path of the device."""
        return f"/dev/{self.name}"

    @property
    def serial(self) -> str:
        """Serial number that is shown."""
        return self.serials[0] if self.serials else ""

    @property
    def called(self) -> str:
        """Name in messages."""
        return f"{self.path} (serial {self.serial or 'none'}, {gigabytes(self.size)})"

    def part(self, number: int) -> str:
        """Return the path of a partition: names that end in a digit have a p before its number."""
        return f"{self.path}{'p' if self.name[-1].isdigit() else ''}{number}"

    def fits(self, ref: Ref) -> bool:
        """Whether a reference means this disk."""
        return ref.serial in self.serials if ref.serial else ref.path in self.links


def gigabytes(size: int) -> str:
    """Return a size as drives are labelled, in powers of ten."""
    return f"{size / 1e9:.1f} GB"


def discover(host: Host) -> list[Disk]:
    """Return all disks with a medium, by name.

    A hidden one is a path of an NVMe drive with native multipath, such as nvme0c0n1 below nvme0n1: it has the drive's
    size and serial number, and cannot be opened (Linux, Documentation/ABI/stable/sysfs-block).
    """
    folder = host.path("/sys/block")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    shown = [name for name in names if not _NOT_DISKS.match(name) and host.read(f"/sys/block/{name}/hidden") != "1"]
    disks = [_disk(host, name) for name in shown]
    return [disk for disk in disks if disk.size > 0]


def wait_for(host: Host, refs: Sequence[Ref], *, limit_s: float = WAIT_S, pause: float = 1.0) -> list[Disk]:
    """Return all disks as soon as each reference has one, or those there are after 30 s."""
    ends = time.monotonic() + limit_s
    while True:
        host.call(("udevadm", "settle", "--timeout=30"))
        disks = discover(host)
        if all(any(disk.fits(ref) for disk in disks) for ref in refs) or time.monotonic() >= ends:
            return disks
        time.sleep(pause)


def find(disks: Sequence[Disk], ref: Ref) -> Disk:
    """Return the one disk of a reference. Raises ImagingError when there is none, or several."""
    found = [disk for disk in disks if disk.fits(ref)]
    if not found:
        known = ", ".join(disk.called for disk in disks) or "no disk at all"
        raise ImagingError(
            "disk-missing",
            f"disk {ref}",
            expected="present",
            actual=known,
            next_step="Correct the site file, or look at the disk.",
        )
    if len(found) > 1:
        raise ImagingError(
            "disk-ambiguous",
            f"disk {ref}",
            expected="one disk",
            actual=f"{', '.join(disk.called for disk in found)}",
            next_step="Name it by path in the site file.",
        )
    return found[0]


def _disk(host: Host, name: str) -> Disk:
    base = f"/sys/block/{name}"
    about = _udev(host, name)
    numbers = (
        host.read(f"{base}/device/serial"),  # NVMe, also below its subsystem
        host.read(f"{base}/serial"),  # virtio
        about.get("ID_SCSI_SERIAL", ""),  # the unit's own number (page 0x80); ID_SERIAL_SHORT is the WWN there
        about.get("ID_SERIAL_SHORT", ""),
        about.get("SCSI_IDENT_SERIAL", ""),
    )
    return Disk(
        name,
        int(host.read(f"{base}/size") or 0) * _SECTOR,
        tuple(dict.fromkeys(number.strip() for number in numbers if number.strip())),
        host.read(f"{base}/device/model") or about.get("ID_MODEL", ""),
        tuple(f"/dev/{link}" for link in about.get("links", "").split()),
        host.read(f"{base}/ro") == "1",
    )


def _udev(host: Host, name: str) -> dict[str, str]:
    """Return what udev knows of a disk. ``links``: its links below /dev."""
    done = host.call(("udevadm", "info", "--query=all", f"--name=/dev/{name}"))
    about: dict[str, str] = {}
    links = []
    for line in done.out.splitlines():
        kind, _, value = line.partition(": ")
        if kind == "E":
            key, _, text = value.partition("=")
            about[key] = text
        elif kind == "S":
            links.append(value)
    return {**about, "links": " ".join(links)}


def names_of_parts(host: Host, disk: Disk) -> list[str]:
    """Return the names of a disk's partitions, as the kernel has them."""
    folder = host.path(f"/sys/block/{disk.name}")
    found: list[Path] = sorted(folder.glob(f"{disk.name}*")) if folder.is_dir() else []
    return [path.name for path in found if (path / "partition").is_file()]
