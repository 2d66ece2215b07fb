"""Output of perftest 25.x: header, table and JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from .perftest_options import Options

Facts = dict[str, Any]
RULE = "-" * 87
_MIB = 1 << 20


def head(options: Options, end: Facts, other: Facts) -> None:
    """Print the lines before the table."""
    title = (
        f"{options.verb} Latency Test"
        if options.latency
        else "RDMA_Write Bidirectional BW Test"
        if options.flags & {"-b", "--bidirectional"}
        else "RDMA_Write BW Test"
    )
    lines = [
        RULE,
        f"                    {title}",
        f" Dual-port       : OFF\t\tDevice         : {end['device']}",
        f" Number of qps   : {options.values.get('qps', '1')}\t\tTransport type : IB",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        " PCIe relax order: ON\t\tLock-free      : OFF",
        " ibv_wr* API     : ON\t\tUsing DDP      : OFF",
        f" TX depth        : {options.values.get('depth', '1' if options.latency else '128')}",
        f" CQ Moderation   : {options.values.get('cq', '1')}",
        f" Mtu             : {min(end['mtu'], other['mtu'])}[B]",
        f" Link type       : {'IB' if 'ib' in end else 'Ethernet'}",
        *([] if "ib" in end else [f" GID index       : {end['gid_index']}"]),
        f" Max inline data : {220 if options.latency else 0}[B]",
        f" rdma_cm QPs\t : {'ON' if options.flags & {'-R', '--rdma_cm'} else 'OFF'}",
        f" Data ex. method : {'rdma_cm' if options.flags & {'-R', '--rdma_cm'} else 'Ethernet'}",
        RULE,
        *_address_lines("local", end),
        *_address_lines("remote", other),
        RULE,
        _columns(options),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _address_lines(which: str, end: Facts) -> list[str]:
    raw = bytes.fromhex(end["gid"].replace(":", ""))
    lid = f"0x{end['lid']:02x}" if "ib" in end else "0000"
    lines = [
        (
            f" {which} address: LID {lid} QPN 0x{end['qpn']:04x} PSN 0x{end['psn']:x} RKey 0x{end['rkey']:06x} VAddr "
            f"0x007f{end['vaddr']:010x}"
        ),
        f" GID: {':'.join(f'{byte:02d}' for byte in raw)}",
    ]
    return lines[:1] if "ib" in end else lines


def _columns(options: Options) -> str:
    if options.latency:
        names = (
            "t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   "
            "99.9% percentile[usec] "
        )
        return f" #bytes #iterations    {names}"
    unit = "Gb/sec" if "--report_gbits" in options.flags else "MB/sec"
    return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"


def rows(options: Options, result: Facts) -> str:
    """Return the rows of the table."""
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


def write_json(options: Options, result: Facts) -> None:
    """Write the JSON report if the options ask for it."""
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
