"""Measure `rackready status` and the live table in the middle of a deploy. usage: scripts/bench/status.py [NODES ...].

One JSON line for each size and database: SQLite, and PostgreSQL where a server is installed ($BENCH_DATABASE names one
of them). ``json_seconds`` and ``text_seconds``: everything that the command does in a started process, its output
included (the best of three). ``command_json_seconds`` and ``command_text_seconds``: the whole command, from its start
to its end. The first of all loads and checks the site file, and keeps its outline. ``live_seconds``: what a live table
does with the newest line of every node at once: read, apply, render; ``begin_seconds``: what it reads before it begins
to show.

Made before the clock starts: a site of DGX H100 and the ledger of scripts/bench/history.py.
"""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.bench.cases import Line, each, peak_mib  # noqa: E402 - run by path: the root is put on the path first

if TYPE_CHECKING:
    from rackready.model.site import Site
    from rackready.paths import EnvPaths

CASES = (1_250, 12_500)
_TRIES = 3


def measure(count: int) -> Line:
    """Make the ledger of so many nodes in one kind of database after the other, and read it."""
    import json  # noqa: PLC0415 - only the measuring process needs it

    from scripts.bench.databases import kinds  # noqa: PLC0415

    *before, last = kinds()
    for kind in before:
        print(json.dumps(_measured(count, kind)), flush=True)
    return _measured(count, last)


def _measured(count: int, kind: str) -> Line:
    from scripts.bench import history  # noqa: PLC0415
    from scripts.bench.databases import records_in  # noqa: PLC0415
    from scripts.bench.site_of import ENV, site_of  # noqa: PLC0415

    with records_in(kind, ENV) as (root, size):
        site, paths = site_of(root, count)
        began = time.perf_counter()
        made = history.fill(paths, [node.name for node in site.nodes()])
        made["made_before_seconds"] = round(time.perf_counter() - began, 1)
        with _held(paths.lock), patch.dict(os.environ, {"RACKREADY_ROOT": str(root)}):
            line = {"load": round(os.getloadavg()[0], 1), **_status(), **_live(paths, site, str(made["campaign"]))}
        line["database_mib"] = round(size() / 2**20)
    return {"bench": "status", "n": count, "database": kind, **made, **line, "peak_mib": round(peak_mib())}


def _status() -> Line:
    from rackready.cli.output import Format  # noqa: PLC0415
    from rackready.cli.status import status  # noqa: PLC0415
    from scripts.bench.site_of import ENV  # noqa: PLC0415

    line: Line = {}
    for form in Format:
        seconds, text = _best(lambda form=form: status(ENV, False, "", form))  # type: ignore[misc]  # noqa: FBT003
        line |= {f"{form.value}_seconds": seconds, f"{form.value}_mib": round(len(text) / 2**20, 1)}
    for form in Format:
        argv = [sys.executable, "-m", "rackready", "status", "--env", ENV, "--no-scheduler", "--output", form.value]
        line[f"command_{form.value}_seconds"] = _best(lambda argv=argv: _run(argv))[0]  # type: ignore[misc]
    return line


def _live(paths: EnvPaths, site: Site, campaign: str) -> Line:
    from rich.console import Console  # noqa: PLC0415

    from rackready.campaign.controller import _show_new  # noqa: PLC0415 - what the controller does four times a second
    from rackready.campaign.request import DEPLOY  # noqa: PLC0415
    from rackready.cli.live_table import LiveTable  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    nodes = [node.name for node in site.nodes()]
    console = Console(file=io.StringIO(), width=120, height=50, force_terminal=True)
    table = LiveTable(console, nodes, DEPLOY, lambda _event, _nodes: None)
    with Ledger.open(paths.database) as ledger:
        began = time.perf_counter()
        last = ledger.last_event(campaign)
        begin = time.perf_counter() - began

        def refreshed() -> None:
            _show_new(ledger, campaign, last - len(nodes), table)
            console.print(table.table())

        return {"begin_seconds": round(begin, 3), "live_seconds": _best(refreshed)[0]}


def _best(work: Callable[[], object]) -> tuple[float, str]:
    """Return the least seconds of some tries, and what was printed."""
    least, out = float("inf"), io.StringIO()
    for _ in range(_TRIES):
        out = io.StringIO()
        began = time.perf_counter()
        with redirect_stdout(out):
            work()
        least = min(least, time.perf_counter() - began)
    return round(least, 3), out.getvalue()


def _run(argv: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL)


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold the lock of a controller that works."""
    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    each(__file__, CASES, measure)
