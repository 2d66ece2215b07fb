"""chronyc 4.3 and chronyd: how the clock follows its source."""

from __future__ import annotations

import sys
import time

from ..daemon import wait_for_end
from .tools import host


def chronyc(argv: list[str]) -> int:
    """Print tracking; with -c as fields separated by commas."""
    clock = host()["clock"]
    if not clock["daemon"]:
        sys.stdout.write("506 Cannot talk to daemon\n")
        return 1
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


def chronyd(_argv: list[str]) -> int:
    """Run until stopped."""
    wait_for_end()
    return 0
