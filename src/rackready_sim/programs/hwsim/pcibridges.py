"""The bridges above each GPU and its NIC: the kernel's device tree that the list /sys/bus/pci/devices links to.

Each bridge has the link attributes of sysfs. The folders of GPU and NIC are below their switch, and the list has links
to all of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import paths

SPEED = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
    6: "64.0 GT/s PCIe",
}
_LIST = "/sys/bus/pci/devices"
_TREE = "/run/hw/pci"
_IDS = {"root": ("0x8086", "0x352a"), "up": ("0x1000", "0xc030"), "down": ("0x1000", "0xc030")}
"""Vendor and device of a Sapphire Rapids root port and of a Broadcom PEX890xx switch, as in this server."""


def place(pci: str) -> Path:
    """Return the folder of a device: the target of its link in the list, else the list's own entry."""
    return paths.at(f"{_LIST}/{pci}")


def write(pci: str, bridges: list[dict[str, Any]]) -> None:
    """Lay out the bridges of one device, nearest first in the list, and the device's folder below them."""
    if not bridges:
        return
    folder = paths.at(f"{_TREE}/pci{bridges[-1]['pci'][:7]}")
    for bridge in reversed(bridges):
        folder = folder / bridge["pci"]
        folder.mkdir(parents=True, exist_ok=True)
        _link(folder)
        _bridge(place(bridge["pci"]), bridge)
    folder = folder / pci
    folder.mkdir(exist_ok=True)
    _link(folder)


def _link(folder: Path) -> None:
    entry = place(folder.name)
    entry.parent.mkdir(parents=True, exist_ok=True)
    if not entry.is_symlink() and not entry.exists():
        entry.symlink_to(os.path.relpath(folder, entry.parent))


def _bridge(folder: Path, bridge: dict[str, Any]) -> None:
    vendor, device = _IDS[bridge["kind"]]
    values = {
        "vendor": vendor,
        "device": device,
        "class": "0x060400",
        "revision": "0xb0",
        "numa_node": "-1",
        "irq": "0",
        "current_link_speed": SPEED[bridge["gen"]],
        "current_link_width": str(bridge["width"]),
        "max_link_speed": SPEED[bridge["max_gen"]],
        "max_link_width": str(bridge["max_width"]),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7),
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout "
        "0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF "
        "0\nTOTAL_ERR_COR 0",
    }
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    if not (folder / "config").exists():
        (folder / "config").write_bytes(bytes.fromhex(f"{_swap(vendor)}{_swap(device)}") + bytes(252))


def _swap(word: str) -> str:
    """Return a 16-bit number as in configuration space, low byte first."""
    return word[4:6] + word[2:4]
