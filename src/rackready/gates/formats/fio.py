"""Reader of fio's JSON (--output-format=json): bytes read and written, rates and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError

_GB = 1e9
_TOLERANCE = 0.02
"""Tolerance between a rate and bytes over time: fio counts time in whole ms."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One job, or all with group_reporting. ``read``, ``write``: GB/s (10^9 bytes), 0 if not requested."""

    version: str
    read: float
    write: float
    error: int
    """errno of the job; 0: none."""
    runtime: float
    """Seconds of the longer direction."""
    bytes_read: int
    bytes_written: int


def parse(text: str) -> Transfer:
    """Return the transfer of a run. Raise FormatError: empty, cut off, or no job."""
    start = text.find("{")
    if start < 0:
        raise FormatError("empty output" if not text.strip() else f"no JSON: {text.strip().splitlines()[0][:80]}")
    try:
        found = printed_json.load(text[start:])  # fio puts warnings before its document
        jobs = found["jobs"]
        if not jobs:
            raise FormatError("no job ran")
        read, write = (sum(float(job[way]["bw_bytes"]) for job in jobs) / _GB for way in ("read", "write"))
        runtime = max(float(job[way]["runtime"]) for job in jobs for way in ("read", "write")) / 1000
        moved = [sum(_moved(job[way]) for job in jobs) for way in ("read", "write")]
        return Transfer(str(found["fio version"]), read, write, max(int(job["error"]) for job in jobs), runtime, *moved)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"fio without {error}") from error


def _moved(way: dict[str, Any]) -> int:
    """Return the bytes of one direction of one job. Raise FormatError if they contradict its rate."""
    moved, rate, seconds = int(way["io_bytes"]), float(way["bw_bytes"]), float(way["runtime"]) / 1000
    if abs(rate * seconds - moved) > _TOLERANCE * max(moved, rate * seconds):
        raise FormatError(
            f"{rate:.0f} bytes a second for {seconds:g} s are not the {moved} bytes that it says it moved"
        )
    return moved
