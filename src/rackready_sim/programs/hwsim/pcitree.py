"""/sys/bus/pci/devices, from which the machine's own lspci and setpci read configuration space."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from . import machine, pcibridges
from .host import pcie

_NVIDIA, _MELLANOX = 0x10DE, 0x15B3
_GPU_CLASS, _SWITCH_CLASS, _NIC_CLASS = 0x030200, 0x068000, 0x020000
_CONNECTX7 = 0x1021
_CAP = 0x60
_CONTROL = slice(_CAP + 0x08, _CAP + 0x0A)
"""Device Control of the PCI Express capability."""


def write(state: dict[str, Any]) -> None:
    """Lay out every PCI device on the bus; a GPU that fell off reads as all ones."""
    _bridges(state)
    for bridge in state.get("host", {}).get("bridges", []):
        pcie.bridge(bridge)
    for gpu in state["gpus"]:
        if machine.present(gpu, state):
            _device(
                gpu["pci"],
                (_NVIDIA, int(gpu["device_id"][2:6], 16), _GPU_CLASS),
                gpu["pcie"],
                gpu.get("numa", 0),
                lost=gpu["lost"],
            )
    for switch in state["nvswitches"]:
        _device(
            switch["pci"],
            (_NVIDIA, int(switch["device_id"][2:6], 16), _SWITCH_CLASS),
            {"gen": 2, "width": 2, "max_gen": 2, "max_width": 2},
            0,
        )
    for nic in state["nics"]:
        if not machine.present(nic, state):
            continue
        place = _device(
            nic["pci"],
            (_MELLANOX, _CONNECTX7, _NIC_CLASS),
            nic.get("pcie", {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16}),
            nic["numa"],
        )
        for leaf in (f"net/{nic['netdev']}", f"infiniband/{nic['rdma_device']}"):
            (place / leaf).mkdir(parents=True, exist_ok=True)


def _bridges(state: dict[str, Any]) -> None:
    """Lay out the bridges; those of GPUs last: the links of shared bridges are those of the GPU's state."""
    for nic in state["nics"]:
        if machine.present(nic, state):
            pcibridges.write(nic["pci"], nic.get("bridges", []))
    for gpu in state["gpus"]:
        if machine.present(gpu, state):
            pcibridges.write(gpu["pci"], gpu["pcie"].get("bridges", []))


def _device(pci: str, ids: tuple[int, int, int], link: dict[str, int], numa: int, *, lost: bool = False) -> Path:
    vendor, device, kind = ids
    place = pcibridges.place(pci)
    place.mkdir(parents=True, exist_ok=True)
    values = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "class": f"0x{kind:06x}",
        "subsystem_vendor": f"0x{vendor:04x}",
        "subsystem_device": "0x16c1" if vendor == _NVIDIA else "0x0023",
        "revision": "0xff" if lost else "0xa1" if vendor == _NVIDIA else "0x00",
        "numa_node": str(numa),
        "irq": "0",
        "current_link_speed": pcibridges.SPEED[link["gen"]],
        "current_link_width": str(link["width"]),
        "max_link_speed": pcibridges.SPEED[link["max_gen"]],
        "max_link_width": str(link["max_width"]),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7),
        **pcie.aer(pci),
    }
    for name, value in values.items():
        (place / name).write_text(f"{value}\n")
    pcie.iommu(place)
    space = bytearray(_config(vendor, device, kind, link))
    if (place / "config").exists() and (found := (place / "config").read_bytes())[:1] != b"\xff":
        space[_CONTROL] = found[_CONTROL]  # what software wrote since power-on
    (place / "config").write_bytes(b"\xff" * 256 if lost else bytes(space))
    return place


def _config(vendor: int, device: int, kind: int, link: dict[str, int]) -> bytes:
    space = bytearray(256)
    struct.pack_into("<HHHH", space, 0, vendor, device, 0x0406, 0x0010)
    space[8] = 0xA1 if vendor == _NVIDIA else 0
    space[9:12] = struct.pack("<I", kind)[:3]
    struct.pack_into("<HH", space, 0x2C, vendor, 0x16C1 if vendor == _NVIDIA else 0x0023)
    space[0x34] = _CAP
    struct.pack_into("<BBH", space, _CAP, 0x10, 0, 0x0002)
    struct.pack_into("<I", space, _CAP + 0x04, 0x10008FE2)
    struct.pack_into("<HH", space, _CAP + 0x08, 0x5937, 0)
    struct.pack_into("<I", space, _CAP + 0x0C, link["max_gen"] | link["max_width"] << 4)
    struct.pack_into("<HH", space, _CAP + 0x10, 0x0040, link["gen"] | link["width"] << 4)
    return bytes(space)
