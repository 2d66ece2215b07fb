"""The kernel's message buffer, for lines of the simulated devices."""

from __future__ import annotations

import hashlib
import json
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


_FORM = "s=hw;i={:x};b={}"
_FOLLOW_S = 0.1


def journalctl(argv: list[str]) -> int:
    """Print the buffer as journalctl does for kernel messages of this boot.

    All other calls go to the machine's own journalctl.
    """
    if "_TRANSPORT=kernel" in argv:
        return _as_json(argv)
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


def _as_json(argv: list[str]) -> int:
    """Print the buffer as `journalctl _TRANSPORT=kernel --output=json` does, and follow it where asked.

    Options: journalctl(1), systemd 252. Fields: systemd's JOURNAL_EXPORT_FORMATS.
    """
    options = dict(arg.partition("=")[::2] for arg in argv if arg.startswith("--"))
    boot = _boot_id()
    done = _begin(options, boot)
    while True:
        rows = _until(entries(), options)
        for number in range(min(done, len(rows)), len(rows)):
            sys.stdout.write(_json_line(number, rows[number], boot) + "\n")
        sys.stdout.flush()
        done = len(rows)
        if "--follow" not in options:
            return 0
        time.sleep(_FOLLOW_S)


def _begin(options: dict[str, str], boot: str) -> int:
    """Return the number of the first line to print."""
    rows = _until(entries(), options)
    if cursor := options.get("--after-cursor"):
        fields = dict(part.partition("=")[::2] for part in cursor.split(";"))
        return int(fields["i"], 16) + 1 if fields.get("b") == boot else 0
    if since := options.get("--since"):
        at = float(since.lstrip("@"))
        return next((number for number, row in enumerate(rows) if row[1] >= at), len(rows))
    lines = options.get("--lines", "10" if "--follow" in options and "--no-tail" not in options else "")
    return max(0, len(rows) - int(lines)) if lines else 0


def _until(rows: list[tuple[float, float, str]], options: dict[str, str]) -> list[tuple[float, float, str]]:
    """Return the lines up to a time, as --until=@SECONDS asks."""
    until = options.get("--until")
    return [row for row in rows if _booted() + row[0] <= float(until.lstrip("@"))] if until else rows


def _json_line(number: int, row: tuple[float, float, str], boot: str) -> str:
    since_boot, _, text = row
    entry = {
        "__CURSOR": _FORM.format(number, boot),
        "__REALTIME_TIMESTAMP": str(int((_booted() + since_boot) * 1e6)),
        "__MONOTONIC_TIMESTAMP": str(int(since_boot * 1e6)),
        "_BOOT_ID": boot,
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": text,
    }
    return json.dumps(entry)


def _boot_id() -> str:
    """Return the id of this boot: a container has that of its host, so the time of the power-on makes one."""
    return hashlib.sha256(f"{os.uname().nodename} {_booted():.3f}".encode()).hexdigest()[:32]
