"""Measure judging and reporting a site's stored outputs again, by size. usage: scripts/bench/gates.py [NODES ...].

Inside the clock runs the product's own command, `rackready report CAMPAIGN --again`, from its start to its end: it
loads the site file, reads every node's records and raw outputs (every hash is checked), judges each gate of each node,
holds units against their fleet, and writes HTML, JSON and JUnit. ``seconds``, ``cpu_seconds`` and ``peak_mib`` are
those of that command with all its processes; memory is the sum of their PSS (what they share counts once), looked at
four times a second.

Made before the clock starts: the site file (DGX H100, five in a rack), the ledger, the stored outputs and their
records. The outputs are what healthy nodes say in the gate tests, for every gate of one node of the levels sanity,
validation and performance (scripts/bench/healthy.py): each node has its own name, serial numbers, UUIDs and last digits
in them, as far as the gate's verdict bears that, and no two outputs have one hash. One node in 500 lacks an output. A
record says what the gate said of the first node; what it says of this one is found inside the clock. No lines of
progress are stored, no runs over several nodes, and the nodes' rails are not described.

With $BENCH_DIR, sites are made below that folder and stay: the next run measures the same ones, without making them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.bench.cases import Line, each, run  # noqa: E402 - run by path: the root is put on the path first

CASES = (125, 1_250, 12_500)


def measure(count: int) -> Line:
    """Store the outputs of so many nodes, then judge and report them."""
    from scripts.bench.stored import CAMPAIGN, ENV, found, store  # noqa: PLC0415 - only the measuring process needs it

    with _folder(count) as root:
        began = time.perf_counter()
        made = found(root) if (root / "playbooks").is_dir() else store(root, count)
        stored = round(time.perf_counter() - began, 1)
        load = os.getloadavg()[0]
        line = run(
            [
                sys.executable,
                "-c",
                "from rackready.cli.main import main; main()",
                "report",
                CAMPAIGN,
                "--again",
                "--env",
                ENV,
            ],
            root,
            expected=1,  # some nodes lack an output
        )
        reports = root / ".rackready" / ENV / "reports"
        sizes = {
            f"{end}_mib": round((reports / f"{CAMPAIGN}.again.{end}").stat().st_size / 2**20, 1)
            for end in ("html", "json", "junit.xml")
        }
    return {
        "bench": "gates",
        "n": count,
        "cores": os.cpu_count(),
        "load": round(load, 1),
        **made,
        **line,
        **sizes,
        "made_before_seconds": stored,
    }


@contextmanager
def _folder(count: int) -> Iterator[Path]:
    """Yield a site's folder: a lasting one below $BENCH_DIR if that is set, else a temporary one."""
    kept = os.environ.get("BENCH_DIR")
    if kept is not None:
        yield Path(kept) / str(count)
        return
    with tempfile.TemporaryDirectory(prefix="rackready-bench-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    each(__file__, CASES, measure, growing=("seconds", "cpu_seconds", "peak_mib"))
