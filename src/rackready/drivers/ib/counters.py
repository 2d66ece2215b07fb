"""Reads error and traffic counters: ibqueryerrors and ``perfquery -x``.

Shapes: rdma-core infiniband-diags/ibqueryerrors.c (print_results, print_summary) and libibmad/dump.c. Counters are
totals since somebody cleared them: judge their growth over the time of a link, never the total.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rackready.drivers.ib.text import guid_of, unknown

_HEAD = re.compile(r'Errors for (?:0x[0-9a-f]+ )?"(?P<name>.*)"$')
_PORT = re.compile(
    r"   GUID 0x(?P<guid>[0-9a-f]+) port (?P<port>\d+|ALL):(?P<counters>(?: \[\w+ == \d+(?: \([^)]*\))?\])+)$"
)
_COUNTER = re.compile(r"\[(\w+) == (\d+)")
_SUMMARY = re.compile(r"## Summary: (?P<nodes>\d+) nodes checked, (?P<bad>\d+) bad nodes found$")
_PORTS = re.compile(r"##\s+(?P<ports>\d+) ports checked, (?P<bad>\d+) ports have errors beyond threshold$")
_BESIDE = re.compile(r"## (?:Thresholds:|Suppressed:|\(null\)|$)|       Link info: ")
_FAILED = re.compile(r"##\s+(\d+) PMA query failures$")
_FIELD = re.compile(r"(\w+):\.*(0x[0-9a-f]+|\d+)$")
_TRAFFIC = ("PortXmitData", "PortRcvData", "PortXmitPkts", "PortRcvPkts")
_WORD_BYTES = 4
"""PortXmitData and PortRcvData count words of 4 bytes (InfiniBand Architecture Specification vol. 1, 16.1.4.11)."""


@dataclass(frozen=True, slots=True)
class ErrorPort:
    """One port with counters above 0. ``port`` 255: all ports of a switch together."""

    node: str
    guid: int
    port: int
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Ports with errors. ``nodes`` and ``ports``: how many were checked; ``failed``: queries without an answer."""

    errors: tuple[ErrorPort, ...]
    nodes: int
    ports: int
    failed: int = 0


def read_ibqueryerrors(text: str) -> ErrorReport:
    """Return the ports with errors.

    Raises IbTextError for an unknown line, without the summary (a live SM is needed: else "Query SA failed"), or if the
    summary says another number of ports than are listed.
    """
    errors: list[ErrorPort] = []
    node, counts = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _HEAD.match(line):
            node = found["name"]
        elif (found := _PORT.match(line)) and node:
            told = {name: int(value) for name, value in _COUNTER.findall(found["counters"])}
            errors.append(
                ErrorPort(node, guid_of(found["guid"]), 255 if found["port"] == "ALL" else int(found["port"]), told)
            )
        elif found := _SUMMARY.match(line):
            counts["nodes"] = int(found["nodes"])
        elif found := _PORTS.match(line):
            counts |= {"ports": int(found["ports"]), "bad": int(found["bad"])}
        elif found := _FAILED.match(line):
            counts["failed"] = int(found[1])
        elif line.strip() and not _BESIDE.match(line):
            raise unknown("ibqueryerrors", number, line, "a port with its counters, or the summary")
    if not counts.get("nodes") or not counts.get("ports"):
        raise unknown("ibqueryerrors", 0, text[-200:], "its summary, with nodes and ports checked")
    listed = sum(1 for port in errors if port.port != 255)  # noqa: PLR2004 - all ports of a switch together
    if listed != counts["bad"]:
        raise unknown("ibqueryerrors", 0, f"{listed} ports listed", f"{counts['bad']} ports, as its summary says")
    return ErrorReport(tuple(errors), counts["nodes"], counts["ports"], counts.get("failed", 0))


def read_perfquery(text: str) -> dict[str, int]:
    """Return the counters of ``perfquery -x`` by name; data in bytes.

    Raises IbTextError without the traffic counters, or for an unknown line.
    """
    out: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _FIELD.match(line.strip())
        if found is not None:
            out[found[1]] = int(found[2], 0) * (_WORD_BYTES if found[1] in {"PortXmitData", "PortRcvData"} else 1)
        elif line.strip() and not line.startswith("#"):
            raise unknown("perfquery -x", number, line, "a counter and its value")
    if lacking := [name for name in _TRAFFIC if name not in out]:
        raise unknown("perfquery -x", 0, text[:200], f"the counters {', '.join(lacking)}")
    return out
