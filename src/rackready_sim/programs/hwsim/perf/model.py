"""Speed of NVLink, PCIe and the network, from the present condition of the parts in the path.

Reference points: H100 8 GPUs all_reduce 476-480 GB/s with in-switch reduction and 18 x 20.6 = 371 in a ring (NCCL
topo.h); 46-48 GB/s for each NDR NIC (nccl-tests issue 290); two nodes 470 with the default algorithm (nccl-tests issue
309).
"""

from __future__ import annotations

import math
import random
from typing import Any

Facts = dict[str, Any]

_NVLS_OVER_RING = 478.0 / 371.0
_NET_EFFICIENCY = 0.94
_VERBS_EFFICIENCY = 0.985
_UNCONFIGURED = 0.85
_THROUGH_HOST = 0.55
"""Share of the rate without GPUDirect RDMA: data go through host memory. Judgement.

One NIC per PCIe switch reaches about half (NCCL user guide, NCCL_NET_GDR_LEVEL).
"""
_SOCKET_GB_S = 2.4
_NOISE = 0.0025
_MTU_FACTOR = {4096: 1.0, 2048: 0.985, 1024: 0.955, 512: 0.88, 256: 0.76, 0: 0.0}
_DISTANCE_GBPS = {"PXB": 1e9, "NODE": 285.0, "SYS": 190.0, "HOST": 1e9}


def noise(sigma: float = _NOISE) -> float:
    """Return a factor around 1."""
    return random.gauss(1.0, sigma)


def gpu_ring(gpu: Facts) -> float:
    """Return the rate of one GPU's NVLinks in a ring, GB/s.

    NCCL spreads traffic evenly over the NVSwitch planes. A missing link slows its whole plane, so it costs twice its
    share.
    """
    links = gpu["links"]
    if not links:
        return 0.0
    down = links - gpu["links_active"]
    return float(max(0.0, links * gpu["ring_gb_s"] * (1 - 2 * down / links)) * gpu["speed"] ** 0.35)


def board(gpus: list[Facts], algorithm: str) -> float:
    """Return the bus bandwidth of one node's GPUs, GB/s: the slowest GPU sets it."""
    ring = min(gpu_ring(gpu) for gpu in gpus)
    if ring == 0.0:
        return min(pcie_gb_s(gpu) for gpu in gpus) * 0.55
    return ring * (_NVLS_OVER_RING if algorithm == "NVLS" else 1.0)


def pcie_gb_s(gpu: Facts) -> float:
    """Return the rate of a GPU's PCIe link in one direction, GB/s."""
    return float(54.8 * gpu["pcie_width"] / 16 / 2 ** (5 - gpu["pcie_gen"]))


def rail_gb_s(nic: Facts) -> float:
    """Return the rate of one NIC for NCCL, GB/s."""
    return float(
        nic["rate"] / 8 * _NET_EFFICIENCY * nic["factor"] * nic.get("wire", 1.0) * _MTU_FACTOR.get(nic["mtu"], 1.0)
    )


def rails(nodes: list[list[Facts]]) -> float:
    """Return the rate of all rails of a ring, GB/s.

    Channels are spread evenly, so the slowest NIC limits the others.
    """
    slowest = min(rail_gb_s(nic) for nics in nodes for nic in nics)
    lossless = all(nic["lossless"] for nics in nodes for nic in nics)
    return min(len(nics) for nics in nodes) * slowest * (1.0 if lossless else _UNCONFIGURED)


def bus_bandwidth(test: str, nodes: list[Facts], algorithm: str, *, network: str) -> float:
    """Return the large-message bus bandwidth of a collective over ``nodes``, GB/s.

    Each node has ``gpus`` and the ``nics`` that NCCL uses; ``network`` is IB or Socket.
    """
    inside = (
        min(board(node["gpus"], algorithm if test == "all_reduce" else "RING") for node in nodes)
        if any(len(node["gpus"]) > 1 for node in nodes)
        else math.inf
    )
    if len(nodes) == 1:
        return inside
    if network != "IB":
        return min(inside, _SOCKET_GB_S)
    outside = rails([node["nics"] for node in nodes])
    if not all(node.get("gdr", True) for node in nodes):
        outside *= _THROUGH_HOST
    if test == "alltoall":
        ranks = sum(len(node["gpus"]) for node in nodes)
        group = len(nodes[0]["gpus"])
        return min(inside, outside / group * (ranks - 1) / (ranks - group))
    if test == "all_reduce" and algorithm != "RING":
        outside *= 1 + 0.5 / len(nodes)
    return min(inside, outside)


def factor(test: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth."""
    if ranks < 2:  # noqa: PLR2004
        return 1.0
    if test == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if test in {"broadcast", "reduce", "sendrecv"} else (ranks - 1) / ranks


def seconds(size: int, peak_alg_gb_s: float, *, inter_node: bool) -> float:
    """Return the time of one operation of ``size`` bytes."""
    latency = 62e-6 if inter_node else 31e-6
    ramp = 1 - 0.10 * math.exp(-size / (1 << 29))
    return (latency + size / (peak_alg_gb_s * 1e9 * ramp)) * noise()


def verbs_gbps(local: Facts, remote: Facts, *, both_ways: bool) -> float:
    """Return the rate of an RDMA write stream between two ends, Gb/s.

    An end has rate, factor, mtu and the GPU's distance and PCIe link.
    """
    ends: list[float] = []
    for end in (local, remote):
        wire = end["rate"] * _VERBS_EFFICIENCY * end["factor"] * end.get("wire", 1.0) * _MTU_FACTOR.get(end["mtu"], 1.0)
        ends.append(min(wire, _DISTANCE_GBPS[end["distance"]], end["pcie_gb_s"] * 8))
    return min(ends) * (1.96 if both_ways else 1.0) * noise(0.0012)
