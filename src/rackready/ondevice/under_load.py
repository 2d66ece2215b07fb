"""Watch the GPUs while another program loads them, and print nvidia-smi's report of the warm GPUs as JSON.

Sent to the node's python3 on standard input, with the longest time to watch in seconds and the name of the program that
loads. The last report in which every GPU was busy counts: it is the closest to the steady state. Power is each GPU's
maximum over all such reports, as one of several loads may draw less than another. It ends with that program, or when it
does not start.
"""

from __future__ import annotations

import glob
import json
import re
import subprocess
import sys
import time

FORMAT = "rackready/under-load/v1"
_BUSY = 90
_PERIOD_S = 1.0
_USE = re.compile(r"<gpu_util>(\d+) %</gpu_util>")
_GPU = re.compile(r'^"([^"]+)">.*?<(?:gpu_)?power_readings>(.*?)</(?:gpu_)?power_readings>', re.DOTALL)
_DRAW = re.compile(r"<(?:average_|instant_)?power_draw>(\d+(?:\.\d+)?) W<")
"""Drivers that distinguish the average of a second from the instantaneous draw call it average_power_draw, and print
it first; on Ampere and later the old name is that average, too. A100 (GA100) has the instantaneous draw alone (NVML,
nvmlDeviceGetPowerUsage), and its average reads N/A."""
_TIMEOUT_S = 60
_BEGIN_S = 60
"""The program is started at the same moment on another connection: one that is not seen in this time ended before
the first check."""
_COMM = 15
"""Longest name of a process in /proc (TASK_COMM_LEN of the kernel, less its end)."""


def main(longest_s: str, program: str) -> int:
    """Print the document."""
    started, last, samples, loaded, seen = time.monotonic(), "", 0, 0, False
    most: dict[str, float] = {}
    while (elapsed := time.monotonic() - started) < float(longest_s):
        running = lives(program)
        report = ask()
        samples += 1
        if busy(report):
            last, loaded = report, loaded + 1
            most.update({gpu: max(watts, most.get(gpu, 0.0)) for gpu, watts in draws(report).items()})
        seen = seen or running
        if not running and (seen or elapsed > _BEGIN_S):
            break
        time.sleep(_PERIOD_S)
    document = {"format": FORMAT, "samples": samples, "loaded": loaded, "last": last, "draws": most, "complete": True}
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def lives(program: str) -> bool:
    """Return whether a process of that name runs."""
    for path in glob.glob("/proc/[0-9]*/comm"):  # noqa: PTH207 - as its neighbours on a node: no more modules than needed
        try:
            with open(path) as file:  # noqa: PTH123
                if file.read().strip() == program[:_COMM]:
                    return True
        except OSError:  # it ended meanwhile
            continue
    return False


def ask() -> str:
    """Return one report; empty where nvidia-smi does not answer in time."""
    try:
        return subprocess.run(
            ["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def busy(report: str) -> bool:
    """Return whether every GPU of a report is busy."""
    uses = [int(use) for use in _USE.findall(report)]
    return bool(uses) and min(uses) >= _BUSY


def draws(report: str) -> dict[str, float]:
    """Return each GPU's draw in a report, W, by its PCI address as printed; GPUs without one are left out."""
    out = {}
    for text in report.split("<gpu id=")[1:]:
        found = _GPU.search(text)
        draw = _DRAW.search(found[2]) if found else None
        if found and draw:
            out[found[1]] = float(draw[1])
    return out


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
