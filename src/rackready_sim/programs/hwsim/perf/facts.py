"""Facts of one machine that determine its speed."""

from __future__ import annotations

import os
import socket
from typing import Any

from .. import machine, paths, rdmatree, store
from ..ib import node as ib
from ..ib import tools as ib_tools
from ..nic.tools import settings, traffic_class

Facts = dict[str, Any]
_ROCE_PRIORITY = 3
_CONNECTX8_GBPS = 800
"""Rate of a ConnectX-8; a ConnectX-7 has 400. The newer one has a Data Direct function."""


def gpu_facts() -> list[Facts]:
    """Return the GPUs that CUDA would offer."""
    found = []
    for gpu in machine.gpus():
        links = gpu.part["nvlink"]["links"]
        found.append(
            {
                "index": gpu.index,
                "name": gpu.part["name"],
                "pci": gpu.part["pci"],
                "slot": gpu.slot,
                "numa": gpu.part.get("numa", 0),
                "links": len(links),
                "links_active": sum(1 for link in links if link["state"] == "active"),
                "ring_gb_s": gpu.part["nvlink"]["ring_gb_s"],
                "speed": gpu.speed,
                "memory_mib": gpu.part["memory_mib"],
                "pcie_gen": gpu.part["pcie"]["gen"],
                "pcie_width": gpu.part["pcie"]["width"],
                "lost": gpu.lost,
            }
        )
    return found


def nic_facts() -> list[Facts]:
    """Return the NICs, with active ports or not."""
    found = []
    for nic in machine.nics():
        values = settings(nic)
        found.append(
            {
                "device": nic["rdma_device"],
                "netdev": nic["netdev"],
                "card": nic["pci"].rpartition(".")[0],
                "data_direct": nic["rate_gbps"] >= _CONNECTX8_GBPS,
                "rail": nic["rail"],
                "gpu": nic["gpu"],
                "numa": nic["numa"],
                "rate": nic["rate_gbps"],
                "factor": nic["factor"],
                "up": machine.carrier(nic),
                "mtu": min(rdmatree.path_mtu(nic["netdev"]), nic.get("path_mtu", 4096)),
                "address": rdmatree.ipv4(nic["netdev"]),
                "guid": nic["guid"],
                "priority": priority(nic, traffic_class(nic)),
                "cnp_off": nic.get("cnp_off", False),
                "crossed": "crossed" in nic or "plugged" in nic,
                "idle": nic.get("idle", False),
                "unseen": nic.get("unseen", False),
                "latency_us": nic.get("latency_us", 0.0),
                "lossless": values["trust"] == "dscp" and bool(values["pfc"][_ROCE_PRIORITY]),
                **(_infiniband(nic) if ib.is_cabled(nic) else {}),
            }
        )
    return found


def _infiniband(nic: Facts) -> Facts:
    """Return what differs at InfiniBand: data go by LIDs, and the link itself loses none (credits)."""
    seen = ib.port(nic)
    return {
        "ib": {"state": seen["state"], "subnet": seen["subnet"]},
        "lid": int(seen["lid"]),
        "address": f"lid {seen['lid']}",
        "mtu": nic.get("path_mtu", 4096),
        "lossless": True,
        "crossed": False,
    }


def keyed(nic: Facts) -> Facts:
    """Return facts of a NIC with its partition key at index 0: only a port of an InfiniBand switch has one."""
    if "ib" not in nic:
        return nic
    raw = next(item for item in machine.nics() if item["rdma_device"] == nic["device"])
    return {**nic, "ib": {**nic["ib"], "key": ib_tools.first_key(raw)}}


def priority(nic: Facts, tclass: int) -> int:
    """Return the priority of RoCE data of a traffic class: from their DSCP if the NIC trusts it."""
    dscp = 0 if nic.get("traffic_class_ignored") else tclass >> 2
    return dscp >> 3 if settings(nic)["trust"] == "dscp" else 0


def cuda_error() -> tuple[int, str]:
    """Return CUDA's error code and text on initialisation; (0, '') when it works."""
    try:
        machine.open_driver()
    except machine.DriverNotLoadedError:
        return 100, "no CUDA-capable device is detected"
    except machine.LibraryMissingError:
        return 35, "CUDA driver version is insufficient for CUDA runtime version"
    except machine.VersionMismatchError:
        return 803, "system has unsupported display driver / cuda driver combination"
    if not machine.gpus():
        return 100, "no CUDA-capable device is detected"
    if not machine.fabric_usable():
        return 802, "system not yet initialized"
    return 0, ""


def nccl_version() -> str:
    """Return the installed NCCL version, e.g. 2.28.9; empty if it is not installed."""
    link = paths.at(f"{paths.libraries()}/libnccl.so.2")
    return link.resolve().name.split(".so.", 1)[1] if link.exists() else ""


def nccl_settings() -> dict[str, str]:
    """Return NCCL's settings: the machine's configuration file, overridden by the environment."""
    found: dict[str, str] = dict(store.hardware().get("nccl", {}))
    path = paths.at(os.environ.get("NCCL_CONF_FILE", "/etc/nccl.conf"))
    for line in path.read_text().splitlines() if path.exists() else []:
        name, mark, value = line.split("#", 1)[0].partition("=")
        if mark and name.strip().startswith("NCCL_"):
            found[name.strip()] = value.strip()
    found.update({name: value for name, value in os.environ.items() if name.startswith("NCCL_")})
    return found


def chosen(nics: list[Facts], values: dict[str, str]) -> list[Facts]:
    """Return the NICs that NCCL uses: active ports, filtered by NCCL_IB_HCA (prefix, = exact, ^ exclude)."""
    if values.get("NCCL_IB_DISABLE") == "1":
        return []
    active = [nic for nic in nics if nic["up"] and nic["address"] and not nic["unseen"]]
    wanted = values.get("NCCL_IB_HCA", "")
    exclude, exact = wanted.startswith("^"), "=" in wanted[:2]
    names = [name.split(":")[0] for name in wanted.lstrip("^=").split(",") if name]
    if not names:
        return active
    return [
        nic
        for nic in active
        if any(nic["device"] == name if exact else nic["device"].startswith(name) for name in names) != exclude
    ]


def node_facts() -> Facts:
    """Return all facts of this machine that a collective needs."""
    code, text = cuda_error()
    values = nccl_settings()
    nics = [keyed(nic) for nic in nic_facts()]
    return {
        "hostname": socket.gethostname(),
        "cuda_error": code,
        "cuda_text": text,
        "driver": machine.driver_version() or "",
        "gpus": [gpu for gpu in gpu_facts() if not gpu["lost"]] if not code else [],
        "nics": chosen(nics, values),
        "all_nics": nics,
        "nccl": nccl_version(),
        "settings": values,
        "gdr": gdr(),
        "multicast": bool(store.hardware()["fabric_manager"].get("multicast", True)),
        "management": _management(),
    }


def gdr() -> bool:
    """Return whether a NIC may reach GPU memory.

    The PCIe switches must let peers through, and peer memory or dma-buf must be there.
    """
    return bool(store.hardware().get("gpudirect", True))


def _management() -> str:
    for name in ("eth0", "ens3", "enp1s0"):
        address = rdmatree.ipv4(name)
        if address:
            return f"{name}:{address}"
    return "lo:127.0.0.1"
