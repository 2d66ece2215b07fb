"""The kernel's message buffer as far as the simulated devices write to it."""

from __future__ import annotations

import sys
import time

from . import paths

_LOG = "/run/hw/kmsg.log"
_BOOTED = "/run/hw/booted"


def say(text: str) -> None:
    """Add a line to the kernel log."""
    log = paths.at(_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        stream.write(f"{time.time() - _booted():.6f} {time.time():.0f} {text}\n")


def _booted() -> float:
    """Return when this machine was powered on: a container shows its host's boot time otherwise."""
    stamp = paths.at(_BOOTED)
    return stamp.stat().st_mtime if stamp.exists() else time.time()


def entries() -> list[tuple[float, float, str]]:
    """Return (seconds since boot, wall clock, text) of each line since power-on."""
    log = paths.at(_LOG)
    if not log.exists():
        return []
    rows = [line.split(" ", 2) for line in log.read_text().splitlines()]
    return [(float(row[0]), float(row[1]), row[2]) for row in rows if len(row) == 3]  # noqa: PLR2004


def main(argv: list[str]) -> int:
    """Print the buffer as dmesg does; -T prints wall-clock time."""
    wall = any(arg in {"-T", "--ctime"} or (arg.startswith("-") and not arg.startswith("--") and "T" in arg) for arg in argv)
    for since_boot, clock, text in entries():
        stamp = time.ctime(clock) if wall else f"{since_boot:12.6f}"
        sys.stdout.write(f"[{stamp}] {text}\n")
    return 0
