# ruff: noqa: T201 - a program of its own, whose output the tests read
"""A controller with phases of its own that write down what they did: run as a program by the kill tests.

Usage: fake_site.py ROOT MODE. MODE names what happens: ``run``; ``die:PHASE`` (SIGKILL inside that phase); ``hang:PHASE``;
``fail:PHASE:NODE``; ``error:PHASE:NODE``; ``untouched:PHASE:NODE`` (held, and kept by its jobs);
``defect:PHASE``; ``silent:PHASE:NODE`` (no result for the node).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from rackready.campaign import phases
from rackready.campaign.controller import run_campaign
from rackready.campaign.hold import Runner
from rackready.campaign.request import DEPLOY, Request
from rackready.campaign.summary import exit_code, summarise
from rackready.drivers.process import check_stop
from rackready.handover.production import HELD
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths

NODES = ("node01", "node02", "node03")


def fake(root: Path, phase: str, mode: str) -> Runner:
    """Return a phase that logs its nodes and does what the mode says."""
    kind, _, rest = mode.partition(":")
    wanted, _, victim = rest.partition(":")

    def run(_ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        with (root / "did.log").open("a", encoding="utf-8") as log:
            log.write(f"{phase} {','.join(nodes)}\n")
        if wanted == phase and kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        while wanted == phase and kind == "hang":
            check_stop()
            time.sleep(0.02)
        if wanted == phase and kind == "defect":
            raise ZeroDivisionError
        out = {node: NodeResult(Outcome.PASS, changed=phase == "install") for node in nodes}
        if wanted == phase and victim in nodes:
            if kind == "silent":
                del out[victim]
            elif kind == "untouched":
                out[victim] = NodeResult(Outcome.ERROR, f"{victim}: jobs run on it", data={HELD: True}, touched=False)
            elif kind in {"fail", "error"}:
                out[victim] = NodeResult(Outcome(kind), f"{victim} gpu2: broken - Expected: 18 Actual: 17. Replace it.")
        return out

    return run


def main() -> int:
    """Run one campaign."""
    root, mode = Path(sys.argv[1]), sys.argv[2]
    for name, phase in list(phases.PHASES.items()):
        phases.PHASES[name] = replace(phase, run=fake(root, name, mode))
    paths = EnvPaths(root, "x")
    digest = sys.argv[3] if len(sys.argv) > 3 else "d"
    request = Request(f"c-{os.getpid()}", "x", str(root), "deploy", DEPLOY, NODES, 2, 8, 100, digest)
    finished = run_campaign(
        paths,
        request,
        command="rackready deploy",
        say=lambda text: print("SAY", text, flush=True),
        show=lambda event: print("EVENT", event.node, event.phase, event.text, flush=True),
    )
    rows = summarise(Ledger.open(paths.database), list(NODES), finished.results)
    for row in rows:
        print("ROW", row.name, row.state, row.phase, row.outcome, row.reason, flush=True)
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
