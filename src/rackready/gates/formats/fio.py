"""Reads fio's JSON (--output-format=json): what was read and written, and whether anything failed."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.gates.formats import printed_json
from rackready.gates.formats.error import FormatError

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Transfer:
    """One job (or all, with group_reporting). Bandwidths in GB/s (10^9 bytes), ``read`` and ``write`` 0 where none was asked for."""

    version: str
    read: float
    write: float
    error: int
    """errno of the job, 0 when none."""
    runtime: float
    """Seconds, of the longer direction."""


def parse(text: str) -> Transfer:
    """Return what a run moved. Raises FormatError: empty, cut off, or no job."""
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
        return Transfer(str(found["fio version"]), read, write, max(int(job["error"]) for job in jobs), runtime)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"fio without {error}") from error
