"""Further state of simulated GPUs: firmware objects, repairs, thermal limits, and the PCIe bridges above them."""

from __future__ import annotations

from typing import Any

from rackready.model.profile import GpuProfile

State = dict[str, Any]

_BANKS = {"hopper": 2560, "blackwell": 4096, "ampere": 640, "ada": 96}
"""Banks of the row remapper's histogram (`nvidia-smi -q -d ROW_REMAPPER`): H100 2560, A100 640, L4 96.

We do not know Blackwell's: this value stands for many.
"""
_INFOROM = {"hopper": "G520.0200.00.05", "blackwell": "G548.0201.00.06"}
_PLX = {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16}


def extras(profile: GpuProfile, index: int) -> State:
    """Return the further state of a healthy GPU; ``index`` varies what differs between healthy GPUs."""
    return {
        "inforom": {"image": _INFOROM.get(profile.architecture, "G193.0200.00.01"), "ecc": "7.16", "valid": True},
        "ecc_mode": "Enabled",
        "sram": {period: {"correctable": 0, "parity": 0, "secded": 0} for period in ("volatile", "aggregate")},
        "sram_threshold_exceeded": False,
        "ecc_rate_per_min": 0,
        "histogram": {"max": _BANKS.get(profile.architecture, 640), "high": 0, "partial": 0, "low": 0, "none": 0},
        "repairs": {"channel_repair_pending": False, "tpc_repair_pending": False},
        "mig_mode": "Disabled",
        "mig_profiles": dict(profile.mig.profiles) if profile.mig else {},
        "compute_mode": "Default",
        "power_cap_w": None,
        "sm_cap_mhz": None,
        "thermal": {"zero_margin_c": 87, "slow_margin_c": -2, "shutdown_margin_c": -8, "load_rise_c": 36 + index % 4},
        "fabric": {"status": "Success", "clique": 0, "cluster": "00000000-0000-0000-0000-000000000000", "health": None},
        "host_factor": 1.0,
        "replay_rate_per_min": 0,
        "wrong_results": 0,
        "in_container": True,
    }


def bridges(pci: str, neighbour: str | None) -> list[State]:
    """Return the bridges above a GPU, nearest first: downstream port and upstream port of the switch, and root port.

    Each has the state of its own link. The upstream port carries the link to the root port, and the root port is its
    other end. A GPU shares its switch with its NIC (``neighbour``): the addresses come from the lower of the two buses,
    and the device behind the higher one is at the switch's second downstream port.
    """
    domain, bus = pci[:4], int(pci[5:7], 16)
    low = min(bus, int(neighbour[5:7], 16)) if neighbour else bus
    down = f"{low - 1:02x}:{'00' if bus == low else '02'}.0"
    addresses = (f"{domain}:{down}", f"{domain}:{low - 2:02x}:00.0", f"{domain}:{low - 3:02x}:01.0")
    return [
        {"pci": address, "kind": kind, **_PLX} for address, kind in zip(addresses, ("down", "up", "root"), strict=True)
    ]
