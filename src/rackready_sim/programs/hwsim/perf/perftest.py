"""ib_write_bw and ib_write_lat: a server and a client that meet over TCP; data move in the model.

Formats and messages: perftest 25.x. The network itself is tested for whether the peer's port is reachable.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from typing import Any, TextIO

from .. import machine, rdmatree, store
from ..ib import node as ib
from ..nic.tools import traffic_class
from ..smi.topology import distance
from . import facts, model, perftest_report, ports, probe, wire
from .perftest_options import Options, parse

Facts = dict[str, Any]
_LONGEST_S = 0.3
"""Longest duration of a measurement here, s: long enough that a stop or a kill interrupts it."""


class TestError(Exception):
    """The test cannot continue; the text is the program's output."""


def main(name: str, argv: list[str]) -> int:
    """Run one side: without a host name, the server."""
    options = parse(name, argv)
    if isinstance(options, str):
        sys.stderr.write(f"{name}: {options}\n Parser function exited with Error\n")
        return 1
    if options.flags & {"-V", "--version"}:
        sys.stdout.write("Version: 25.10\n")
        return 0
    if options.no_peak and not options.latency and not options.flags & {"-N", "--noPeak"}:
        sys.stdout.write(" WARNING: BW peak won't be measured in this run.\n")
    try:
        end = _open(options)
        return _client(options, end) if options.host else _server(options, end)
    except TestError as error:
        sys.stdout.flush()
        sys.stderr.write(f"{error}\n")
        return 1


def _open(options: Options) -> Facts:
    """Open the device and its buffer; return what the other end needs."""
    device = options.values.get("device")
    nics = facts.nic_facts()
    nic = next((item for item in nics if device is None or item["device"] == device), None)
    if nic is None:
        raise TestError(f" IB device {device} not found\n Unable to find the Infiniband/RoCE device")
    if not nic["up"]:
        raise TestError(
            " Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device"
        )
    raw = next(item for item in machine.nics() if item["rdma_device"] == nic["device"])
    gids = rdmatree.gids(raw)
    usual = 0 if ib.is_cabled(raw) else 3 if len(gids) > 3 else 1  # noqa: PLR2004
    index = int(options.values.get("gid", usual))
    if index >= len(gids):
        raise TestError(" Failed to create QP.\n Unable to set up the GID\n Couldn't create IB resources")
    end: Facts = {
        **facts.keyed(nic),
        "gid": gids[index][0],
        "gid_index": index,
        "distance": "HOST",
        "pcie_gb_s": 1e9,
        "mtu": _mtu(options, nic),
    }
    if "tclass" in options.values and not traffic_class(raw):  # OFED's setting of the port goes first
        end["priority"] = facts.priority(raw, int(options.values["tclass"]))
    if "cuda" in options.values:
        end.update(_cuda(options, raw))
    return {
        **end,
        "qpn": random.randrange(0x40, 0xFFFF),
        "psn": random.randrange(1 << 24),
        "rkey": random.randrange(1 << 20),
        "vaddr": random.randrange(1 << 40),
    }


def _mtu(options: Options, nic: Facts) -> int:
    return min(int(options.values["mtu"]), nic["mtu"]) if options.values.get("mtu", "").isdigit() else int(nic["mtu"])


