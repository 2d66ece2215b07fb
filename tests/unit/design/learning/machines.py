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


def tray(*cards: dict[str, Any], product: str = "P4242", **changes: Any) -> dict[str, Any]:
    """A GB200 tray of another maker: every GPU and card has a root port of its own, in a PCI domain of its own.

    Distances as nvidia-smi topo -m shows them (sgl-project/sglang issue 11208).
    """
    gpus = [
        device(f"{domain}:01:00.0", f"{domain}:00:00.0", device="0x2941", numa=at // 2)
        for at, domain in enumerate(("0008", "0009", "0018", "0019"))
    ]
    named = {gpu["pci"]: {"name": "NVIDIA GB200", "fabric": "Completed"} for gpu in gpus}
    document = {
        "machine": {"sys_vendor": "Acme", "product_name": product},
        "gpus": gpus,
        "nvswitches": [],
        "nics": list(cards) or [*grace_cards(), bluefield("0006:01:00.0"), bluefield("0016:01:00.0", numa=1)],
        "driver": {"version": "580.173.02", "gpus": named},
        "chassis": {"units": 1},
    }
    return two_gpus(**{**document, **changes})


def grace_cards() -> list[dict[str, Any]]:
    """The four ConnectX-7 of a tray, not in the order of their addresses."""
    places = [("0002", 0), ("0000", 0), ("0012", 1), ("0010", 1)]
    return [
        nic(f"{domain}:03:00.0", f"{domain}:00:00.0", name=f"ibP{int(domain, 16)}s1", numa=numa, rdma=[f"mlx5_{at}"])
        for at, (domain, numa) in enumerate(places)
    ]


def bluefield(pci: str, numa: int = 0) -> dict[str, Any]:
    """A BlueField-3: as fast as the compute cards."""
    return nic(pci, f"{pci[:4]}:00:00.0", name=f"enP{int(pci[:4], 16)}s1", numa=numa, device="0xa2dc")


def parts(document: dict[str, Any]) -> Parts:
    return Parts.model_validate(document)
