"""Readers of `lscpu --json` (util-linux; flat up to 2.36, with children from 2.37 on) and of `lscpu --parse`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError


@dataclass(frozen=True, slots=True)
class Processors:
    """Processors, as the kernel sees them. Numbers of CPUs are those of hardware threads."""

    model: str
    sockets: int
    cores: int
    """Cores of one socket."""
    threads: int
    cpus: int
    """CPUs that are present, online or not."""
    online: frozenset[int]
    offline: frozenset[int]
    numa_nodes: int
    """NUMA nodes with processors. Grace has many more: those of its GPUs' memory have no processor."""


_NODE_CPUS = re.compile(r"^NUMA node\d+ CPU\(s\)$")


def parse(text: str) -> Processors:
    """Return the processors. Raise FormatError."""
    found = printed_json.load(text)
    try:
        fields: dict[str, Any] = {str(item["field"]).rstrip(":"): item.get("data") for item in _walk(found["lscpu"])}
        return Processors(
            model=str(fields["Model name"]),
            sockets=int(fields["Socket(s)"]),
            cores=int(fields["Core(s) per socket"]),
            threads=int(fields["Thread(s) per core"]),
            cpus=int(fields["CPU(s)"]),
            online=cpu_list(str(fields["On-line CPU(s) list"])),
            offline=cpu_list(str(fields.get("Off-line CPU(s) list") or "")),
            numa_nodes=_numa_nodes(fields),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"lscpu without {error}") from error


def _numa_nodes(fields: Mapping[str, Any]) -> int:
    """Return how many NUMA nodes have processors. Raise KeyError if lscpu lists none.

    "NUMA node(s)" counts all of them, and the row of one without processors has no data: NVIDIA/DCGM 0d22068b,
    modules/sysmon/tests/DcgmCpuTopologyTests.cpp, has 36 of which 32 are empty.
    """
    found = [name for name, data in fields.items() if data and _NODE_CPUS.match(name)]
    if not found:
        raise KeyError("NUMA node0 CPU(s)")
    return len(found)


def _walk(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        yield item
        yield from _walk(item.get("children", []))


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as 0-3,8. Raise ValueError."""
    out: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = part.partition("-")
        out.update(range(int(first), int(last or first) + 1))
    return frozenset(out)


PARSE = "--parse=CPU,CORE,SOCKET"
"""The option whose output ``parse_cores`` reads."""
_FIELDS = "# CPU,Core,Socket"


@dataclass(frozen=True, slots=True)
class Cores:
    """The online CPUs by place. ``sockets``: CPU -> position of its socket, in the order of their lowest CPUs."""

    sockets: Mapping[int, int]
    cores: int
    """Cores of one socket."""
    threads: int

    @property
    def count(self) -> int:
        """Return the number of sockets."""
        return len(set(self.sockets.values()))


def parse_cores(text: str) -> Cores:
    """Return the places of the online CPUs from `lscpu --parse=CPU,CORE,SOCKET`. Raise FormatError.

    A machine whose sockets have unequal numbers of cores, or cores unequal numbers of threads, is refused: Slurm's
    node line has one number for all.
    """
    lines = text.splitlines()
    if _FIELDS not in lines:
        raise FormatError(f"lscpu without its heading {_FIELDS!r}")
    try:
        rows = [tuple(map(int, line.split(","))) for line in lines if line and not line.startswith("#")]
        places = {cpu: (socket, core) for cpu, core, socket in rows}
    except ValueError as error:
        raise FormatError(f"lscpu {PARSE}: {error}") from error
    if not places or len(places) != len(rows):
        raise FormatError(f"lscpu {PARSE} names {'no CPU' if not rows else 'a CPU twice'}")
    order = list(dict.fromkeys(socket for _, (socket, _) in sorted(places.items())))
    threads = Counter(places.values())
    cores = Counter(socket for socket, _ in threads)
    if len(set(threads.values())) > 1 or len(set(cores.values())) > 1:
        raise FormatError("sockets have unequal numbers of cores, or cores of threads: some CPUs are offline")
    return Cores(
        {cpu: order.index(socket) for cpu, (socket, _) in sorted(places.items())},
        next(iter(cores.values())),
        next(iter(threads.values())),
    )
