"""Watches the GPUs while something else loads them, and prints what nvidia-smi said when they were warm, as one JSON document.

Sent to the node's python3 on standard input, with the longest time to watch in seconds. The last report in which every GPU was busy counts: it is
the one nearest to the steady state. It ends when the load does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

FORMAT = "rackready/under-load/v1"
_BUSY = 90
_PERIOD_S = 1.0
_USE = re.compile(r"<gpu_util>(\d+) %</gpu_util>")
_TIMEOUT_S = 60


def main(longest_s: str) -> int:
    """Print the document."""
    started, last, samples, loaded = time.monotonic(), "", 0, 0
    while time.monotonic() - started < float(longest_s):
        report = ask()
        samples += 1
        if busy(report):
            last, loaded = report, loaded + 1
        elif loaded:
            break
        time.sleep(_PERIOD_S)
    document = {"format": FORMAT, "samples": samples, "loaded": loaded, "last": last, "complete": True}
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def ask() -> str:
    """Return one report; empty where nvidia-smi does not answer in time."""
    try:
        return subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def busy(report: str) -> bool:
    """Say whether every GPU of a report is busy."""
    uses = [int(use) for use in _USE.findall(report)]
    return bool(uses) and min(uses) >= _BUSY


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
