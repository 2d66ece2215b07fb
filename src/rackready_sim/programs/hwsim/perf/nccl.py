"""NCCL's tests as rank 0 sees them: options and the run.

Format of nccl-tests 2.19.6 (src/common.cu, src/util.cu).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import model, nccl_log
from .nccl_log import Rank

Facts = dict[str, Any]
Reach = Callable[[str, str, int], bool]
_MIB, _GIB = 1 << 20, 1 << 30
_CUDA_ERROR, _NCCL_ERROR, _FAILURE = 2, 3, 1
_VALUED = {
    "t": "threads", "nthreads": "threads", "g": "gpus", "ngpus": "gpus", "b": "min", "minbytes": "min", "e": "max",
    "maxbytes": "max", "i": "step", "stepbytes": "step", "f": "factor", "stepfactor": "factor", "n": "iters",
    "iters": "iters", "m": "agg", "agg_iters": "agg", "w": "warmup", "warmup_iters": "warmup", "c": "check",
    "check": "check", "o": "op", "op": "op", "d": "type", "datatype": "type", "r": "root", "root": "root",
    "z": "blocking", "blocking": "blocking", "T": "timeout", "timeout": "timeout", "G": "graph", "cudagraph": "graph",
    "C": "cpu", "report_cputime": "cpu", "a": "average", "average": "average", "R": "register",
    "local_register": "register", "J": "json", "json": "json", "N": "cycles", "run_cycles": "cycles", "p": "parallel",
    "parallel_init": "parallel", "y": "stream", "S": "report",
}  # fmt: skip
_COLUMNS = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6} "
_HEAD = _COLUMNS.format("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
_UNITS = _COLUMNS.format("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)
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


class Options:
    """The command line with the tests' defaults."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def number(self, key: str, default: int) -> int:
        """Return an integer option."""
        return int(self.values.get(key, default))

    def bytes(self, key: str, default: int) -> int:
        """Return a size; suffixes K, M, G."""
        text = self.values.get(key)
        return default if text is None else parse_bytes(text)


class RunError(Exception):
    """The test ends early: exit code and output."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as 8G. Raise ValueError if it is none."""
    scale = {"K": 1 << 10, "M": _MIB, "G": _GIB}.get(text[-1:].upper(), 1)
    return int(float(text[:-1] if scale > 1 else text) * scale)


def parse(argv: list[str]) -> Options:
    """Read the command line. Raise RunError for an option that does not exist."""
    options, queue = Options(), list(argv)
    while queue:
        word, mark, value = queue.pop(0).partition("=")
        name = word.lstrip("-")
        if not word.startswith("--") and word.startswith("-") and len(name) > 1:
            name, value, mark = name[0], name[1:] + mark + value, "="
        if name not in _VALUED or not word.startswith("-") or (not mark and not queue):
            raise RunError(_FAILURE, f"invalid option '{word}'\nUSAGE: see --help\n")
        options.values[_VALUED[name]] = value if mark else queue.pop(0)
    return options


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
            _NCCL_ERROR,
            _header(name, version, options, ranks, used) + nccl_log.broken(request["probes"], ranks, used, settings),
        )
    algorithm = _algorithm(settings, name, used)
    peak = model.bus_bandwidth(name, used, algorithm, network=network)
    text = _header(name, version, options, ranks, used)
    text += nccl_log.lines(ranks, used, settings, algorithm, network)
    rows = _rows(name, options, ranks, peak, inter_node=len(used) > 1)
    carried = _carried(name, options, used, algorithm, rows) if len(used) > 1 and network == "IB" and rows else {}
    footer, code = _footer(name, rows)
    _write_json(options, name, version, ranks, rows, used)
    time.sleep(min(_LONGEST_S, 0.2 + sum(row["seconds"] for row in rows) * 0.02))
    return text + _table(name, options, rows) + footer, {"code": code, "carried": carried}