def _cuda(options: Options, nic: Facts) -> Facts:
    sys.stdout.write(" initializing CUDA\n")
    code, _text = facts.cuda_error()
    if code:
        raise TestError(f"cuInit(0) returned {code}\n Couldn't init the memory\n Failed to create the context")
    sys.stdout.write(" Listing all CUDA devices in system:\n")
    gpus = [gpu for gpu in facts.gpu_facts() if not gpu["lost"]]
    for at, gpu in enumerate(gpus):
        sys.stdout.write(f" CUDA device {at}: PCIe address is {gpu['pci'][5:10].upper()}\n")
    if options.latency and options.verb == "RDMA_Write":
        raise TestError("Perftest supports CUDA latency tests with read/send verbs only")
    wanted = int(options.values["cuda"])
    sys.stdout.write(f"\n Picking device No. {wanted}\n")
    if wanted >= len(gpus):
        raise TestError(f" No CUDA device with ordinal {wanted}: {len(gpus)} devices found")
    gpu = gpus[wanted]
    sys.stdout.write(
        f" [pid = {os.getpid()}, dev = {wanted}] device name = [{gpu['name']}]\n creating CUDA Ctx\n making it the "
        "current CUDA Ctx\n"
    )
    size = max(2 * options.size * int(options.values.get("qps", 1)), 65536)
    if not facts.gdr():
        raise TestError(" Couldn't register MR with dma-buf\n Failed to create MR\n Couldn't create IB resources")
    if "--use_cuda_dmabuf" in options.flags:
        sys.stdout.write(
            " CUDA device integrated: 0\n using DMA-BUF for GPU buffer address at 0x7f3b5e000000 aligned at "
            f"0x7f3b5e000000 with aligned size {size}\n"
        )
    elif "nvidia_peermem" not in store.runtime()["modules"]:
        raise TestError(" Couldn't register MR\n Failed to create MR\n Couldn't create IB resources")
    sys.stdout.write(f" allocated GPU buffer of a {size} address at 0x7f3b5e000000 for type CUDA_MEM_DEVICE\n")
    return {"distance": distance({"index": gpu["slot"], "numa": gpu["numa"]}, nic), "pcie_gb_s": model.pcie_gb_s(gpu)}


def _server(options: Options, end: Facts) -> int:
    if "duration" not in options.values:
        return _serve(options, end)
    ports.await_client(end)
    try:
        return _serve(options, end)
    finally:
        ports.leave(end)


def _serve(options: Options, end: Facts) -> int:
    sys.stdout.write(f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}\n")
    sys.stdout.flush()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", options.port))
        except OSError:
            raise TestError(
                " Unable to open file descriptor for socket connection Unable to init the socket connection"
            ) from None
        listener.listen(1)
        peer, _ = listener.accept()
    with peer, peer.makefile("rw") as stream:
        _say(
            stream, {"end": end, "name": options.name, "flows": ports.flows(end) if "duration" in options.values else 1}
        )
        other = _hear(stream)["end"]
        perftest_report.head(options, end, other)
        _say(stream, {"reach": _reach(end, other, _payload(end, other))})
        result = _hear(stream)
        if "error" in result:
            raise TestError(result["error"])
        sys.stdout.write(perftest_report.rows(options, result) + f"{perftest_report.RULE}\n")
        ports.count(end, result, client=bool(options.host))
        ports.congestion(end, result, sends=False)
        _say(stream, {"closed": True})
    return 0


def _client(options: Options, end: Facts) -> int:
    refused = (
        f"Couldn't connect to {options.host}:{options.port}\n Unable to open file descriptor for socket connection "
        "Unable to init the socket connection"
    )
    if end["crossed"]:
        raise TestError(refused)
    try:
        peer = socket.create_connection((options.host, options.port), timeout=10)
    except socket.gaierror as error:
        raise TestError(
            f" {error.strerror} for {options.host}:{options.port}\n Unable to init the socket connection"
        ) from None
    except OSError:
        raise TestError(refused) from None
    with peer, peer.makefile("rw") as stream:
        peer.settimeout(60)
        hello = _hear(stream)
        if hello["end"]["crossed"]:
            raise TestError(f"Couldn't connect to {options.host}:{options.port}\n Unable to init the socket connection")
        _say(stream, {"end": end})
        if hello["name"] != options.name:
            raise TestError(" Failed to exchange data between server and clients")
        perftest_report.head(options, end, hello["end"])
        problem = _unreachable(end, hello["end"], _hear(stream)["reach"])
        if problem:
            _say(stream, {"error": problem})
            raise TestError(problem)
        end["wire"] = _talk(end, hello["end"], {"ask": True}).get("factor", 1.0)
        result = _measure(options, end, hello["end"], int(hello["flows"]))
        told = {"bytes": result["bytes"], "priority": end["priority"], "flows": result["flows"]}
        result["fate"] = _talk(end, hello["end"], told)
        result["priority"] = end["priority"]
        result["cnp_off"] = hello["end"]["cnp_off"]
        _say(stream, result)
        _hear(
            stream
        )  # both ends shake hands before they end: by then all data have arrived, and the other port has counted them
    sys.stdout.write(perftest_report.rows(options, result) + f"{perftest_report.RULE}\n")
    ports.count(end, result, client=bool(options.host))
    ports.congestion(end, result, sends=True)
    perftest_report.write_json(options, result)
    return 0


