"""What a hypervisor's kernel shows of its devices, IOMMU, memory and firmware: read only, judged on the controller.

Reads one JSON document, {"devices": [PCI addresses], "files": [paths]}; standard library alone. ``resource``: one line
per window, start, end and flags (Documentation/filesystems/sysfs-pci); bit 0x200 of the flags: memory
(include/linux/ioport.h, IORESOURCE_MEM).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MEMORY = 0x200
_BARS = 6
"""A device's own windows are the first six lines; ROM and bridge windows follow."""
_TOOLS = ("virsh", "qemu-img", "xorriso", "genisoimage", "mkisofs")
_MODE = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
_PAGES_KIB = {"1G": 1048576, "2M": 2048}


def read(root: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the machine whose file system starts at ``root``."""
    return {
        "devices": {pci: _device(root, pci) for pci in asked["devices"]},
        "groups": len(list((root / "sys/kernel/iommu_groups").glob("*"))),
        "tables": [name for name in ("DMAR", "IVRS") if (root / "sys/firmware/acpi/tables" / name).exists()],
        "cmdline": _text(root / "proc/cmdline"),
        "kvm": (root / "dev/kvm").exists(),
        "numa": {str(number): _numa(folder) for number, folder in _numas(root)},
        "fabric_mode": _fabric_mode(root),
        "partitions": _partitions(),
        "files": {path: (root / path.lstrip("/")).exists() for path in asked["files"]},
        "tools": [name for name in _TOOLS if shutil.which(name)],
    }


def _device(root: Path, pci: str) -> dict[str, Any] | None:
    folder = root / "sys/bus/pci/devices" / pci
    if not folder.exists():
        return None
    group = folder / "iommu_group"
    members = sorted(path.name for path in (group / "devices").glob("*")) if group.exists() else []
    others = root / "sys/bus/pci/devices"
    return {
        "vendor": _text(folder / "vendor"),
        "class": _text(folder / "class"),
        "driver": _name(folder / "driver"),
        "group": _name(group),
        "members": {
            name: {"class": _text(others / name / "class"), "driver": _name(others / name / "driver")}
            for name in members
        },
        "numa": int(_text(folder / "numa_node") or -1),
        "bars": list(_bars(_text(folder / "resource"))),
        "physfn": _name(folder / "physfn"),
    }


def _bars(text: str) -> Iterator[int]:
    """Yield the size of each memory window in bytes; 0 for one that the firmware gave no place."""
    for line in text.splitlines()[:_BARS]:
        start, end, flags = (int(word, 16) for word in line.split())
        if flags & _MEMORY:
            yield end - start + 1 if start else 0


def _numas(root: Path) -> Iterator[tuple[int, Path]]:
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        yield int(folder.name[4:]), folder


def _numa(folder: Path) -> dict[str, Any]:
    pages = {name: folder / f"hugepages/hugepages-{size}kB/free_hugepages" for name, size in _PAGES_KIB.items()}
    free = {name: int(_text(path) or 0) for name, path in pages.items()}
    return {"cpus": _text(folder / "cpulist"), "free": free}


def _fabric_mode(root: Path) -> str:
    for line in _text(root / _MODE).splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "FABRIC_MODE":
            return value.strip()
    return ""


def _partitions() -> list[dict[str, int]] | None:
    """Return the fabric manager's partitions: GPUs, and 1 where active; None where `fmpm` does not tell.

    Format: NVIDIA/Fabric-Manager-Client, fmpm.cpp, listPartitions.
    """
    program = shutil.which("fmpm")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-l"], capture_output=True, check=True, stdin=subprocess.DEVNULL, timeout=20)
        listed = json.loads(done.stdout)["partitionInfo"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None
    return [{"gpus": int(item["numGpus"]), "active": int(item["isActive"])} for item in listed]


def _name(link: Path) -> str:
    return link.resolve().name if link.exists() else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def main() -> int:
    """Answer the request that is the last argument."""
    sys.stdout.write(json.dumps(read(Path("/"), json.loads(sys.argv[-1]))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