def _ranks(options: Options, lines: list[Facts], nodes: dict[str, Facts]) -> list[Rank]:
    found: list[Rank] = []
    per, hosts = options.number("threads", 1) * options.number("gpus", 1), ""
    for line in lines:
        if line["facts"]:
            hosts = line["facts"]["hostname"]
        host = line.get("host") or hosts
        facts = nodes.get(host)
        if facts is None:
            raise RunError(_FAILURE, f"{host}: no answer\n")
        _usable(facts, line["pid"])
        for slot in range(per):
            device = line["local"] * per + slot
            if device >= len(facts["gpus"]):
                wanted = (line["local"] + 1) * per
                text = f"Invalid number of GPUs: {wanted} requested but only {len(facts['gpus'])} were found.\n"
                text += "Please check the number of processes and GPUs per process.\n"
                raise RunError(_NCCL_ERROR, text)
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
        raise RunError(_CUDA_ERROR, text)


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
        if one["crossed"] or other["crossed"] or not reach(one["netdev"], other["address"], max(64, size)):
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


def next_peer(lines: list[Facts], host: str) -> Facts | None:
    """Return the facts of the machine after ``host`` in the ring; None if it is the only one."""
    nodes = [line["facts"] for line in lines if line["facts"]]
    if len(nodes) < 2:  # noqa: PLR2004
        return None
    at = next(index for index, node in enumerate(nodes) if node["hostname"] == host)
    following: Facts = nodes[(at + 1) % len(nodes)]
    return following


