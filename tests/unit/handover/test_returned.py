"""A node whose return from a tenant is open is neither offered nor has a certificate that counts."""

from __future__ import annotations

from typing import NoReturn

import pytest

from rackready.design.pinned import site_of
from rackready.drivers.scheduler.base import SchedulerError
from rackready.handover import run, slurm_apply
from rackready.handover.returned import HAND_BACK
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED
from rackready.model.state import NodeState
from tests.unit.handover.test_production import IDLE, Scene, scene

__all__ = ["scene"]


def test_handover_offers_no_node_whose_return_is_open(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(run, "fingerprints", lambda _site, _paths, nodes: asked.extend(nodes) or {})
    monkeypatch.setattr(run, "keys_of", lambda *_: None)
    scene.cluster.nodes["node01"] = IDLE
    token = scene.ledger.begin("node01", HAND_BACK, "lease ended", {}).token
    result = run.run_handover(scene.ctx, ["node01", "node02"])["node01"]
    assert (result.outcome, asked) == (Outcome.FAIL, ["node02"])
    assert result.message.startswith("node01: return from its tenant - Expected: ended: scrubbed, rebooted, and its ")
    assert scene.cluster.nodes["node01"].drained
    scene.ledger.done(token, {})
    run.run_handover(scene.ctx, ["node01"])
    assert asked == ["node02", "node01"]


def test_an_error_of_the_clusters_files_takes_no_node_out_of_production(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise SchedulerError("node07", "Slurm's files", expected="an answer", actual="none", next_step="Look at it.")

    monkeypatch.setattr(slurm_apply, "bring", refuse)
    monkeypatch.setattr(run, "files_of", lambda _handover: object())
    scene.ledger.set_state("node01", NodeState.READY)
    scene.ledger.set_state("node02", NodeState.CERTIFIED)
    found = run._entered(scene.ctx, site_of(scene.ctx), ["node01", "node02"])
    assert {node: UNTOUCHED in result.data for node, result in found.items()} == {"node01": True, "node02": False}
    assert {result.outcome for result in found.values()} == {Outcome.ERROR}
