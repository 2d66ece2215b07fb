"""PCI bridges with access control, and the kernel's facts of each device: error counters and IOMMU group."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from .. import paths, store

_KINDS = {"root": (0x4, 0x8086, 0x352A), "upstream": (0x5, 0x1000, 0xC030), "downstream": (0x6, 0x1000, 0xC030)}
"""Device/port type of the PCI Express capability, vendor, device: Intel's root ports, Broadcom's PEX890xx switches."""
_ACS = 0x220
_CONTROL = slice(_ACS + 6, _ACS + 8)
_ACS_ON = 0x001D
"""Source validation, request and completion redirect, upstream forwarding."""
_COUNTED = {
    "aer_dev_correctable": (
        "RxErr",
        "BadTLP",
        "BadDLLP",
        "Rollover",
        "Timeout",
        "NonFatalErr",
        "CorrIntErr",
        "HeaderOF",
        "TOTAL_ERR_COR",
    ),
    "aer_dev_nonfatal": (
        "Undefined",
        "DLP",
        "SDES",
        "TLP",
        "FCP",
        "CmpltTO",
        "CmpltAbrt",
        "UnxCmplt",
        "RxOF",
        "MalfTLP",
        "ECRC",
        "TOTAL_ERR_NONFATAL",
    ),
    "aer_dev_fatal": (
        "Undefined",
        "DLP",
        "SDES",
        "TLP",
        "FCP",
        "CmpltTO",
        "CmpltAbrt",
        "UnxCmplt",
        "RxOF",
        "MalfTLP",
        "ECRC",
        "TOTAL_ERR_FATAL",
    ),
}


def bridge(part: dict[str, Any]) -> None:
    """Lay out one bridge: type 1 header, PCI Express and access control capabilities."""
    kind, vendor, device = _KINDS[part["kind"]]
    place = paths.at(f"/sys/bus/pci/devices/{part['pci']}")
    place.mkdir(parents=True, exist_ok=True)
    values = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "class": "0x060400",
        "irq": "0",
        "numa_node": "0",
        "revision": "0xb0",
    }
    nothing = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
    values |= {"subsystem_vendor": "0x0000", "subsystem_device": "0x0000", "resource": "\n".join([nothing] * 13)}
    for name, value in values.items():
        (place / name).write_text(f"{value}\n")
    space = bytearray(_config(part, kind, vendor, device))
    seen = paths.at(f"/run/hw/acs/{part['pci']}")
    old = (place / "config").read_bytes() if (place / "config").exists() else b""
    if len(old) == len(space) and seen.exists() and seen.read_text() == str(part["acs"]):
        space[_CONTROL] = old[_CONTROL]  # what software wrote since power-on or the fault
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.write_text(str(part["acs"]))
    (place / "config").write_bytes(bytes(space))


def _config(part: dict[str, Any], kind: int, vendor: int, device: int) -> bytes:
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, vendor, device, 0x0407, 0x0010)
    space[8] = 0xB0
    space[9:12] = struct.pack("<I", 0x060400)[:3]
    space[0x0E] = 1
    space[0x18:0x1B] = bytes(part["buses"])
    space[0x34] = 0x68
    struct.pack_into("<BBH", space, 0x68, 0x10, 0, 0x0002 | kind << 4)
    struct.pack_into("<I", space, 0x6C, 0x00008001)
    struct.pack_into("<I", space, 0x74, 5 | 16 << 4)
    struct.pack_into("<HH", space, 0x78, 0, 5 | 16 << 4)
    struct.pack_into("<I", space, 0x100, 0x0001 | 2 << 16 | _ACS << 20)
    struct.pack_into("<I", space, _ACS, 0x000D | 1 << 16)
    struct.pack_into("<HH", space, _ACS + 4, 0x005F, _ACS_ON if part["acs"] else 0)
    return bytes(space)


def aer(pci: str) -> dict[str, str]:
    """Return the kernel's error counters of one device since power-on: file to text."""
    seen = store.runtime().get("aer", {}).get(pci, {})
    return {
        name: "\n".join(f"{row} {seen.get(name, 0) if row in {'RxErr', 'DLP', rows[-1]} else 0}" for row in rows)
        for name, rows in _COUNTED.items()
    }


def iommu(place: Path) -> None:
    """Write the type of the device's IOMMU group."""
    kind = (
        store.hardware().get("host", {}).get("iommu", "identity")
        if paths.at("/opt/hw/state.json").exists()
        else "identity"
    )
    group = place / "iommu_group"
    group.mkdir(exist_ok=True)
    (group / "type").write_text(f"{kind}\n")