def _sizes(options: Options, ranks: list[Rank]) -> list[int]:
    low, high = options.bytes("min", 32 * _MIB), options.bytes("max", 32 * _MIB)
    memory = min(rank.gpu["memory_mib"] for rank in ranks) * _MIB
    room = (memory - min(-(-memory // (16 * _GIB)), 4) * _GIB - _GIB) // (3 if options.number("check", 1) else 2)
    high, grow, step = min(high, room), options.number("factor", 1), options.bytes("step", _MIB)
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


def _redop(name: str, options: Options) -> str:
    """Return the printed operation: none if a collective has none.

    Source: RunTest of src/all_gather.cu and src/alltoall.cu.
    """
    return options.values.get("op", "sum") if name in {"all_reduce", "reduce_scatter"} else "none"


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


def _header(name: str, version: str, options: Options, ranks: list[Rank], nodes: list[Facts]) -> str:
    major, minor, patch = (int(part) for part in nodes[0]["nccl"].split("."))
    code = major * 10000 + minor * 100 + patch
    step = (
        f"{options.number('factor', 1)}(factor)"
        if options.number("factor", 1) > 1
        else f"{options.bytes('step', _MIB)}(bytes)"
    )
    sizes = (
        f"# nThread {options.number('threads', 1)} nGpus {options.number('gpus', 1)} minBytes "
        f"{options.bytes('min', 32 * _MIB)} "
        f"maxBytes {options.bytes('max', 32 * _MIB)} step: {step} warmup iters: {options.number('warmup', 1)} "
        f"iters: {options.number('iters', 20)} "
    )
    lines = [
        f"# nccl-tests version {version} nccl-headers={code} nccl-library={code}",
        f"# Collective test starting: {name}_perf",
        sizes + f"agg iters: {options.number('agg', 1)} validation: {options.number('check', 1)} graph: "
        f"{options.number('graph', 0)} unalign: 0",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank.rank:2d} Group {0:2d} Pid {rank.pid:6d} on {rank.host:>10} device {rank.device:2d} "
        f"[{rank.gpu['pci'][:-2]}] {rank.gpu['name']}"
        for rank in ranks
    ]
    return "\n".join([*lines, "#", ""])


def _table(name: str, options: Options, rows: list[Facts]) -> str:
    kind = options.values.get("type", "float")
    redop, root = _redop(name, options), "-1"
    wrong = {place: "0" if _reported(name, options, place) else "N/A" for place in ("out", "in")}
    lines = [f"#\n# {'out-of-place':>65}{'in-place':>39}          ", _HEAD, _UNITS]
    for row in rows:
        cells = ""
        for place in ("out", "in"):
            cells += (
                f"  {_number(row[place]['us'])}  {_number(row[place]['alg'], 6)}  {_number(row[place]['bus'], 6)}  "
                f"{wrong[place]:>6}"
            )
        lines.append(f"{row['size']:12d}  {row['count']:12d}  {kind:>8}  {redop:>6}  {root:>6}{cells}")
    return "\n".join(lines) + "\n"


def _reported(name: str, options: Options, place: str) -> bool:
    """Return whether results are checked.

    Never in place if a run overwrites its own data (reportErrors of src/alltoall.cu and src/sendrecv.cu).
    """
    return bool(options.number("check", 1)) and not (place == "in" and name in {"alltoall", "sendrecv"})


def _number(value: float, width: int = 7) -> str:
    """Return a figure in so many characters, with as many decimals as fit, two at most (getFloatStr of src/util.cu)."""
    return next(
        (text for digits in (2, 1, 0) if len(text := f"{value:{width}.{digits}f}") <= width), f"{value:{width}.1e}"
    )


def _footer(name: str, rows: list[Facts]) -> tuple[str, int]:
    mean = _mean(rows)
    wanted = os.environ.get("NCCL_TESTS_MIN_BW")
    word, code = "", 0
    if wanted:
        good = mean >= 0.9 * float(wanted)
        word, code = " OK" if good else " FAILED", 0 if good else _FAILURE
    return (
        (
            f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:.6g}{word}\n#\n"
            f"# Collective test concluded: {name}_perf\n"
        ),
        code,
    )


def _mean(rows: list[Facts]) -> float:
    return sum(row[place]["bus"] for row in rows for place in ("out", "in")) / (2 * len(rows)) if rows else 0.0


def _write_json(
    options: Options, name: str, version: str, ranks: list[Rank], rows: list[Facts], nodes: list[Facts]
) -> None:
    target = options.values.get("json")
    if not target:
        return
    path = Path(target)
    names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(100))]
    free = next(item for item in names if not item.exists())
    checked = bool(options.number("check", 1))
    document = {
        "version": 3,
        "start_time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "args": [f"{name}_perf", *(f"{key}={value}" for key, value in options.values.items())],
        "env": [f"{key}={value}" for key, value in os.environ.items()],
        "nccl_version": nodes[0]["nccl"],
        "config": {
            "nccl_tests_version": version,
            "nthreads": options.number("threads", 1),
            "ngpus": options.number("gpus", 1),
            "warmup_iters": options.number("warmup", 1),
            "iterations": options.number("iters", 20),
            "aggregated_iterations": options.number("agg", 1),
            "validation": options.number("check", 1),
            "graph": options.number("graph", 0),
            "blocking_collectives": "false",
        },
        "devices": [
            {
                "rank": rank.rank,
                "group": 0,
                "pid": rank.pid,
                "hostname": rank.host,
                "device": rank.device,
                "device_hex": rank.gpu["pci"],
                "device_info": rank.gpu["name"],
            }
            for rank in ranks
        ],
        "results": [_json_row(name, options, row) for row in rows],
        "out_of_bounds": {"count": 0, "okay": "true" if checked else "unchecked"},
        "average_bus_bandwidth": {"bandwidth": _mean(rows), "okay": "unchecked"},
        "end_time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    free.write_text(json.dumps(document, indent=1))


def _json_row(name: str, options: Options, row: Facts) -> Facts:
    kind = options.values.get("type", "float")
    found: Facts = {
        "size": row["size"],
        "count": row["count"],
        "type": kind,
        "redop": _redop(name, options),
        "root": f"{-1:6d}",
    }
    for place, key in (("out", "out_of_place"), ("in", "in_place")):
        wrong = 0 if _reported(name, options, place) else None
        found[key] = {
            "time": row[place]["us"],
            "alg_bw": row[place]["alg"],
            "bus_bw": row[place]["bus"],
            "nwrong": wrong,
        }
    return {**found, "actual_iterations": options.number("iters", 20), "experiment_name": f"{name}_perf"}
