"""NCCL's tests as rank 0 sees them: the run itself.

Behaviour of nccl-tests 2.19.6 (src/common.cu, src/util.cu).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..ib import node as ib
from . import model, nccl_log, nccl_report
from .nccl_log import Rank
from .nccl_options import CUDA_ERROR, FAILURE, GIB, MIB, NCCL_ERROR, Options, RunError, parse

Facts = dict[str, Any]
Reach = Callable[[str, str, int], bool]
_LONGEST_S = 0.6
"""Longest duration of a run here, s: long enough that a stop or a kill interrupts it."""
_BYTES = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
}


def report(request: Facts, argv: list[str]) -> tuple[str, Facts]:
    """Run a test: ``request`` has the ranks' lines and the probes, ``argv`` the test's name, version and options.

    Returns the text and the answer: exit code, and by host the bytes that each of its NICs carried.
    """
    name, version, *arguments = argv
    try:
        return _run(name, version, parse(arguments), request)
    except RunError as error:
        return error.text, {"code": error.code, "carried": {}}


def _run(name: str, version: str, options: Options, request: Facts) -> tuple[str, Facts]:
    nodes = {line["facts"]["hostname"]: line["facts"] for line in request["ranks"] if line["facts"]}
    ranks = _ranks(options, request["ranks"], nodes)
    used = [_used(facts, [rank for rank in ranks if rank.host == host]) for host, facts in nodes.items()]
    settings = used[0]["settings"]
    network = "IB" if all(node["nics"] for node in used) and settings.get("NCCL_NET", "IB") == "IB" else "Socket"
    if len(used) > 1 and network == "IB" and request["probes"]:
        raise RunError(
            NCCL_ERROR,
            nccl_report.header(name, version, options, ranks, used)
            + nccl_log.broken(request["probes"], ranks, used, settings),
        )
    algorithm = _algorithm(settings, name, used)
    peak = model.bus_bandwidth(name, used, algorithm, network=network)
    text = nccl_report.header(name, version, options, ranks, used)
    text += nccl_log.lines(ranks, used, settings, algorithm, network)
    rows = _rows(name, options, ranks, peak, inter_node=len(used) > 1)
    carried = _carried(name, options, used, algorithm, rows) if len(used) > 1 and network == "IB" and rows else {}
    footer, code = nccl_report.footer(name, rows)
    nccl_report.write_json(options, name, ranks, rows, used)
    time.sleep(min(_LONGEST_S, 0.2 + sum(row["seconds"] for row in rows) * 0.02))
    return text + nccl_report.table(name, options, rows) + footer, {"code": code, "carried": carried}


def _ranks(options: Options, lines: list[Facts], nodes: dict[str, Facts]) -> list[Rank]:
    found: list[Rank] = []
    per, hosts = options.number("threads", 1) * options.number("gpus", 1), ""
    for line in lines:
        if line["facts"]:
            hosts = line["facts"]["hostname"]
        host = line.get("host") or hosts
        facts = nodes.get(host)
        if facts is None:
            raise RunError(FAILURE, f"{host}: no answer\n")
        _usable(facts, line["pid"])
        for slot in range(per):
            device = line["local"] * per + slot
            if device >= len(facts["gpus"]):
                wanted = (line["local"] + 1) * per
                text = f"Invalid number of GPUs: {wanted} requested but only {len(facts['gpus'])} were found.\n"
                text += "Please check the number of processes and GPUs per process.\n"
                raise RunError(NCCL_ERROR, text)
            found.append(Rank(len(found), host, line["pid"], device, facts["gpus"][device]))
    return found


def _usable(facts: Facts, pid: int) -> None:
    host = facts["hostname"]
    if not facts["nccl"]:
        raise RunError(
            127,
            "error while loading shared libraries: libnccl.so.2: cannot open shared object file: No such file or "
            "directory\n",
        )
    if facts["cuda_error"]:
        text = (
            f"{host}: Test CUDA failure common.cu:1013 '{facts['cuda_text']}'\n .. "
            f"{host} pid {pid}: Test failure common.cu:904\n"
        )
        raise RunError(CUDA_ERROR, text)


def _used(facts: Facts, ranks: list[Rank]) -> Facts:
    """Return a machine's facts with only the parts that the run uses.

    With some of the GPUs, these are only the NICs next to them.
    """
    gpus = [rank.gpu for rank in ranks]
    slots = {gpu["slot"] for gpu in gpus}
    near = [nic for nic in facts["nics"] if nic["gpu"] in slots]
    return {**facts, "gpus": gpus, "nics": facts["nics"] if len(gpus) >= len(facts["gpus"]) else near or facts["nics"]}


def _algorithm(settings: dict[str, str], name: str, nodes: list[Facts]) -> str:
    forced = settings.get("NCCL_ALGO", "").upper()
    if "RING" in forced and not forced.startswith("^"):
        return "RING"
    if (
        name != "all_reduce"
        or settings.get("NCCL_NVLS_ENABLE") == "0"
        or not all(node["multicast"] for node in nodes)
        or not all(gpu["links"] for node in nodes for gpu in node["gpus"])
    ):
        return "RING"
    return "NVLS"


def unreachable(mine: Facts, peer: Facts, reach: Reach) -> list[Facts]:
    """Return the rails on which the next machine cannot be reached: NCCL connects NICs of two machines by position."""
    found = []
    for one, other in zip(mine["nics"], peer["nics"], strict=False):
        size = min(one["mtu"], other["mtu"])
        if one["crossed"] or other["crossed"] or not _reach(one, other, max(64, size), reach):
            found.append(
                {
                    "host": mine["hostname"],
                    "device": one["device"],
                    "address": one["address"],
                    "peer": other["address"],
                    "peer_host": peer["hostname"],
                }
            )
    return found


def _reach(one: Facts, other: Facts, size: int, reach: Reach) -> bool:
    if "ib" in one and "ib" in other:
        return ib.reachable(one["ib"], other["ib"]) and ib.share_partition(one["ib"], other["ib"])
    return reach(one["netdev"], other["address"], size)


def next_peer(lines: list[Facts], host: str) -> Facts | None:
    """Return the facts of the machine after ``host`` in the ring; None if it is the only one."""
    nodes = [line["facts"] for line in lines if line["facts"]]
    if len(nodes) < 2:  # noqa: PLR2004
        return None
    at = next(index for index, node in enumerate(nodes) if node["hostname"] == host)
    following: Facts = nodes[(at + 1) % len(nodes)]
    return following


def _sizes(options: Options, ranks: list[Rank]) -> list[int]:
    low, high = options.bytes("min", 32 * MIB), options.bytes("max", 32 * MIB)
    memory = min(rank.gpu["memory_mib"] for rank in ranks) * MIB
    room = (memory - min(-(-memory // (16 * GIB)), 4) * GIB - GIB) // (3 if options.number("check", 1) else 2)
    high, grow, step = min(high, room), options.number("factor", 1), options.bytes("step", MIB)
    sizes, size = [], low
    while size <= high:
        sizes.append(size)
        size = size * grow if grow > 1 else size + step
    return sizes


def _rows(name: str, options: Options, ranks: list[Rank], peak: float, *, inter_node: bool) -> list[Facts]:
    factor = model.factor(name, len(ranks))
    rows, iters = [], max(1, options.number("iters", 20))
    for asked in _sizes(options, ranks):
        size, count = _elements(name, options, asked, len(ranks))
        row: Facts = {"size": size, "count": count, "seconds": 0.0}
        for place in ("out", "in"):
            took = model.seconds(size, peak / factor, inter_node=inter_node)
            row[place] = {"us": took * 1e6, "alg": size / took / 1e9, "bus": size / took / 1e9 * factor}
            row["seconds"] += took * iters
        rows.append(row)
    return rows


def _elements(name: str, options: Options, asked: int, ranks: int) -> tuple[int, int]:
    """Return the printed bytes and count (GetCollByteCount of each program; TimeTest in src/common.cu).

    all_reduce counts all elements; the others count those of one rank, as many whole 16 bytes as fit
    (writeBenchmarkLinePreamble).
    """
    each = _BYTES.get(options.values.get("type", "float"), 4)
    if name not in {"all_gather", "reduce_scatter", "alltoall"}:
        return asked // each * each, asked // each
    count = asked // each // ranks & ~(16 // each - 1)
    return count * ranks * each, count


def _carried(
    name: str, options: Options, nodes: list[Facts], algorithm: str, rows: list[Facts]
) -> dict[str, dict[str, int]]:
    """Return the bytes of each NIC.

    Every size runs once to warm up, ``n`` times timed and once checked, out of place and in place; before that the
    largest and the smallest ``w`` times.
    """
    ranks = sum(len(node["gpus"]) for node in nodes)
    launches = 1 + options.number("iters", 20) * options.number("agg", 1) + (1 if options.number("check", 1) else 0)
    total = sum(2 * launches * row["size"] for row in rows) + options.number("warmup", 1) * (
        rows[0]["size"] + rows[-1]["size"]
    )
    carried = {}
    for node in nodes:
        group = len(node["gpus"])
        if name == "all_reduce":
            share = 2 * (ranks - 1) / ranks if algorithm == "RING" else 2 * (len(nodes) - 1) / len(nodes)
        elif name == "alltoall":
            share = group * (ranks - group) / ranks
        else:
            share = (ranks - 1) / ranks if name in {"all_gather", "reduce_scatter"} else 1.0
        busy = sum(not nic["idle"] for nic in node["nics"])
        carried[node["hostname"]] = (
            {nic["device"]: 0 if nic["idle"] else int(total * share / busy) for nic in node["nics"]} if busy else {}
        )
    return carried
