"""A node whose return from a tenant is open is neither offered nor has a certificate that counts."""

from __future__ import annotations

import pytest

from rackready.handover import run
from rackready.handover.returned import HAND_BACK
from rackready.model.outcome import Outcome
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
