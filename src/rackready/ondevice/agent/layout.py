"""Partitions, arrays and file systems of the system disks, and of scratch disks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .choose import ESP_BYTES, Chosen
from .contents import SCRATCH, Contents
from .disks import Disk, names_of_parts
from .errors import ImagingError
from .host import Host
from .plan import Plan

_ESP_TYPE = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
_LINUX_TYPE = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
_RAID_TYPE = "A19D880F-05FC-4D3B-A006-743F0F84911E"
ESP_ARRAY, ROOT_ARRAY, SCRATCH_ARRAY = "/dev/md0", "/dev/md1", "/dev/md2"
_ARRAY_NAMES = {ESP_ARRAY: "esp", ROOT_ARRAY: "root", SCRATCH_ARRAY: SCRATCH}
TYPE = ("blkid", "--probe", "--usages", "filesystem", "--match-tag", "TYPE", "--output", "value")
_PLAIN_EXT4 = "^metadata_csum_seed,^orphan_file"
"""Features of newer e2fsprogs that older kernels and GRUB 2.06 cannot read."""


@dataclass(frozen=True)
class Volumes:
    """Devices with the file systems: partitions of one disk, or arrays of a pair."""

    esp: str
    root: str
    pair: bool


def volumes(system: Sequence[Disk]) -> Volumes:
    """Return the devices of a system on these disks."""
    if len(system) > 1:
        return Volumes(ESP_ARRAY, ROOT_ARRAY, pair=True)
    return Volumes(system[0].part(1), system[0].part(2), pair=False)


def erase(host: Host, disk: Disk, found: Contents) -> None:
    """Remove all signatures: those of arrays first, since they return with a partition at the same place."""
    for device in (*found.parts, disk.path):
        if any(item.device == device and item.kind.endswith("raid_member") for item in found.signatures):
            host.must("mdadm", "--zero-superblock", "--force", device)
    for device in found.parts:
        host.must("wipefs", "--all", "--force", "--quiet", device)


def script(label: str, *, pair: bool) -> str:
    """Return sfdisk's input: the EFI system partition first, the rest is the root file system."""
    root = _RAID_TYPE if pair else _LINUX_TYPE
    return f'label: gpt\nsize={ESP_BYTES >> 20}MiB, type={_ESP_TYPE}, name="{label}"\ntype={root}, name="{label}"\n'


def partition(host: Host, plan: Plan, system: Sequence[Disk]) -> Volumes:
    """Make partitions, arrays and file systems on erased disks. Raises ImagingError with what the tool said."""
    for disk in system:
        wipe = ("--wipe", "always", "--wipe-partitions", "always")
        host.must("sfdisk", "--quiet", *wipe, disk.path, stdin=script(plan.label, pair=len(system) > 1))
    _settle(host, system)
    made = volumes(system)
    if made.pair:
        # 1.0 is at the end of the partition: firmware sees a plain FAT file system at its beginning.
        _create(host, made.esp, "1", [disk.part(1) for disk in system], "--metadata=1.0")
        _create(host, made.root, "1", [disk.part(2) for disk in system], "--metadata=1.2", "--bitmap=internal")
    host.must("mkfs.ext4", "-q", "-F", "-O", _PLAIN_EXT4, "-L", "root", made.root)
    return made


def make_esp(host: Host, device: str) -> None:
    """Make the file system of the boot loader. It stays without content until the image is verified."""
    host.must("mkfs.vfat", "-F", "32", "-n", "ESP", device)


def make_scratch(host: Host, plan: Plan, chosen: Chosen) -> None:
    """Make the scratch file system on whole disks; several are striped."""
    for disk in chosen.scratch:
        host.must("wipefs", "--all", "--force", "--quiet", disk.path)
    device = chosen.scratch[0].path
    if len(chosen.scratch) > 1:
        device = SCRATCH_ARRAY
        _create(host, device, "0", [disk.path for disk in chosen.scratch], "--metadata=1.2")
    make_scratch_file_system(host, plan, device)


def make_scratch_file_system(host: Host, plan: Plan, device: str) -> None:
    """Make the file system of scratch on a disk or array."""
    quick = ("-q", "-F", "-m", "0") if plan.scratch_filesystem == "ext4" else ("-q", "-f")
    host.must(f"mkfs.{plan.scratch_filesystem}", *quick, "-L", SCRATCH, device)


def _create(host: Host, device: str, level: str, members: list[str], *options: str) -> None:
    host.call(("modprobe", f"raid{level}"))  # built into some kernels; mdadm reports a missing personality
    named = (f"--name={_ARRAY_NAMES[device]}", "--homehost=any")
    host.must(
        "mdadm", "--create", device, "--run", "--quiet", *named, f"--level={level}", f"--raid-devices={len(members)}",
        *options, *members,
    )  # fmt: skip


def assemble(host: Host, device: str, members: Sequence[str], *, read_only: bool) -> bool:
    """Assemble an array of these members and return whether it runs, with one member missing also."""
    host.call(("modprobe", "raid1"))
    options = ("--run", "--readonly") if read_only else ("--run",)
    return host.call(("mdadm", "--assemble", device, *options, *members)).code == 0


def stop(host: Host) -> None:
    """Stop our arrays, so that they are clean at the next boot."""
    for device in (ESP_ARRAY, ROOT_ARRAY, SCRATCH_ARRAY):
        if host.path(f"/sys/block/{device.removeprefix('/dev/')}/md").is_dir():
            host.must("mdadm", "--stop", device)


def _settle(host: Host, system: Sequence[Disk]) -> None:
    """Wait until the kernel has the new partitions. Raises ImagingError if it has others."""
    for disk in system:
        host.call(("blockdev", "--rereadpt", disk.path))  # busy if udev looks at it; then it has them already
        host.call(("udevadm", "settle", "--timeout=60"))
        names = names_of_parts(host, disk)
        if len(names) != 2:  # noqa: PLR2004 - ESP and root
            raise ImagingError(
                "tool", f"{disk.called}", expected="2 partitions", actual=f"{', '.join(names) or 'none'}"
            )


def uuid(host: Host, device: str) -> str:
    """Return the UUID of a file system. Raises ImagingError without one."""
    found = host.must("blkid", "--probe", "--match-tag", "UUID", "--output", "value", device).strip()
    if not found:
        raise ImagingError("tool", f"{device}", expected="a file system with a UUID", actual="none")
    return found


def file_system(host: Host, device: str) -> str:
    """Return the type of a file system, as mount takes it. Raises ImagingError without one."""
    found = host.must(*TYPE, device).strip()
    if not found:
        raise ImagingError("tool", f"{device}", expected="a file system", actual="none")
    return found


def array_uuid(host: Host, device: str) -> str:
    """Return the UUID of an array, as mdadm and dracut write it: 4 groups of 8 hexadecimal digits with colons.

    Raises ImagingError without one.
    """
    # dracut-rhel9, modules.d/90mdraid/mdraid_start.sh reads it in the same way.
    out = host.must("mdadm", "--detail", "--export", device)
    found = [line.removeprefix("MD_UUID=") for line in out.splitlines() if line.startswith("MD_UUID=")]
    if not found:
        raise ImagingError("tool", f"{device}", expected="an array with MD_UUID", actual="none")
    return found[0]
