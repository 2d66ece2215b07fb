"""Output of NCCL's tests: header, table, footer and JSON. Format of nccl-tests 2.19.6 (src/common.cu, src/util.cu).

A document of a real H200 is tests/fixtures/captured/h200_vm/nccl_all_reduce.json.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from .nccl_log import Rank
from .nccl_options import FAILURE, MIB, Options

Facts = dict[str, Any]
_COLUMNS = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6} "
_HEAD = _COLUMNS.format("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
_UNITS = _COLUMNS.format("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)


def _redop(name: str, options: Options) -> str:
    """Return the printed operation: none if a collective has none.

    Source: RunTest of src/all_gather.cu and src/alltoall.cu.
    """
    return options.values.get("op", "sum") if name in {"all_reduce", "reduce_scatter"} else "none"


def _nccl_code(nodes: list[Facts]) -> int:
    """Return NCCL's version as NCCL_VERSION_CODE has it: 2.28.9 is 22809."""
    major, minor, patch = (int(part) for part in nodes[0]["nccl"].split("."))
    return major * 10000 + minor * 100 + patch


def header(name: str, version: str, options: Options, ranks: list[Rank], nodes: list[Facts]) -> str:
    """Return the lines before the table: version, settings and devices."""
    code = _nccl_code(nodes)
    step = (
        f"{options.number('factor', 1)}(factor)"
        if options.number("factor", 1) > 1
        else f"{options.bytes('step', MIB)}(bytes)"
    )
    sizes = (
        f"# nThread {options.number('threads', 1)} nGpus {options.number('gpus', 1)} minBytes "
        f"{options.bytes('min', 32 * MIB)} "
        f"maxBytes {options.bytes('max', 32 * MIB)} step: {step} warmup iters: {options.number('warmup', 1)} "
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


def table(name: str, options: Options, rows: list[Facts]) -> str:
    """Return the table of results."""
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


def footer(name: str, rows: list[Facts]) -> tuple[str, int]:
    """Return the closing lines and the exit code."""
    mean = _mean(rows)
    wanted = os.environ.get("NCCL_TESTS_MIN_BW")
    word, code = "", 0
    if wanted:
        good = mean >= 0.9 * float(wanted)
        word, code = " OK" if good else " FAILED", 0 if good else FAILURE
    return (
        (
            f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:.6g}{word}\n#\n"
            f"# Collective test concluded: {name}_perf\n"
        ),
        code,
    )


def _mean(rows: list[Facts]) -> float:
    return sum(row[place]["bus"] for row in rows for place in ("out", "in")) / (2 * len(rows)) if rows else 0.0


def write_json(options: Options, name: str, ranks: list[Rank], rows: list[Facts], nodes: list[Facts]) -> None:
    """Write the JSON report if the options name a file. It names the first rank of each process only."""
    target = options.values.get("json")
    if not target:
        return
    path = Path(target)
    names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(100))]
    free = next(item for item in names if not item.exists())
    processes = {(rank.host, rank.pid): rank for rank in reversed(ranks)}
    document = {
        "version": 3,
        "start_time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "args": [f"{name}_perf", *(f"{key}={value}" for key, value in options.values.items())],
        "env": [f"{key}={value}" for key, value in os.environ.items()],
        "nccl_version": _nccl_code(nodes),
        "config": {
            "nthreads": options.number("threads", 1),
            "ngpus": options.number("gpus", 1),
            "warmup_iters": options.number("warmup", 1),
            "iterations": options.number("iters", 20),
            "aggregated_iterations": options.number("agg", 1),
            "validation": options.number("check", 1),
            "graph": options.number("graph", 0),
            "blocking_collectives": "false",
            "per_iter_timing": "false",
            "per_iter_skip": 0,
            "parallel_init": "false",
            "devices": [
                {
                    "rank": rank.rank,
                    "group": 0,
                    "pid": rank.pid,
                    "hostname": rank.host,
                    "device": rank.device,
                    "device_hex": rank.gpu["pci"].partition(".")[0],
                    "device_info": rank.gpu["name"],
                }
                for rank in reversed(processes.values())
            ],
        },
        "results": [_json_row(name, options, row) for row in rows],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": _mean(rows), "okay": "unchecked"},
        "errors": [""],
        "end_time": time.strftime("%Y-%m-%d %H:%M:%S"),
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
    return {**found, "actual_iterations": options.number("iters", 20), "experiment_name": ""}
