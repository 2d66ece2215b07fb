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
from ..smi.topology import distance
from . import facts, model, ports, probe, wire

Facts = dict[str, Any]
_RULE = "-" * 87
_MIB = 1 << 20
_LONGEST_S = 0.3
"""Longest duration of a measurement here, s: long enough that a stop or a kill interrupts it."""
_NO_PEAK = 20000
_VALUED = {
    "-d": "device", "--ib-dev": "device", "-p": "port", "--port": "port", "-s": "size", "--size": "size",
    "-n": "iters", "--iters": "iters", "-D": "duration", "--duration": "duration", "-q": "qps", "--qp": "qps",
    "-x": "gid", "--gid-index": "gid", "--use_cuda": "cuda", "-m": "mtu", "--mtu": "mtu", "-i": "ib_port",
    "--ib-port": "ib_port", "-t": "depth", "--tx-depth": "depth", "-S": "sl", "--sl": "sl", "--tclass": "tclass",
    "-T": "tos", "--tos": "tos", "--out_json_file": "json_file", "-c": "connection", "--connection": "connection",
    "-Q": "cq", "--cq-mod": "cq", "-l": "list", "--post_list": "list", "-u": "timeout", "--qp-timeout": "timeout",
    "-o": "outs", "--use_cuda_bus_id": "cuda_bus", "-I": "inline", "--inline_size": "inline",
    "--bind_source_ip": "source",
}  # fmt: skip
_FLAGS = {
    "-F", "--CPU-freq", "--report_gbits", "-b", "--bidirectional", "-a", "--all", "--use_cuda_dmabuf", "--cpu_util",
    "-R", "--rdma_cm", "--perform_warm_up", "--out_json", "-N", "--noPeak", "-z", "--comm_rdma_cm", "-h", "--help",
    "-V", "--version", "-r", "--disable_pcie_relaxed",
}  # fmt: skip


class Options:
    """The command line."""

    def __init__(self, name: str) -> None:
        self.name, self.host = name, ""
        self.values: dict[str, str] = {}
        self.flags: set[str] = set()

    @property
    def latency(self) -> bool:
        """Whether it is a latency test."""
        return self.name.endswith("_lat")

    @property
    def verb(self) -> str:
        """Name of the operation, as in the result's title."""
        return "RDMA_Read" if "_read_" in self.name else "RDMA_Write"

    @property
    def size(self) -> int:
        """Message size, bytes."""
        return int(self.values.get("size", 2 if self.latency else 65536))

    @property
    def iters(self) -> int:
        """Iterations."""
        return int(self.values.get("iters", 1000 if self.latency else 5000))

    @property
    def no_peak(self) -> bool:
        """Whether no peak is measured; the program prints that if nobody asked for it.

        See force_dependecies of src/perftest_parameters.c.
        """
        return "duration" in self.values or self.iters > _NO_PEAK or bool(self.flags & {"-N", "--noPeak"})

    @property
    def port(self) -> int:
        """TCP port of the exchange."""
        return int(self.values.get("port", 18515))


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


def parse(name: str, argv: list[str]) -> Options | str:
    """Sort the command line; a text is the error."""
    options = Options(name)
    queue = list(argv)
    while queue:
        word, _, value = queue.pop(0).partition("=")
        if word in _VALUED:
            if not value and not queue:
                return f"option requires an argument -- '{word.lstrip('-')}'"
            options.values[_VALUED[word]] = value or queue.pop(0)
        elif word in _FLAGS:
            options.flags.add(word)
        elif word.startswith("-"):
            return f"unrecognized option '{word}'"
        else:
            options.host = word
    numbers = ("size", "iters", "duration", "qps", "gid", "cuda", "port", "ib_port")
    bad = next((key for key in numbers if key in options.values and not options.values[key].isdigit()), None)
    return f"Invalid value for {bad}: {options.values[bad]}" if bad else options


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
    index = int(options.values.get("gid", 3 if len(gids) > 3 else 1))  # noqa: PLR2004
    if index >= len(gids):
        raise TestError(" Failed to create QP.\n Unable to set up the GID\n Couldn't create IB resources")
    end: Facts = {
        **nic,
        "gid": gids[index][0],
        "gid_index": index,
        "distance": "HOST",
        "pcie_gb_s": 1e9,
        "mtu": _mtu(options, nic),
    }
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
        _head(options, end, other)
        _say(stream, {"reach": probe.reachable(end["netdev"], _address(other), _payload(end, other))})
        result = _hear(stream)
        if "error" in result:
            raise TestError(result["error"])
        sys.stdout.write(_row(options, result) + f"{_RULE}\n")
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
        _head(options, end, hello["end"])
        problem = _unreachable(end, hello["end"], _hear(stream)["reach"])
        if problem:
            _say(stream, {"error": problem})
            raise TestError(problem)
        end["wire"] = wire.talk(end["netdev"], _address(hello["end"]), {"ask": True}).get("factor", 1.0)
        result = _measure(options, end, hello["end"], int(hello["flows"]))
        told = {"bytes": result["bytes"], "priority": end["priority"], "flows": result["flows"]}
        result["fate"] = wire.talk(end["netdev"], _address(hello["end"]), told)
        result["priority"] = end["priority"]
        result["cnp_off"] = hello["end"]["cnp_off"]
        _say(stream, result)
        _hear(
            stream
        )  # both ends shake hands before they end: by then all data have arrived, and the other port has counted them
    sys.stdout.write(_row(options, result) + f"{_RULE}\n")
    ports.count(end, result, client=bool(options.host))
    ports.congestion(end, result, sends=True)
    _json(options, result)
    return 0


