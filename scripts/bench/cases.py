"""Shared code of benchmarks of growing sizes: each case runs in its own process, so that its memory is its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Line = dict[str, object]
MIB = 1024


def peak_mib() -> float:
    """Return the most memory that this process ever held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


@dataclass(slots=True)
class Clock:
    """Seconds since it was made: of the wall, and of this process's processor time."""

    began: float = field(default_factory=time.perf_counter)
    used: float = field(default_factory=time.process_time)

    def line(self) -> Line:
        """Return both, and the peak memory."""
        return {
            "seconds": round(time.perf_counter() - self.began, 3),
            "cpu_seconds": round(time.process_time() - self.used, 3),
            "peak_mib": round(peak_mib()),
        }


def each(file: str, cases: Iterable[int], measure: Callable[[int], Line], growing: Iterable[str] = ()) -> None:
    """Measure the cases that the command line names (else ``cases``) and print one JSON line for each.

    ``growing``: fields whose growth from case to case is added.
    """
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        return
    before: Line | None = None
    for count in [int(item) for item in sys.argv[1:]] or cases:
        done = subprocess.run(
            [sys.executable, file, "--one", str(count)], check=True, stdout=subprocess.PIPE, text=True
        )
        *lines, last = done.stdout.splitlines()
        line = json.loads(last)
        if before is not None:
            line["growth"] = {name: _factor(before[name], line[name]) for name in ("n", *growing)}
        print("\n".join([*lines, json.dumps(line)]), flush=True)
        before = line


def _factor(before: object, after: object) -> float | None:
    return (
        round(after / before, 2)
        if isinstance(before, (int, float)) and isinstance(after, (int, float)) and before
        else None
    )
