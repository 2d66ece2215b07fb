"""A machine for tests of the agent: sysfs in a folder, and the answers of its tools.

Answers: util-linux 2.38.1 (wipefs, sfdisk), mdadm 4.2, udev 252 of Debian 12, run on image files of 100 to 300 MB,
2026-11; device names are replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rackready.ondevice.agent.host import Ended, Host

DIGEST = "ab" * 32
LABEL = "rackready-abababab"
NO_SIGNATURE = '{\n   "signatures": [\n\n   ]\n}\n'
NO_TABLE = Ended(1, "", "sfdisk: {device}: does not contain a recognized partition table\n")


def signatures(device: str, *found: tuple[str, str]) -> str:
    """Return wipefs' JSON: a row per kind and label."""
    rows = [
        {"device": device, "offset": hex(0x438 + place), "type": kind, "uuid": None, "label": label or None}
        for place, (kind, label) in enumerate(found)
    ]
    return json.dumps({"signatures": rows})


def table(device: str, names: Sequence[str]) -> str:
    """Return sfdisk's JSON of a GPT with partitions of these names."""
    parts = [
        {"node": f"{device}{place}", "start": 2048, "size": 102400, "type": "0FC6", "uuid": "C19B", "name": name}
        for place, name in enumerate(names, start=1)
    ]
    whole = {"label": "gpt", "device": device, "unit": "sectors", "sectorsize": 512, "partitions": parts}
    return json.dumps({"partitiontable": whole})


class Machine(Host):
    """A host whose programs give canned answers; ``ran`` has what ran, the question about devices left out."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.answers: dict[tuple[str, ...], Ended] = {}
        self.ran: list[str] = []
        self.inputs: list[str] = []

    def call(self, argv: Sequence[str], *, stdin: str = "") -> Ended:
        command = tuple(argv)
        self.ran.append(" ".join(command))
        self.inputs += [stdin] if stdin else []
        for known, done in self.answers.items():
            if command[: len(known)] == known:
                return done
        if command[:2] == ("wipefs", "--json"):
            return Ended(0, NO_SIGNATURE)
        if command[:2] == ("sfdisk", "--json"):
            return NO_TABLE
        return Ended(0, "")

    def put(self, path: str, text: str = "") -> None:
        """Write a file of the machine."""
        place = self.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def add_disk(self, name: str, *, size: int = 100 << 30, serial: str = "", kind: str = "virtio") -> None:
        """Add an empty disk; only its ends exist."""
        self.put(f"/sys/block/{name}/size", f"{size // 512}\n")
        if serial and kind == "virtio":
            self.put(f"/sys/block/{name}/serial", serial)
        if serial and kind == "nvme":
            self.put(f"/sys/block/{name}/device/serial", f"{serial}   \n")
        with self._device(name).open("wb") as device:
            device.truncate(size)

    def udev(self, name: str, *lines: str) -> None:
        """Set udev's record of a disk."""
        self.answers["udevadm", "info", "--query=all", f"--name=/dev/{name}"] = Ended(0, "\n".join(lines) + "\n")

    def add_part(self, disk: str, name: str, *found: tuple[str, str]) -> None:
        """Add a partition with signatures."""
        self.put(f"/sys/block/{disk}/{name}/partition", "1\n")
        self.answers["wipefs", "--json", "--no-act", f"/dev/{name}"] = Ended(0, signatures(name, *found))

    def partitioned(self, disk: str, names: Sequence[str]) -> None:
        """Give a disk a partition table."""
        self.answers["sfdisk", "--json", f"/dev/{disk}"] = Ended(0, table(f"/dev/{disk}", names))
        found = signatures(disk, ("gpt", ""), ("PMBR", ""))
        self.answers["wipefs", "--json", "--no-act", f"/dev/{disk}"] = Ended(0, found)

    def _device(self, name: str) -> Path:
        path = self.path(f"/dev/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def document(**changes: object) -> dict[str, object]:
    """Return a plan with changes."""
    plan: dict[str, object] = {
        "schema": "rackready/imaging/v1",
        "node": "node01",
        "digest": DIGEST,
        "serial": "ABC123",
        "image": {
            "name": "debian12",
            "url": "https://192.0.2.1:8443/images/x.tar.zst",
            "sha256": "cd" * 32,
            "size": 1000,
            "unpacked": 2 << 30,
        },
        "disks": {
            "system": [{"serial": "S1"}],
            "scratch": [],
            "scratch_filesystem": "ext4",
            "scratch_mount": "/scratch",
        },
        "erase": False,
        "kernel_options": ["console=ttyS0"],
        "hostname": "node01",
        "seed": {"user-data": "#cloud-config\n", "meta-data": "instance-id: a\n", "network-config": "version: 2\n"},
        "secure_boot": "any",
    }
    return {**plan, **changes}