def _unreachable(end: Facts, other: Facts, back: object) -> str:
    if not probe.reachable(end["netdev"], _address(other), 64):
        return "Failed to modify QP 1 to RTR\n Unable to Connect the HCA's through the link"
    if not probe.reachable(end["netdev"], _address(other), _payload(end, other)) or not back:
        return (
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n Failed "
            "to complete run_iter_bw function successfully"
        )
    return ""


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


def _head(options: Options, end: Facts, other: Facts) -> None:
    title = (
        f"{options.verb} Latency Test"
        if options.latency
        else "RDMA_Write Bidirectional BW Test"
        if options.flags & {"-b", "--bidirectional"}
        else "RDMA_Write BW Test"
    )
    lines = [
        _RULE,
        f"                    {title}",
        f" Dual-port       : OFF\t\tDevice         : {end['device']}",
        f" Number of qps   : {options.values.get('qps', '1')}\t\tTransport type : IB",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        " PCIe relax order: ON\t\tLock-free      : OFF",
        " ibv_wr* API     : ON\t\tUsing DDP      : OFF",
        f" TX depth        : {options.values.get('depth', '1' if options.latency else '128')}",
        f" CQ Moderation   : {options.values.get('cq', '1')}",
        f" Mtu             : {min(end['mtu'], other['mtu'])}[B]",
        " Link type       : Ethernet",
        f" GID index       : {end['gid_index']}",
        f" Max inline data : {220 if options.latency else 0}[B]",
        f" rdma_cm QPs\t : {'ON' if options.flags & {'-R', '--rdma_cm'} else 'OFF'}",
        f" Data ex. method : {'rdma_cm' if options.flags & {'-R', '--rdma_cm'} else 'Ethernet'}",
        _RULE,
        *_address_lines("local", end),
        *_address_lines("remote", other),
        _RULE,
        _columns(options),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _address_lines(which: str, end: Facts) -> list[str]:
    raw = bytes.fromhex(end["gid"].replace(":", ""))
    return [
        (
            f" {which} address: LID 0000 QPN 0x{end['qpn']:04x} PSN 0x{end['psn']:x} RKey 0x{end['rkey']:06x} VAddr "
            f"0x007f{end['vaddr']:010x}"
        ),
        f" GID: {':'.join(f'{byte:02d}' for byte in raw)}",
    ]


def _columns(options: Options) -> str:
    if options.latency:
        names = (
            "t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   "
            "99.9% percentile[usec] "
        )
        return f" #bytes #iterations    {names}"
    unit = "Gb/sec" if "--report_gbits" in options.flags else "MB/sec"
    return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"


def _row(options: Options, result: Facts) -> str:
    lines = []
    for row in result["rows"]:
        if options.latency:
            cells = "".join(f"{row[key]:<15.2f} " for key in ("min", "max", "typical", "avg", "stdev", "p99", "p999"))
            lines.append(f" {row['size']:<7} {row['iters']:<14} {cells}")
            continue
        scale = 1.0 if "--report_gbits" in options.flags else 1e9 / 8 / _MIB
        rate = row["gbps"] * 1e9 / 8 / row["size"] / 1e6
        lines.append(
            f" {row['size']:<10} {row['iters']:<15}{row['peak'] * scale:<18.2f} {row['gbps'] * scale:<18.2f} "
            f"{rate:<14.6f}"
        )
    return "\n".join(lines) + "\n"


def _json(options: Options, result: Facts) -> None:
    if "--out_json" not in options.flags or options.latency:
        return
    rows = [
        {
            "MsgSize": row["size"],
            "n_iterations": row["iters"],
            "BW_peak": round(row["peak"], 2),
            "BW_average": round(row["gbps"], 2),
            "MsgRate": 0,
        }
        for row in result["rows"]
    ]
    with open(options.values.get("json_file", "perftest_out.json"), "w", encoding="utf-8") as stream:  # noqa: PTH123  (as named on the command line)
        json.dump(
            {"test_info": {"test": options.name, "Device": options.values.get("device", "")}, "results": rows[0]},
            stream,
        )


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
