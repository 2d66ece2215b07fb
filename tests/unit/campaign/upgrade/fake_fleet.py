"""`rackready upgrade` with phases of its own that write down what they did: run as a program by the kill tests.

Usage: fake_fleet.py ROOT MODE ARGUMENT... MODE: ``run``; ``die:PHASE:NODE`` (SIGKILL inside that phase);
``fail:PHASE:NODE``, once the node is on its way to the new set.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from rackready.campaign import controller, phase_table, step, workflow
from rackready.campaign.drained_phase import Runner
from rackready.campaign.upgrade import serving, take_out
from rackready.campaign.upgrade.mirror_check import Repositories
from rackready.cli import main as command_line
from rackready.design.node_sets import choice_of
from rackready.design.pinned import site_of
from rackready.handover.offer import Offers
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

NODES = ("node01", "node02", "node03", "node04")


def fake(root: Path, phase: str, mode: str, real: Runner | None) -> Runner:
    """Return a phase that logs its nodes with their sets and does what the mode says."""
    kind, wanted, victim = (*mode.split(":"), "", "")[:3]

    def run(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        site = site_of(ctx)
        sets = {node: choice_of(site, node).set for node in nodes}
        with (root / "did.log").open("a", encoding="utf-8") as log:
            log.writelines(f"{phase} {node} {name}\n" for node, name in sets.items())
        out = real(ctx, nodes) if real else {}
        if (kind, wanted) == ("die", phase) and victim in nodes:
            os.kill(os.getpid(), signal.SIGKILL)
        out = {node: NodeResult(Outcome.PASS, changed=phase == "install") for node in nodes} | out
        if (kind, wanted) == ("fail", phase) and victim in nodes and sets[victim] == sys.argv[4]:
            out[victim] = NodeResult(Outcome.FAIL, f"{victim}: {phase} failed")
        return out

    return run


def main() -> int:
    """Run one command."""
    root, mode = Path(sys.argv[1]), sys.argv[2]
    os.environ["RACKREADY_ROOT"] = str(root)
    controller._POLL_S = workflow.POLL_S = 0.02  # its phases take no time
    serving.offers = lambda _site, _paths, nodes, **_: Offers(unknown=dict.fromkeys(nodes, "nobody was asked"))
    take_out._of_others = lambda *_: {}  # type: ignore[assignment]
    take_out.in_production = lambda *_: ([], {})  # type: ignore[assignment]
    Repositories.problems = lambda *_: []  # type: ignore[method-assign,assignment]
    step.drain_nodes = lambda *_: {}  # type: ignore[assignment]
    controller.keep_off = lambda _ctx: controller.Kept((), ())  # type: ignore[attr-defined]
    real = {"take-out": take_out.run_take_out}
    for name, phase in list(phase_table.PHASES.items()):
        phase_table.PHASES[name] = replace(phase, run=fake(root, name, mode, real.get(name)))
    with Ledger.open(EnvPaths(root, "sim").database) as ledger:
        for node in NODES:
            if ledger.state(node) is None:
                ledger.set_state(node, NodeState.READY)
    return command_line.run(["upgrade", *sys.argv[3:]]).code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
