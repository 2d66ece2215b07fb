"""chronyc 4.3 and chronyd: how the clock follows its source.

`-c -N sources` as client.c prints it: mode, state, name as in the settings, stratum, poll, reach (octal), age of the
last sample, its adjusted offset, measured offset and error. chronyd reads its settings at its start only.
"""

from __future__ import annotations

import re
import sys
import time

from .. import paths
from ..daemon import wait_for_end
from .tools import host

_SETTINGS = ("/etc/chrony/chrony.conf", "/etc/chrony.conf")
_SOURCES = "/run/hw/chrony-sources"
"""Names of the sources with which the running chronyd started."""
_POOL_SOURCES = 4
"""Servers that chronyd takes from a pool (chrony.conf(5), maxsources)."""
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f]*:[0-9A-Fa-f:]*")


def chronyc(argv: list[str]) -> int:
    """Print tracking or sources; with -c as fields separated by commas."""
    clock = host()["clock"]
    if not clock["daemon"]:
        sys.stdout.write("506 Cannot talk to daemon\n")
        return 1
    if "sources" in argv and "-c" in argv:
        return _sources(clock["synchronised"], clock["offset_s"], names="-N" in argv)
    if "tracking" not in argv:
        return 0
    good, offset = clock["synchronised"], clock["offset_s"]
    now = time.time() - 37
    fields = (
        ["C0000202", "192.0.2.2", "3", f"{now:.9f}", f"{offset:.9f}", f"{offset * 0.8:.9f}", "0.000021114", "-7.204",
         "-0.002", "0.031", "0.000412", f"{clock['dispersion_s']:.9f}", "64.4", "Normal"]
        if good
        else ["00000000", "", "0", "0.000000000", f"{offset:.9f}", "0.000000000", "0.000000000", "-7.204",
              "0.000", "0.000", "1.000000000", "1.000000000", "0.0", "Not synchronised"]
    )  # fmt: skip
    if "-c" in argv:
        sys.stdout.write(",".join(fields) + "\n")
    else:
        names = ("Reference ID", "Stratum", "System time", "Leap status")
        values = (
            f"{fields[0]} ({fields[1]})",
            fields[2],
            f"{abs(offset):.9f} seconds {'slow' if offset > 0 else 'fast'} of NTP time",
            fields[13],
        )
        sys.stdout.write("".join(f"{name:<16}: {value}\n" for name, value in zip(names, values, strict=True)))
    return 0


def _sources(good: bool, offset: float, *, names: bool) -> int:  # noqa: FBT001 - a field of the state
    path = paths.at(_SOURCES)
    for number, name in enumerate(path.read_text(encoding="utf-8").split() if path.exists() else []):
        shown = name if names or _ADDRESS.fullmatch(name) else "192.0.2.2"
        state, reach, sample = ("+" if number else "*", "377", f"{offset:.9f}") if good else ("?", "0", "0.000000000")
        sys.stdout.write(f"^,{state},{shown},2,6,{reach},23,{sample},{sample},0.000412000\n")
    return 0


def chronyd(_argv: list[str]) -> int:
    """Read the sources and run until stopped."""
    text = "".join(path.read_text(encoding="utf-8") for path in map(paths.at, _SETTINGS) if path.exists())
    found = re.findall(r"^\s*(server|pool)\s+(\S+)", text, re.MULTILINE)
    names = [name for kind, name in found for _ in range(_POOL_SOURCES if kind == "pool" else 1)]
    place = paths.at(_SOURCES)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    wait_for_end()
    return 0
