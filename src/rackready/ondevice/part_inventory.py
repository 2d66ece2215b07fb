"""Print the parts that a node's kernel sees (PCI functions with links, disks, memory) as one JSON document.

Sent to its python3 on standard input. Everything comes from sysfs. Missing parts are left out; the reader who compares
two documents decides what that means.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

FORMAT = "rackready/part-inventory/v1"
PCI = "/sys/bus/pci/devices"
BLOCK = "/sys/block"
MEMORY = "/sys/devices/system/memory"


def main() -> int:
    """Print the document; always exit 0."""
    document = {
        "format": FORMAT,
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "pci": pci(),
        "disks": disks(),
        "memory_bytes": memory(),
        "complete": True,
    }
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read or is empty."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().strip() or None
    except OSError:
        return None


def entries(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none when it does not exist."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def pci() -> dict[str, Any]:
    """Return every PCI function by address: vendor:device, class, and lanes and speed of its link (null for none)."""
    found = {}
    for address in entries(PCI):
        base = f"{PCI}/{address}"
        width, speed = read(f"{base}/current_link_width"), read(f"{base}/current_link_speed")
        found[address] = {
            "id": f"{read(f'{base}/vendor')}:{read(f'{base}/device')}",
            "class": read(f"{base}/class"),
            "width": int(width) if width and width.isdigit() and width != "0" else None,
            "speed": speed if speed and speed[0].isdigit() else None,
        }
    return found


def disks() -> dict[str, Any]:
    """Return every disk that has a serial number or a world-wide name, by that identity.

    Each with its kernel name and size in 512-byte sectors.
    """
    found = {}
    for name in entries(BLOCK):
        identity = (
            read(f"{BLOCK}/{name}/device/serial") or read(f"{BLOCK}/{name}/device/wwid") or read(f"{BLOCK}/{name}/wwid")
        )
        if identity:
            found[identity] = {"name": name, "sectors": read(f"{BLOCK}/{name}/size")}
    return found


def memory() -> int | None:
    """Return the memory in bytes: blocks that are online.

    Unlike MemTotal it does not change with what firmware and kernel reserve.
    """
    size = read(f"{MEMORY}/block_size_bytes")
    blocks = [name for name in entries(MEMORY) if name.startswith("memory") and name[6:].isdigit()]
    return int(size, 16) * len(blocks) if size and blocks else None


if __name__ == "__main__":
    sys.exit(main())
