"""Measure the campaign engine alone: a whole deploy with fake nodes. usage: scripts/bench/engine.py [NODES ...].

One JSON line for each size and database: SQLite, and PostgreSQL where a server is installed ($BENCH_DATABASE names one
of them). The engine is the product's: controller, workflow, steps, ledger, log, drains into a plain file. Only the
tools of the phases are replaced, in the phase table of the measured process: a phase answers at once, and one node in
fifty fails, each in another phase.

``seconds``, ``cpu_seconds`` and ``peak_mib``: of the campaign's process, from its start to its end, without the site
file (it is loaded and stored before). ``ledger_mib`` and ``workflows_mib``: its two databases. ``resume_seconds``: the
same campaign is killed with SIGKILL after an eighth of its batches; from the start of the next process until it works
on a batch.
``events_a_node``: lines of progress.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.bench.cases import Clock, Line, each, run  # noqa: E402 - run by path: the root is put on the path first

if TYPE_CHECKING:
    from rackready.campaign.drained_phase import Runner
    from rackready.campaign.request import CampaignRequest
    from rackready.model.phase import NodeResult, PhaseContext
    from rackready.paths import EnvPaths

CASES = (1_000, 12_500)
FAILS = 50
"""One node in so many fails."""
_PART = 8
"""The campaign that is resumed is killed after one in so many of its batches."""
_CAMPAIGN = "--campaign"
_REQUEST, _BEGAN = "request.json", "began.log"


def measure(count: int) -> Line:
    """Run the campaign of so many nodes on one kind of database after the other."""
    from scripts.bench.databases import kinds  # noqa: PLC0415 - only the measuring process needs it

    *before, last = kinds()
    for kind in before:
        sys.stderr.write(json.dumps(line := _measured(count, kind)) + "\n")  # at once: the next takes minutes
        print(json.dumps(line))
    return _measured(count, last)


def _measured(count: int, kind: str) -> Line:
    from scripts.bench.databases import records_in  # noqa: PLC0415
    from scripts.bench.site_of import ENV  # noqa: PLC0415

    line: Line = {"bench": "engine", "n": count, "database": kind, "load": round(os.getloadavg()[0], 1)}
    with records_in(kind, ENV) as (root, size):
        paths = _prepared(root, count)
        line |= run([sys.executable, __file__, _CAMPAIGN, str(root)], root)
        line |= {"ledger_mib": round(size() / 2**20), "workflows_mib": round(_size(paths.workflows) / 2**20)}
        line |= {"log_mib": round(sum(map(_size, paths.logs.rglob("*.log"))) / 2**20), **_counted(paths, count)}
    with records_in(kind, ENV) as (root, _):
        _prepared(root, count)
        line["resume_seconds"] = _resumed(root)
    return line


def _prepared(root: Path, count: int) -> EnvPaths:
    """Write the site, and the request of a deploy of all its nodes."""
    from rackready.campaign.request import DEPLOY, new_request  # noqa: PLC0415
    from scripts.bench.site_of import ENV, site_of  # noqa: PLC0415

    site, paths = site_of(root, count)
    names = tuple(node.name for node in site.nodes())
    request = new_request(site, env=ENV, root=root, kind="deploy", phases=DEPLOY, nodes=names, check=False)
    (root / _REQUEST).write_text(json.dumps(request.plain()), encoding="utf-8")
    return paths


def _size(path: Path) -> int:
    found = (path.with_name(path.name + end) for end in ("", "-wal"))
    return sum(file.stat().st_size for file in found if file.exists())


def _counted(paths: EnvPaths, count: int) -> Line:
    from collections import Counter  # noqa: PLC0415

    from rackready.ledger.store import Ledger  # noqa: PLC0415

    with Ledger.read_only(paths.database) as ledger:
        states = Counter(row.state.value for row in ledger.states())
        (campaign,) = ledger.campaigns()
        events = sum(1 for _ in ledger.progress(campaign["id"]))
    if sum(states.values()) != count or states["ready"] < count - count // FAILS - 1:
        raise SystemExit(f"the campaign did not do its work: {dict(states)}")
    return {"ready": states["ready"], "events_a_node": round(events / count, 1)}


def _resumed(root: Path) -> float:
    """Kill a campaign after a part of its batches; return the seconds until the next process works on one."""
    argv = [sys.executable, __file__, _CAMPAIGN, str(root)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    batches = _batches(root) // _PART
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL) as first:
        while len(_began(root)) < batches:
            if first.poll() is not None:
                raise SystemExit("the campaign ended before it was killed")
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    before, at = len(_began(root)), time.time()
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL) as second:
        while len(_began(root)) <= before:
            if second.poll() is not None:
                raise SystemExit("the campaign was not resumed")
            time.sleep(0.02)
        second.send_signal(signal.SIGKILL)
    return round(_began(root)[before] - at, 2)


def _batches(root: Path) -> int:
    from rackready.campaign.phase_table import PHASES  # noqa: PLC0415
    from rackready.campaign.request import CampaignRequest  # noqa: PLC0415

    request = CampaignRequest.load(json.loads((root / _REQUEST).read_text(encoding="utf-8")))
    whole = sum(PHASES[phase].whole_wave for phase in request.phases)
    per_wave = whole + (len(request.phases) - whole) * -(-request.wave_size // request.batch_size)
    return len(request.waves()) * per_wave


def _began(root: Path) -> list[float]:
    """Return when each batch began. A kill may leave half a line at the end."""
    path = root / _BEGAN
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [float(line) for line in lines if line.endswith("\n")]


def campaign(root: Path) -> None:
    """Run or resume the campaign, with fakes in the places of the phases' tools."""
    from rackready.campaign import phase_table  # noqa: PLC0415
    from rackready.campaign.controller import Reporter, run_campaign  # noqa: PLC0415
    from rackready.campaign.request import CampaignRequest  # noqa: PLC0415
    from rackready.paths import EnvPaths  # noqa: PLC0415

    request = CampaignRequest.load(json.loads((root / _REQUEST).read_text(encoding="utf-8")))
    for name, phase in list(phase_table.PHASES.items()):
        phase_table.PHASES[name] = replace(phase, run=_fake(root, name, request))
    reporter = Reporter(lambda text: print(text, file=sys.stderr), lambda *_: None, print)
    clock = Clock()
    finished = run_campaign(EnvPaths(root, request.env), request, command="rackready deploy", reporter=reporter)
    print(json.dumps({"nodes": len(finished.results), **clock.line()}))


def _fake(root: Path, phase: str, request: CampaignRequest) -> Runner:
    from rackready.model.outcome import Outcome  # noqa: PLC0415
    from rackready.model.phase import NodeResult  # noqa: PLC0415

    bad = {
        node
        for place, node in enumerate(request.nodes)
        if place % FAILS == 0 and request.phases[place // FAILS % len(request.phases)] == phase
    }

    def run_(_ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        with (root / _BEGAN).open("a", encoding="utf-8") as log:
            log.write(f"{time.time()}\n")
        changed = phase in {"provision", "install"}
        words = "GPU 3 has 17 of 18 NVLinks - Expected: 18 Actual: 17. Reseat it."
        return {
            node: NodeResult(Outcome.FAIL, f"{node}: {words}")
            if node in bad
            else NodeResult(Outcome.PASS, changed=changed)
            for node in nodes
        }

    return run_


if __name__ == "__main__":
    if sys.argv[1:2] == [_CAMPAIGN]:
        campaign(Path(sys.argv[2]))
    else:
        each(__file__, CASES, measure, growing=("seconds", "cpu_seconds", "peak_mib"))
