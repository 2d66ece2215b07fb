"""The power goes while a disk is written, and again when it is whole: written anew once, and then never again."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest

from rackready.drivers.redfish import PowerAction
from tests.metal.bare import bare_metal

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_SECTOR = 512
_BOOT_SIGNATURE = b"\x55\xaa"
"""At byte 510 of a FAT file system (Microsoft's FAT specification, fatgen103)."""
_UUID_AT = 1024 + 0x68
"""Place of the file system's UUID in ext4 (Linux, Documentation/filesystems/ext4/super.rst)."""


def part_starts(disk: Path) -> list[int]:
    """Return the first byte of each partition."""
    done = subprocess.run(["sfdisk", "--json", str(disk)], capture_output=True, text=True, check=True, timeout=60)
    return [part["start"] * _SECTOR for part in json.loads(done.stdout)["partitiontable"]["partitions"]]


def bytes_at(disk: Path, place: int, count: int) -> bytes:
    with disk.open("rb") as source:
        source.seek(place)
        return source.read(count)


def root_uuid(disk: Path) -> str:
    """Return the UUID of the root file system: each `mkfs` makes another one."""
    return str(uuid.UUID(bytes=bytes_at(disk, part_starts(disk)[1] + _UUID_AT, 16)))


def has_loader(disk: Path) -> bool:
    """Whether the EFI system partition has a file system: without one, no firmware boots the disk."""
    return bytes_at(disk, part_starts(disk)[0] + 510, 2) == _BOOT_SIGNATURE


def test_a_half_written_disk_is_written_anew_and_a_whole_one_never(tmp_path: Path) -> None:
    with bare_metal(tmp_path / "clone") as machine:
        machine.kill(machine.until_said("ramdisk: writing 30 %"))
        machine.power(PowerAction.OFF)
        half = root_uuid(machine.disk(0))
        assert not has_loader(machine.disk(0)), "a half-written disk could boot"

        child = machine.until_said("ramdisk: verified")
        assert len(machine.boots_with("writing")) == 2, "the write was not begun anew"
        # The controller dies, with its boot service, and then the power goes: only the disk knows that it is whole.
        machine.kill(child)
        assert machine.run("boot-service", "stop")[0] == 0
        assert machine.console_says("] done 100 %", 600)
        machine.power(PowerAction.OFF)
        whole = root_uuid(machine.disk(0))
        assert whole != half
        assert has_loader(machine.disk(0))
        assert not machine.boots_with("done")

        document = machine.provision()
        assert document["nodes"][0]["state"] == "provisioned", document
        assert len(machine.boots_with("writing")) == 2, "a whole disk was written again"
        (last,) = [report for report in machine.reports() if report["step"] == "done"]
        assert last["message"] == "the disks have this image already: nothing was written"
        assert machine.power_ons() == 3
        machine.check_installed()
        assert machine.on_node("findmnt -no UUID /") == whole
