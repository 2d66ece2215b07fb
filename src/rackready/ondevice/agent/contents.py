"""What is on a disk: partitions, file systems, members of RAID and LVM, and whether any of it is in use."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .disks import Disk, names_of_parts
from .errors import ImagingError
from .host import Host

SCRATCH = "scratch"
"""Label of scratch file systems that we made, and name of their array."""
_LABEL = re.compile(r"^rackready-[0-9a-f]{8}$")
_TABLES = {"gpt", "PMBR", "dos", "atari", "sun", "mac", "bsd", "sgi"}
_EDGE = 1 << 20
"""Bytes at each end of a disk that must be zero in an empty one."""


@dataclass(frozen=True)
class Signature:
    """A file system or member of an array on a device."""

    device: str
    kind: str
    label: str = ""

    @property
    def words(self) -> str:
        """Text for people: ``ext4 'root' on /dev/vda2``."""
        return f"{self.kind}{f' {self.label!r}' if self.label else ''} on {self.device}"


@dataclass(frozen=True)
class Contents:
    """What a disk holds. ``label``: name of all its partitions if we made them; ``used``: what uses it now."""

    holds: tuple[str, ...] = ()
    label: str = ""
    signatures: tuple[Signature, ...] = ()
    parts: tuple[str, ...] = ()
    used: tuple[str, ...] = ()

    @property
    def is_scratch(self) -> bool:
        """Whether it is a scratch disk that we made: its file system's label, or its array's name."""
        labels = {item.label.rpartition(":")[2] for item in self.signatures}
        return bool(self.signatures) and not self.parts and labels == {SCRATCH}


def look(host: Host, disk: Disk) -> Contents:
    """Return what a disk holds. Nothing is changed. Raises ImagingError when it cannot be read."""
    names = names_of_parts(host, disk)
    table = _table(host, disk)
    own = signatures(host, disk.path)
    found = [item for item in own if item.kind not in _TABLES]
    for name in names:
        found += signatures(host, f"/dev/{name}")
    labels = {str(item.get("name", "")) for item in table.get("partitions", [])}
    label = labels.pop() if len(labels) == 1 else ""
    holds = [_table_words(table)] if table.get("partitions") else []
    holds += [item.words for item in found]
    if table and not holds:
        holds = [_table_words(table)]
    if not holds and own:
        holds = [f"{own[0].kind} on {disk.path}"]
    if not holds and not edges_are_zero(host, disk):
        holds = ["data without a known signature"]
    return Contents(
        tuple(holds),
        label if _LABEL.match(label) else "",
        tuple(found),
        tuple(f"/dev/{name}" for name in names),
        _used(host, disk, names),
    )


def _table_words(table: dict[str, Any]) -> str:
    count = len(table.get("partitions", []))
    return f"{table.get('label', 'unknown')}, {count} partition{'' if count == 1 else 's'}"


def _table(host: Host, disk: Disk) -> dict[str, Any]:
    done = host.call(("sfdisk", "--json", disk.path))
    if done.code != 0:
        return {}  # no partition table; that the disk can be read at all, its signatures show
    parsed: dict[str, Any] = json.loads(done.out).get("partitiontable", {})
    return parsed


def signatures(host: Host, device: str) -> list[Signature]:
    """Return each kind of signature on a device once. Raises ImagingError if it cannot be read."""
    out = host.must("wipefs", "--json", "--no-act", device).strip()
    items = json.loads(out).get("signatures", []) if out else []
    found = [Signature(device, str(item["type"]), str(item.get("label") or "")) for item in items]
    return list(dict.fromkeys(found))


def edges_are_zero(host: Host, disk: Disk) -> bool:
    """Whether nothing but zeros is at both ends of a device. Raises ImagingError if it cannot be read."""
    try:
        with host.path(disk.path).open("rb") as device:
            first = device.read(_EDGE)
            device.seek(max(disk.size - _EDGE, 0))
            last = device.read(_EDGE)
    except OSError as error:
        raise ImagingError("disk-error", f"{disk.called}", expected="can be read", actual=f"{error}") from error
    return not any(first) and not any(last)


def _used(host: Host, disk: Disk, names: list[str]) -> tuple[str, ...]:
    used = []
    for place in (disk.name, *(f"{disk.name}/{name}" for name in names)):
        folder = host.path(f"/sys/block/{place}/holders")
        holders = sorted(folder.iterdir()) if folder.is_dir() else []
        used += [f"/dev/{place.rpartition('/')[2]} is part of {holder.name}" for holder in holders]
    devices = {f"/dev/{name}" for name in (disk.name, *names)}
    for table, what in (("/proc/mounts", "mounted"), ("/proc/swaps", "used as swap")):
        rows = [line.split() for line in host.read(table).splitlines()]
        used += [f"{row[0]} is {what}" for row in rows if row and row[0] in devices]
    return tuple(used)
