# ruff: noqa: T201 - a program of its own, whose output the tests read
"""A controller, workers and batches with a phase of their own: run as programs by the tests of workers.

Usage: fake_workers.py ROOT controller [NODES] | worker NAME [KEY=VALUE ...] | batch. The phase install does one thing
that must not be done twice: it adds a line for each node to ``world.log``. $MODE of the process that does it: ``run``;
``wait`` (until the file ``go`` exists); ``die`` (the worker is killed between the first effect and its record);
``stuck`` (as wait, and deaf to a stop); ``slow`` (some seconds).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rackready.campaign import controller, phase_on_workers, phase_table, work_batch, worker, workflow
from rackready.campaign.controller import Reporter, run_campaign
from rackready.campaign.request import CampaignRequest
from rackready.campaign.summary import exit_code, summarise
from rackready.cli.main import _leave
from rackready.cli.worker import _signals, labels_of
from rackready.design.pinned import pin
from rackready.design.site import load_site
from rackready.drivers.process import check_stop
from rackready.drivers.stop_flag import StopFlag
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import EventRow, Ledger
from rackready.ledger.work_tables import CLAIM
from rackready.model.base import expand_names
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths

ENV = "lab"
_SLOW_S = 4.0


def install(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Do the one thing on every node, as the mode says."""
    mode, out = os.environ.get("MODE", "run"), {}
    _log(ctx.root / "did.log", f"install {','.join(nodes)} {os.environ.get(CLAIM, 'controller')}")
    until = time.monotonic() + (_SLOW_S if mode == "slow" else 0)
    while time.monotonic() < until:
        check_stop()
        time.sleep(0.05)
    while mode in {"wait", "stuck"} and not (ctx.root / "go").exists():
        if mode == "wait":
            check_stop()
        time.sleep(0.05)
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node in nodes:
            done = run_effect(
                ledger,
                node,
                "wipe",
                "d",
                before=dict,
                observe=lambda _stored, node=node: _seen(ctx.root, node),  # type: ignore[misc]
                act=lambda token, node=node: _act(ctx.root, node, token, mode),  # type: ignore[misc]
            )
            out[node] = NodeResult(Outcome.PASS, done.outcome, changed=done.outcome == "done")
    return out


def _seen(root: Path, node: str) -> Observation:
    world = root / "world.log"
    lines = world.read_text(encoding="utf-8").splitlines() if world.exists() else []
    return Observation.HAPPENED if node in lines else Observation.NOT_HAPPENED


def _act(root: Path, node: str, _token: int, mode: str) -> dict[str, Any]:
    _log(root / "world.log", node)
    if mode == "die":
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _log(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")


def _controller(root: Path, nodes: str) -> int:
    paths = EnvPaths(root, ENV)
    site = load_site(ENV, root=root)
    names = tuple(expand_names(nodes))
    request = CampaignRequest(
        f"c-{os.getpid()}", ENV, str(root), "deploy", ("install",), names, 2, (len(names),), 100, pin(paths, site)
    )

    def show(event: EventRow, shown: object) -> None:
        print("EVENT", shown, event.phase, event.text, flush=True)

    def say(text: object) -> None:
        print("SAY", text, flush=True)

    finished = run_campaign(paths, request, command="rackready deploy", reporter=Reporter(say, show, stopped=say))
    rows = summarise(Ledger.open(paths.database), list(names), finished.results)
    for row in rows:
        print("ROW", row.name, row.outcome, row.reason, flush=True)
    return exit_code(rows)


def _worker(root: Path, name: str, labels: list[str]) -> int:
    def tell(kind: str, text: str, **about: object) -> None:
        print(json.dumps({"event": kind, "text": text, **about}), flush=True)

    stop, kill = StopFlag(), StopFlag()
    batch = (sys.executable, __file__, str(root), "batch")
    with _signals(stop, kill):
        worker.Worker(EnvPaths(root, ENV), name, labels_of(labels), tell, stop, kill, batch).run()
    return 0


def main() -> int:
    """Run the part."""
    root, part = Path(sys.argv[1]), sys.argv[2]
    controller._POLL_S = workflow.POLL_S = 0.02
    phase_on_workers._POLL_S = worker._POLL_S = 0.1
    worker.__version__ = os.environ.get("VERSION", worker.__version__)
    phase_table.PHASES["install"] = replace(phase_table.PHASES["install"], run=install)
    if part == "batch":
        return work_batch.main()
    if part == "worker":
        return _worker(root, sys.argv[3], sys.argv[4:])
    return _controller(root, sys.argv[3] if len(sys.argv) > 3 else "node[01-04]")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RackreadyError, OSError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        _leave(2)
