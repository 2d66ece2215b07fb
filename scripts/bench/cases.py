"""Shared code of benchmarks of growing sizes: each case runs in its own process, so that its memory is its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

Line = dict[str, object]
MIB = 1024
_ROOT = Path(__file__).resolve().parents[2]
_LOOK_S = 0.25


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


def run(argv: list[str], root: Path, *, expected: int = 0) -> Line:
    """Run a command of ours on a site below ``root``; return seconds, processor time and memory of its processes.

    ``peak_mib``: the peak of the sum of their PSS (what they share counts once), looked at four times a second. Raises
    SystemExit when the exit code is not the expected one.
    """
    environment = {**os.environ, "RACKREADY_ROOT": str(root), "PYTHONPATH": str(_ROOT / "src")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, peak = time.perf_counter(), 0
    with subprocess.Popen(argv, env=environment, cwd=root, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(_pss_kib(pid) for pid in _family(process.pid)))
            time.sleep(_LOOK_S)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != expected:
        raise SystemExit(f"{' '.join(argv)}: exit code {process.returncode}, expected {expected}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "peak_mib": round(peak / MIB)}


def _family(pid: int) -> list[int]:
    """Return a process and all that it started."""
    out = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        out += [member for child in children for member in _family(int(child))]
    return out


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
