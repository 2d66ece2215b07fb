"""How many nodes this machine can hold in a rehearsal."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_KIB_PER_GIB = 1024 * 1024
_AROUND_GIB = 2.0
_NODE_GIB = 1.0
_NODES_PER_CORE = 2
"""docs/howto/simulated-rack.md: 4 nodes with their switches, mirror and scheduler need 2 cores and 6 GiB."""


def most_nodes(memory_gib: float, cores: int) -> int:
    """Return how many nodes fit into the free memory (GiB) and the cores; 0 if none does."""
    by_memory = int((memory_gib - _AROUND_GIB) / _NODE_GIB)
    return max(0, min(by_memory, cores * _NODES_PER_CORE))


def of_this_machine() -> int:
    """Return how many nodes fit into this machine as it is now."""
    return most_nodes(_free_gib(_MEMINFO.read_text(encoding="utf-8")), len(os.sched_getaffinity(0)))


def _free_gib(text: str) -> float:
    """Return MemAvailable of /proc/meminfo (proc(5)), GiB."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) / _KIB_PER_GIB
