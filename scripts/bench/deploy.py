"""Measure the time and memory of `rackready deploy` on an environment. usage: scripts/bench/deploy.py ENV.

Run it right after a deploy to measure one that changes nothing. Ends with one JSON line.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Deploy once, and report. Returns the deploy's own exit code."""
    env = sys.argv[1]
    began = time.perf_counter()
    done = subprocess.run(
        [ROOT / ".venv/bin/rackready", "deploy", "--env", env, "--output", "json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=False,
    )
    seconds = time.perf_counter() - began
    nodes = len(json.loads(done.stdout).get("nodes", [])) if done.stdout else 0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = {
        "bench": "deploy",
        "env": env,
        "n": nodes,
        "seconds": round(seconds, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
        "exit": done.returncode,
    }
    print(json.dumps({**line, "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
