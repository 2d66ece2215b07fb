"""Machines as ``ondevice/platform_parts.py`` describes them."""

from __future__ import annotations

from typing import Any

from rackready.design.learning.parts import Parts


def device(pci: str, *bridges: str, device: str = "0x2330", numa: int = 0) -> dict[str, Any]:
    return {"pci": pci, "vendor": "0x10de", "device": device, "numa": numa, "bridges": list(bridges)}


def nic(pci: str, *bridges: str, name: str = "", rate: int | None = 400, **changes: Any) -> dict[str, Any]:
    bus = int(pci[5:7], 16)
    found = {
        **device(pci, *bridges, device="0x1021"),
        "vendor": "0x15b3",
        "netdevs": [{"name": name or f"enp{bus}s0np0", "mac": f"b8:3f:d2:00:00:{bus:02x}"}],
        "rdma": [f"rocep{bus}s0"],
        "rate": rate,
        "firmware": "28.43.2566",
        "board": "MT_0000000838",
        "managed": False,
    }
    return {**found, **changes}


def two_gpus(**changes: Any) -> dict[str, Any]:
    """Two H100, each behind a switch of its own with one card; the second card has the lower name."""
    document = {
        "machine": {"sys_vendor": "Acme", "product_name": "Box 2", "board_name": "B1", "bios_version": "1.2"},
        "gpus": [
            device("0000:1b:00.0", "0000:17:01.0", "0000:18:00.0", "0000:19:02.0"),
            device("0000:43:00.0", "0000:3f:01.0", "0000:40:00.0", "0000:41:02.0", numa=1),
        ],
        "nvswitches": [device("0000:07:00.0", device="0x22a3")],
        "nics": [
            nic("0000:1a:00.0", "0000:17:01.0", "0000:18:00.0", "0000:19:00.0", name="rail9"),
            nic("0000:42:00.0", "0000:3f:01.0", "0000:40:00.0", "0000:41:00.0", name="rail1", numa=1),
        ],
        "driver": None,
        "cpu": {"model": "Xeon 8480+", "sockets": 2, "cores": 56, "threads": 2, "numa_nodes": 2},
        "memory": {"modules": 32, "gib": 2048},
        "drives": [{"model": "PM9A3", "bytes": 3840755982336}, {"model": "PM9A3", "bytes": 1920383410176}],
        "slots": [{"name": "SLOT3", "usage": "In Use", "pci": "0000:19:00.0"}],
        "chassis": {"units": 4},
        "unread": {},
    }
    return {**document, **changes}


def parts(document: dict[str, Any]) -> Parts:
    return Parts.model_validate(document)