def _unreachable(end: Facts, other: Facts, back: object) -> str:
    if not _reach(end, other, 64):
        return "Failed to modify QP 1 to RTR\n Unable to Connect the HCA's through the link"
    if not _reach(end, other, _payload(end, other)) or not back or not _share_partition(end, other):
        return (
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n Failed "
            "to complete run_iter_bw function successfully"
        )
    return ""


def _share_partition(end: Facts, other: Facts) -> bool:
    """Queue pairs connect whatever their keys are; then the packets are dropped, and retries run out."""
    return "ib" not in end or "ib" not in other or ib.share_partition(end["ib"], other["ib"])


def _reach(end: Facts, other: Facts, size: int) -> bool:
    if "ib" in end and "ib" in other:
        return ib.reachable(end["ib"], other["ib"])
    return probe.reachable(end["netdev"], _address(other), size)


def _talk(end: Facts, other: Facts, told: Facts) -> Facts:
    """Ask the switch; InfiniBand's switches forward all of it."""
    return {} if "ib" in end else wire.talk(end["netdev"], _address(other), told)


def _payload(end: Facts, other: Facts) -> int:
    return max(64, min(int(end["mtu"]), int(other["mtu"])))


def _measure(options: Options, end: Facts, other: Facts, flows: int = 1) -> Facts:
    duration = float(options.values.get("duration", 0))
    if options.latency:
        time.sleep(0.2)
        return _latency(options, end, other)
    both = bool(options.flags & {"-b", "--bidirectional"})
    sizes = [2**power for power in range(1, 24)] if options.flags & {"-a", "--all"} else [options.size]
    rows = []
    for size in sizes:
        top = model.verbs_gbps(end, other, both_ways=both) / flows
        speed = min(top, size * 8 * 3.1e-3 * model.noise(0.004)) * min(1.0, 0.55 + size / 20000)
        count = int(duration * speed * 1e9 / 8 / size) if duration else options.iters
        rows.append(
            {
                "size": size,
                "iters": count,
                "gbps": speed,
                "peak": 0.0 if options.no_peak else speed * random.uniform(1.0, 1.003),
            }
        )
    time.sleep(min(_LONGEST_S, max(0.15, duration / 10)))
    return {"rows": rows, "bytes": sum(row["size"] * row["iters"] for row in rows), "both": both, "flows": flows}


def _latency(options: Options, end: Facts, other: Facts) -> Facts:
    read = 1.75 if options.verb == "RDMA_Read" else 0.0
    typical = 1.95 + read + options.size / 48e3 + random.uniform(-0.04, 0.04) + end["latency_us"] + other["latency_us"]
    row = {
        "size": options.size, "iters": options.iters, "min": typical - 0.08,
        "max": typical + random.uniform(1.0, 3.5), "typical": typical,
        "avg": typical + 0.03, "stdev": 0.05, "p99": typical + 0.21, "p999": typical + 0.9,
    }  # fmt: skip
    return {"rows": [row], "bytes": options.size * options.iters, "both": True, "flows": 1}


def _address(end: Facts) -> str:
    return str(end["address"])


def _say(stream: TextIO, message: Facts) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _hear(stream: TextIO) -> Facts:
    line = stream.readline()
    if not line:
        raise TestError(
            " Failed to exchange data between server and clients\n Couldn't read remote address\n Unable to read "
            "from socket/rdma_cm"
        )
    found: Facts = json.loads(line)
    return found
