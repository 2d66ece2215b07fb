"""The host part of a simulated node's hardware state: processors, memory, drives, clock, PCIe bridges, optics.

Sizes come from the platform's profile. Without one, the state is that of a plain two-socket server, so every node
answers.
"""

from __future__ import annotations

import hashlib
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.model.server_parts import HostParts

State = dict[str, Any]

_PLAIN = HostParts(
    cpu_model="8468",
    sockets=2,
    cores=48,
    threads=2,
    numa_nodes=2,
    dimms=16,
    memory_gib=1024,
    drives=4,
    source="judgement: a plain two-socket server",
)
_MODULE = "MMA4Z00-NS400"


def parts_of(facts: NodeFacts) -> HostParts:
    """Return the sizes of a node's host."""
    return facts.platform.host or _PLAIN


def model_of(parts: HostParts) -> str:
    """Return the model name of a processor."""
    return f"Intel(R) Xeon(R) Platinum {parts.cpu_model}"


def build(facts: NodeFacts) -> State:
    """Return the state of a healthy host; equal input gives equal output."""
    parts = parts_of(facts)
    name = facts.node.name
    return {
        "cpu": {
            "model": model_of(parts),
            "sockets": parts.sockets,
            "cores": parts.cores,
            "threads": parts.threads,
            "offline": [],
            "governor": "performance",
            "microcode": "0x2b0005c0",
        },
        "numa_nodes": parts.numa_nodes,
        "dimms": [_dimm(name, index, parts) for index in range(parts.dimms)],
        "machine_checks": [],
        "clock": {
            "synchronised": True,
            "offset_s": 0.00001 * (1 + _spread(name, 40)),
            "daemon": True,
            "dispersion_s": 0.000683,
        },
        "failed_services": [],
        "cmdline": "BOOT_IMAGE=/boot/vmlinuz root=UUID=6f1f2c1e ro quiet iommu=pt hugepagesz=2M hugepages=1024",
        "hugepages": {"2048": 1024, "1048576": 0},
        "iommu": "identity",
        "memlock": "unlimited",
        "swaps": [],
        "drives": [_drive(name, index) for index in range(parts.drives)],
        "bios": {"vendor": "American Megatrends International, LLC.", "version": "1.6.7", "date": "09/02/2025"},
        "bridges": [bridge for nic in facts.nics for bridge in _bridges(nic.pci, _gpu_pci(facts, nic.gpu))],
        "under_load": {"aer": {}, "corrected": {}},
    }


def module(name: str, device: str) -> State:
    """Return the optical module of one NIC: light in dBm per lane, temperature in degrees Celsius, bit error rates."""
    key = f"{name}/{device}"
    return {
        "part": _MODULE,
        "vendor": "NVIDIA",
        "serial": _serial("MT2421FT", key),
        "temperature_c": 44 + _spread(key, 9),
        "rx_dbm": [round(1.2 + _spread(f"{key}/rx{lane}", 90) / 100, 3) for lane in range(4)],
        "tx_dbm": [round(1.6 + _spread(f"{key}/tx{lane}", 60) / 100, 3) for lane in range(4)],
        "raw_ber": f"{1 + _spread(key, 8)}E-9",
        "effective_ber": "15E-255",
        "fec": "Standard_RS-FEC - (544,514)",
        "flaps": 0,
    }


def _dimm(name: str, index: int, parts: HostParts) -> State:
    per_socket = parts.dimms // parts.sockets
    socket, slot = divmod(index, per_socket)
    channel, place = divmod(slot, 2)
    return {
        "locator": f"DIMM_P{socket}_{chr(ord('A') + channel)}{place}",
        "controller": socket * 4 + channel // 2,
        "size_gb": parts.memory_gib // parts.dimms,
        "speed": 4400,
        "part": "MTC40F2046S1RC48BA1",
        "serial": _serial("80CE", f"{name}/dimm{index}"),
        "present": True,
        "corrected": 1 if _spread(f"{name}/dimm{index}/ce", 60) == 0 else 0,
        "uncorrected": 0,
    }


def _drive(name: str, index: int) -> State:
    boot = index < 2  # noqa: PLR2004 - a mirror of two boot drives
    key = f"{name}/nvme{index}"
    return {
        "name": f"nvme{index}",
        "model": "SAMSUNG MZ1L21T9HCLS-00A07" if boot else "SAMSUNG MZQL23T8HCLS-00A07",
        "serial": _serial("S6EYNA0T", key),
        "firmware": "GDC7502Q",
        "bytes": 1920383410176 if boot else 3840755982336,
        "present": True,
        "critical_warning": 0,
        "percentage_used": _spread(key, 4),
        "media_errors": 0,
        "available_spare": 100,
        "read_gb_s": round((5.4 if boot else 6.8) * (0.995 + _spread(f"{key}/rate", 10) / 1000), 3),
    }


def _gpu_pci(facts: NodeFacts, gpu: int) -> str:
    return facts.platform.gpu_pci[gpu] if gpu < len(facts.platform.gpu_pci) else ""


def _bridges(nic: str, gpu: str) -> list[State]:
    """Return the root port, upstream port and two downstream ports that connect one NIC and its GPU."""
    low, high = sorted(int(address[5:7], 16) for address in (nic, gpu or nic))
    top = max(low, high)
    found = [
        {"pci": f"0000:{low - 3:02x}:01.0", "kind": "root", "buses": [low - 3, low - 2, top], "acs": False},
        {"pci": f"0000:{low - 2:02x}:00.0", "kind": "upstream", "buses": [low - 2, low - 1, top], "acs": False},
        {"pci": f"0000:{low - 1:02x}:00.0", "kind": "downstream", "buses": [low - 1, low, low], "acs": False},
    ]
    if high != low:
        found.append(
            {"pci": f"0000:{low - 1:02x}:02.0", "kind": "downstream", "buses": [low - 1, high, high], "acs": False}
        )
    return found


def _serial(prefix: str, name: str) -> str:
    return prefix + hashlib.sha256(name.encode()).hexdigest()[:8].upper()


def _spread(name: str, width: int) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) % width
