"""Sites with virtual nodes, for tests: two hypervisors of the example, one of them a DGX H100."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rackready.design.site import parse_site
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[3]
EIGHT = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
NICS = ["18", "40", "4f", "5e", "9a", "c0", "ce", "dc"]
"""Buses of the GPUs and compute NICs of a DGX H100, as its profile has them."""
TWO_NUMA = [
    {"id": 0, "cpus": "0-55,112-167", "memory_gib": 1024},
    {"id": 1, "cpus": "56-111,168-223", "memory_gib": 1024},
]
HOST = {
    "name": "train-1",
    "numa": TWO_NUMA,
    "reserved_cpus": "0-3,56-59",
    "reserved_memory_gib": 32,
}


def devices(buses: list[str], **more: Any) -> list[dict[str, Any]]:
    return [{"pci": f"0000:{bus}:00.0", **more} for bus in buses]


def document(machine: dict[str, Any], host: dict[str, Any] | None = None, **node: Any) -> dict[str, Any]:
    """Return the mixed example with one more virtual node, guest01, on train-1."""
    text = (ROOT / "inventories/examples/mixed-metal-virtual.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    found["hypervisors"] = [HOST | (host or {})]
    guest = {
        "name": "guest01",
        "kind": "virtual",
        "platform": "dgx_h100",
        "host": "train-1",
        "slot": 9,
        "virtual": machine,
    }
    found["racks"][0]["nodes"].append(guest | node)
    return found


def site(machine: dict[str, Any], host: dict[str, Any] | None = None, **node: Any) -> Site:
    return parse_site(document(machine, host, **node), source="site.yml", base=ROOT)


FULL = {
    "vcpus": 208,
    "memory_gib": 1800,
    "disk_gib": 512,
    "image": "debian12",
    "gpus": devices(EIGHT),
    "nics": devices(NICS),
    "nvswitches": devices(["05", "06", "07", "08"], numa=0),
    "fabric_manager": "full",
    "bridge": "br0",
}
ONE = {
    "vcpus": 24,
    "memory_gib": 192,
    "image": "debian12",
    "gpus": devices(["9d"]),
    "nics": devices(["9a"]),
    "fabric_manager": "shared",
    "bridge": "br0",
    "mac": "52:54:00:aa:bb:01",
}
VFS = {
    **ONE,
    "huge_pages": "2M",
    "nics": [
        {"pci": "0000:9a:00.2", "vf_of": "0000:9a:00.0", "mac": "02:00:00:00:00:01", "vlan": 1202},
        {"pci": "0000:c0:00.3", "vf_of": "0000:c0:00.0", "mac": "02:00:00:00:00:02"},
    ],
}
SMALL_PAGES = {**ONE, "huge_pages": "none", "bridge": None}
EMULATED = {"vcpus": 2, "memory_gib": 4, "image": "debian12", "huge_pages": "none", "bridge": "br0"}
