"""NCCL's own output: version, INFO lines about transports, and warnings if peers cannot be reached."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

Facts = dict[str, Any]


class Rank(NamedTuple):
    """One GPU of the run."""

    rank: int
    host: str
    pid: int
    device: int
    gpu: Facts


def lines(ranks: list[Rank], nodes: list[Facts], settings: dict[str, str], algorithm: str, network: str) -> str:
    """Return the lines for the level of NCCL_DEBUG."""
    level = settings.get("NCCL_DEBUG", "").upper()
    version = f"NCCL version {nodes[0]['nccl']}+cuda13.0\n"
    if level in {"INFO", "TRACE"}:
        return "".join(_rank(rank, ranks, nodes, settings, network) for rank in ranks) + _connected(
            ranks, algorithm, network, len(nodes)
        )
    return version if level in {"VERSION", "WARN"} else ""


def path(gpu: Facts, settings: dict[str, str]) -> str:
    """Return the kind of path between GPUs that NCCL uses."""
    if settings.get("NCCL_P2P_DISABLE") == "1":
        return "SYS"
    return "NVL" if gpu["links"] else "PIX"


def _node(rank: Rank, nodes: list[Facts]) -> Facts:
    return next(item for item in nodes if item["hostname"] == rank.host)


def _tag(rank: Rank) -> str:
    return f"{rank.host}:{rank.pid}:{rank.pid + 7} [{rank.device}] NCCL INFO "


def _communicator(ranks: list[Rank]) -> str:
    """Return the communicator's id: as in reality, it differs in every launch, whose processes are others."""
    return f"0x{hashlib.sha256(repr([(rank.host, rank.pid, rank.device) for rank in ranks]).encode()).hexdigest()[:16]}"


def _function(nic: Facts) -> str:
    """Return the name in NCCL's list: from 2.27.3 that of the NIC's Data Direct function (src/transport/net_ib.cc)."""
    return f"{nic['device']}_dma" if nic["data_direct"] else str(nic["device"])


def _made(at: int, nics: list[Facts]) -> str:
    """Return the line of a device of channels (ncclIbMakeVDeviceInternal); each NIC alone is one, too."""
    speed = 1000 * sum(nic["rate"] for nic in nics)
    return f"NET/IB : Made virtual device [{at}] name={'+'.join(map(_function, nics))} speed={speed} ndevs={len(nics)}"


def fused(node: Facts, settings: dict[str, str]) -> dict[int, list[Facts]]:
    """Return the devices that channels use, by index: the ports of one card are one (src/graph/topo.cc, 2.28).

    NCCL_NET_MERGE_LEVEL=LOC keeps them apart (ncclTopoGetFusionEnv), NCCL_IB_MERGE_NICS=0 as well. An index of its own
    follows those of the NICs; addresses that differ in the function only are one card's (ncclTopoGetPath).
    """
    apart = settings.get("NCCL_NET_MERGE_LEVEL") == "LOC" or settings.get("NCCL_IB_MERGE_NICS") == "0"
    cards: dict[str, list[int]] = {}
    for at, nic in enumerate(node["nics"]):
        cards.setdefault(str(at) if apart or not nic["card"] else nic["card"], []).append(at)
    found, following = {}, len(node["nics"])
    for places in cards.values():
        at, following = (places[0], following) if len(places) == 1 else (following, following + 1)
        found[at] = [node["nics"][place] for place in places]
    return found


def _begun(rank: Rank, ranks: list[Rank], node: Facts, settings: dict[str, str], network: str) -> str:
    """Return a rank's lines before it talks to others: what it found, and which network it chose."""
    out = [
        f"Bootstrap: Using {node['management']}<0>",
        "cudaDriverVersion 13000",
        f"NCCL version {node['nccl']}+cuda13.0",
    ]
    out += [
        f"{key} set by environment to {value}."
        for key, value in sorted(settings.items())
        if key.startswith("NCCL_IB") or key == "NCCL_ALGO"
    ]
    out.append("NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.")
    if network == "IB":
        devices = " ".join(
            f"[{at}]{_function(nic)}:1/{'IB' if 'ib' in nic else 'RoCE'}" for at, nic in enumerate(node["nics"])
        )
        out += [_made(at, [nic]) for at, nic in enumerate(node["nics"])]
        out += [
            f"NET/IB : Using {devices} [RO]; OOB {node['management']}<0>",
            "Initialized NET plugin IB",
            "Using network IB",
        ]
        out += [_made(at, nics) for at, nics in fused(node, settings).items() if len(nics) > 1]
        if node["gdr"]:
            out.append(f"DMA-BUF is available on GPU device {rank.device}")
    else:
        # NCCL asks only the network that NCCL_NET names (ncclNetInit, src/plugin/net.cc), and NCCL_IB_DISABLE ends
        # NET/IB without a word.
        told = settings.get("NCCL_NET") or settings.get("NCCL_IB_DISABLE", "0") != "0"
        out += [] if told else ["NET/IB : No device found."]
        out += [
            f"NET/Socket : Using [0]{node['management']}<0>",
            "Initialized NET plugin Socket",
            "Using network Socket",
        ]
    bus = rank.gpu["pci"].replace("0000:", "").replace(":", "").replace(".", "")
    where = f"cudaDev {rank.device} nvmlDev {rank.device} busId {bus} commId {_communicator(ranks)}"
    out.append(f"ncclCommInitRankConfig comm 0x55f0c0de0000 rank {rank.rank} nranks {len(ranks)} {where} - Init START")
    return "".join(f"{_tag(rank)}{text}\n" for text in out)


