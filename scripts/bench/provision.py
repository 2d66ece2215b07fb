"""Measure powering on many machines by their BMCs. usage: scripts/bench/provision.py [NODES [NODES_A_RACK [BOOT_S]]].

Inside the clock runs the product's own command, `rackready provision`, on a site whose BMCs are listeners of the
simulated rack's Redfish service on loopback (scripts/bench/bmcs.py, whose processor time, ``bmcs_cpu_seconds``, is not
counted): all machines powered on in one wave, then the same command again with nothing to change. Prints one JSON line
for each run. ``connections_per_bmc`` and ``connections`` are the most at once, as the BMCs themselves saw them;
``cpu_seconds`` and ``peak_mib`` are those of the command with all its processes: controller, worker, engines, provider.
Exit codes: 0 measured, 1 a BMC saw two connections or power-ons, or a node did not come up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from scripts.bench.bmc_plan import COUNTS, ENV, READY, Plan  # noqa: E402 - run by path: the root is put on the path first
from scripts.bench.cases import Line, run  # noqa: E402

NODES, PER_RACK, BOOT_S = 256, 4, 5.0
"""Two-unit servers, four in a rack. A boot is short, so that the measured time is ours."""
_START_S = 120.0
_COMMAND = [sys.executable, "-c", "from rackready.cli.main import main; main()", "provision", "--env", ENV]


@contextmanager
def _bmcs(plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
    """Run the simulated BMCs."""
    server = subprocess.Popen([sys.executable, str(Path(__file__).with_name("bmcs.py")), str(plan.root)])
    try:
        _until(plan.root / READY, server)
        yield server
    finally:
        server.terminate()
        server.wait()


def _until(path: Path, server: subprocess.Popen[bytes]) -> None:
    """Wait for a file of the simulated BMCs. Raises SystemExit."""
    deadline = time.monotonic() + _START_S
    while not path.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the simulated BMCs made no {path.name}")
        time.sleep(0.1)


def measure(plan: Plan, server: subprocess.Popen[bytes], what: str) -> bool:
    """Provision once, print its line, and return whether every BMC saw what it may see."""
    load = os.getloadavg()[0]
    line = run(_COMMAND, plan.root)
    (plan.root / COUNTS).unlink(missing_ok=True)
    server.send_signal(signal.SIGUSR1)
    _until(plan.root / COUNTS, server)
    counts = json.loads((plan.root / COUNTS).read_text(encoding="utf-8"))
    print(json.dumps(_line(plan, what, load, line, counts)), flush=True)
    powered = [counts["powered_on"].get(node, 0) for node in plan.bmcs]
    seen = [counts["at_once"].get(node, 0) for node in plan.bmcs]
    return seen == [1] * len(seen) and powered == [1 if what == "first" else 0] * len(powered)


def _line(plan: Plan, what: str, load: float, line: Line, counts: dict[str, Any]) -> Line:
    return {
        "bench": "provision",
        "what": what,
        "n": len(plan.bmcs),
        "per_rack": plan.per_rack,
        "boot_s": plan.boot_s,
        "cores": os.cpu_count(),
        "load": round(load, 1),
        **line,
        "connections_per_bmc": max(counts["at_once"].values()),
        "requests_at_once_per_bmc": max(counts["requests_at_once"].values()),
        "connections": counts["all_at_once"],
        "connections_in_all": sum(counts["connections"].values()),
        "requests": sum(counts["requests"].values()),
        "most_requests_of_a_bmc": max(counts["requests"].values()),
        "bmcs_cpu_seconds": round(counts["cpu_seconds"], 1),
    }


def main() -> int:
    """Measure both runs, and return the exit code."""
    given = [float(text) for text in sys.argv[1:]]
    nodes, per_rack, boot_s = [*given, *(NODES, PER_RACK, BOOT_S)[len(given) :]]
    with tempfile.TemporaryDirectory(prefix="rackready-bench-") as folder:
        plan = Plan.of(Path(folder), int(nodes), int(per_rack), boot_s)
        plan.write()
        with _bmcs(plan) as server:
            good = [measure(plan, server, what) for what in ("first", "no-op")]
        return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
