"""`--erase`: no node in production is erased; the others of the batch are provisioned."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.campaign import erase as module
from rackready.campaign.erase import run_erasing
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths, private_dir

NODES = ["node01", "node02", "node03"]
STEP = "Drain it: `rackready repair {node} --env t --reason ...`. Run again when its jobs have ended."


def provisioned(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    return {node: NodeResult(Outcome.PASS, f"may erase {', '.join(ctx.erase)}") for node in nodes}


def test_without_erase_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "in_production", lambda *_: pytest.fail("the scheduler was asked"))
    found = run_erasing(PhaseContext("t", tmp_path, "c"), provisioned, NODES)
    assert {result.outcome for result in found.values()} == {Outcome.PASS}


def test_nodes_in_production_are_refused_and_the_others_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = EnvPaths(tmp_path, "t")
    private_dir(paths.state)
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node01", NodeState.READY)
        ledger.set_state("node03", NodeState.REACHABLE)
    monkeypatch.setattr(module, "in_production", lambda _ctx, nodes: ([n for n in nodes if n == "node02"], {}))
    found = run_erasing(PhaseContext("t", tmp_path, "c", erase=tuple(NODES)), provisioned, NODES)
    assert {node: (result.outcome, result.touched) for node, result in found.items()} == {
        "node01": (Outcome.ERROR, False),
        "node02": (Outcome.ERROR, False),
        "node03": (Outcome.PASS, True),
    }
    head = "{node}: --erase - Expected: a node out of production Actual: "
    assert found["node01"].message == f"{head}ready. {STEP}".format(node="node01")
    assert found["node02"].message == f"{head}the scheduler offers it, or jobs run on it. {STEP}".format(node="node02")
