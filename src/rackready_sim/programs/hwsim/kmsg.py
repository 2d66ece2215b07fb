"""The kernel's message buffer, for lines of the simulated devices."""

from __future__ import annotations

import os
import sys
import time

from . import paths, real

_LOG = "/run/hw/kmsg.log"
_BOOTED = "/run/hw/booted"


def say(text: str) -> None:
    """Add a line to the kernel log."""
    log = paths.at(_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        stream.write(f"{time.time() - _booted():.6f} {time.time():.0f} {text}\n")


def _booted() -> float:
    """Return when this machine was powered on: a container otherwise shows its host's boot time."""
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
    wall = any(
        arg in {"-T", "--ctime"} or (arg.startswith("-") and not arg.startswith("--") and "T" in arg) for arg in argv
    )
    for since_boot, clock, text in entries():
        stamp = time.ctime(clock) if wall else f"{since_boot:12.6f}"
        sys.stdout.write(f"[{stamp}] {text}\n")
    return 0


def journalctl(argv: list[str]) -> int:
    """Print the buffer as journalctl does for kernel messages of this boot.

    All other calls go to the machine's own journalctl.
    """
    if not any(arg in {"-k", "--dmesg"} for arg in argv):
        return real.become("journalctl", argv)
    iso = any(arg in {"--output=short-iso", "-oshort-iso", "short-iso"} for arg in argv)
    rows = entries()
    if not rows:
        sys.stdout.write("-- No entries --\n")
    for _, clock, text in rows:
        form = "%Y-%m-%dT%H:%M:%S%z" if iso else "%b %d %H:%M:%S"
        sys.stdout.write(f"{time.strftime(form, time.localtime(clock))} {os.uname().nodename} kernel: {text}\n")
    return 0
