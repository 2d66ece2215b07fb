"""The part of a node's hardware state that makes it bare metal: boot port, disks, memory and firmware settings."""

from __future__ import annotations

import hashlib
from typing import Any

from rackready.model.provisioning import DiskRef
from rackready.model.site import Site
from rackready_sim.errors import describe

State = dict[str, Any]

_MEMORY_MIB = 1536
"""The imaging ramdisk lies in memory, unpacked."""
_DISK_BYTES = 8 << 30
_SERIAL_MAX = 20
"""Bytes of a serial number: VIRTIO_BLK_ID_BYTES of the virtio specification (5.2.6), and of an NVMe controller."""


def build(site: Site, name: str) -> State:
    """Return the bare metal of a node of the site; equal input gives equal output. Scratch disks are NVMe.

    Raises SimError for a disk's serial number that no disk here can carry.
    """
    node = next(item for item in site.nodes() if item.name == name)
    common = site.provisioning
    disks = node.disks or (common.disks if common is not None else None)
    refs = [*disks.system, *disks.scratch] if disks is not None else []
    scratch = len(disks.scratch) if disks is not None else 0
    serials = [_serial(name, index, ref) for index, ref in enumerate(refs, 1)] or [_made_serial(name, 1)]
    return {
        "memory_mib": _MEMORY_MIB,
        "nic": {"id": "NIC1", "mac": (node.boot_mac or made_mac(name)).lower(), "link": "up"},
        "disks": [
            {
                "id": index,
                "serial": serial,
                "bytes": _DISK_BYTES,
                "bus": "nvme" if index >= len(serials) - scratch else "virtio",
                "present": True,
                "holds": "",
            }
            for index, serial in enumerate(serials)
        ],
        "override": "honoured",
        "power_lag_s": 0.0,
    }


def made_mac(name: str) -> str:
    """Return the MAC address of a boot port for which the site states none, in QEMU's own range."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"52:54:00:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"


def _made_serial(name: str, index: int) -> str:
    return f"SIM{hashlib.sha256(f'{name}/disk{index}'.encode()).hexdigest()[:10].upper()}"


def _serial(name: str, index: int, ref: DiskRef) -> str:
    serial = ref.serial or _made_serial(name, index)
    if len(serial.encode()) > _SERIAL_MAX:
        hint = "Give the disk of the simulated machine a shorter serial number."
        raise describe(f"{name}: disk {serial}", f"at most {_SERIAL_MAX} bytes", f"{len(serial.encode())}", hint)
    return serial