def _rank(rank: Rank, ranks: list[Rank], nodes: list[Facts], settings: dict[str, str], network: str) -> str:
    node = _node(rank, nodes)
    out = []
    if rank.gpu["links"]:
        multicast = (
            f"available on dev {rank.device} (NVLS_NCHANNELS 16)"
            if node["multicast"]
            else f"not available on dev {rank.device}"
        )
        out.append(f"NVLS multicast support is {multicast}")
    out.append(
        f"Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type {path(rank.gpu, settings)}/PXB, "
        "sameChannels 1"
    )
    if rank.rank == 0:
        order = " ".join(f"{item.rank:2d}" for item in ranks)
        channels = max(1, 2 * len(node["nics"])) if len(nodes) > 1 else 24
        out += [f"Channel {at:02d}/{channels:02d} : {order}" for at in range(channels)]
    said = _begun(rank, ranks, node, settings, network) + "".join(f"{_tag(rank)}{text}\n" for text in out)
    return said + _channels(rank, ranks, node, settings, network if len(nodes) > 1 else "")


def _channels(rank: Rank, ranks: list[Rank], node: Facts, settings: dict[str, str], network: str) -> str:
    """Return a rank's channels; ``network`` is empty on one node."""
    following, tag = ranks[(rank.rank + 1) % len(ranks)], _tag(rank)
    if following.host == rank.host:
        way = (
            "SHM/direct/direct"
            if path(rank.gpu, settings) == "SYS"
            else "P2P/direct pointer"
            if following.pid == rank.pid
            else "P2P/CUMEM"
        )
        return (
            f"{tag}Channel 00/0 : {rank.rank}[{rank.device}] -> {following.rank}[{following.device}] via {way}\n"
            if len(ranks) > 1
            else ""
        )
    if not network:
        return ""
    out = ""
    for at, device in enumerate(fused(node, settings) or [0]):
        via = f"NET/IB/{device}{'/GDRDMA' if node['gdr'] else ''}" if network == "IB" else "NET/Socket/0"
        out += (
            f"{tag}Channel {at:02d}/0 : {rank.rank}[{rank.device}] -> {following.rank}[{following.device}] [send] "
            f"via {via}\n"
        )
        out += (
            f"{tag}Channel {at:02d}/0 : {(rank.rank + 1 - 8) % len(ranks)}[{rank.device}] -> "
            f"{rank.rank}[{rank.device}] [receive] via {via}\n"
        )
    return out


def _connected(ranks: list[Rank], algorithm: str, network: str, nodes: int) -> str:
    text = ""
    for rank in ranks:
        text += f"{_tag(rank)}Connected all rings, use ring PXN 0 GDR {int(network == 'IB' and nodes > 1)}\n"
        if algorithm == "NVLS":
            text += f"{_tag(rank)}Connected NVLS tree\n"
        text += (
            f"{_tag(rank)}ncclCommInitRankConfig comm 0x55f0c0de0000 rank {rank.rank} nranks {len(ranks)} cudaDev "
            f"{rank.device} - Init COMPLETE\n"
        )
    return text


def broken(probes: list[Facts], ranks: list[Rank], nodes: list[Facts], settings: dict[str, str]) -> str:
    """Return the output of NCCL and the test if a queue pair cannot reach its peer.

    Every rank has chosen its network by then.
    """
    level = settings.get("NCCL_DEBUG", "").upper()
    loud = level in {"INFO", "WARN", "TRACE", "VERSION"}
    text = (
        "".join(_begun(rank, ranks, _node(rank, nodes), settings, "IB") for rank in ranks)
        if level in {"INFO", "TRACE"}
        else ""
    )
    for item in probes:
        rank = next((found for found in ranks if found.host == item["host"]), ranks[0])
        if loud:
            text += (
                f"\n{rank.host}:{rank.pid}:{rank.pid + 7} [{rank.device}] misc/ibvwrap.cc:344 NCCL WARN "
                f"Call to ibv_modify_qp failed with 110 Connection timed out, on dev {item['device']}:1, "
                f"curr state INIT, next state RTR, local GID index 3, local GID ::ffff:{item['address']}, remote "
                f"GID ::ffff:{item['peer']}\n"
            )
    rank = next((found for found in ranks if found.host == probes[0]["host"]), ranks[0])
    head = (
        f"{rank.host}: Test NCCL failure common.cu:1099 'unhandled system error (run with NCCL_DEBUG=INFO for "
        "details) / '\n"
    )
    return text + head + f" .. {rank.host} pid {rank.pid}: Test failure common.cu:942\n"
