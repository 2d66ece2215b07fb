"""What a command of phases leaves behind: a deploy records what it applied; other phases and checks record nothing; a failed node is not recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from rackready.campaign.controller import Finished
from rackready.campaign.request import DEPLOY, DRY, Request
from rackready.cli import campaign_run
from rackready.cli.output import Format
from rackready.ledger.applied import read
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.cli.test_commands import project

__all__ = ["project"]

NODES = {f"node0{number}" for number in range(1, 5)}


def ran(project: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, check: bool = False, failed: str = "") -> set[str]:
    """Run a command whose campaign is replaced by its result; return the keys of what is recorded as applied."""

    def campaign(paths: EnvPaths, request: Request, **_: Any) -> Finished:
        ledger = Ledger.open(paths.database)
        for node in request.nodes:
            ledger.set_state(node, NodeState.QUARANTINED if node == failed else NodeState.READY)
        ledger.put_campaign(request.campaign, env="lab", kind=kind, nodes=list(request.nodes), site_digest="d", abi="1", status="finished")
        ledger.close()
        good = {"outcome": "pass", "message": "", "changed": True, "phase": "handover"}
        bad = {"outcome": "fail", "message": "bad", "changed": True, "phase": "validate"}
        return Finished(request.campaign, {node: bad if node == failed else good for node in request.nodes}, resumed=False)

    monkeypatch.setenv("RACKREADY_ROOT", str(project))
    monkeypatch.setattr(campaign_run, "run_campaign", campaign)
    with pytest.raises(typer.Exit):
        campaign_run.run(kind, DRY if check else DEPLOY, env="lab", limit="", check=check, output=Format.JSON)
    return set(read(EnvPaths(project, "lab").state).facts)


def test_deploy_records_what_it_applied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, monkeypatch, "deploy") == {*(f"node {name}" for name in NODES), "switch leaf01", "switch leaf02"}


def test_failed_node_is_not_recorded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, monkeypatch, "deploy", failed="node03") == {*(f"node {name}" for name in NODES - {"node03"}), "switch leaf01", "switch leaf02"}


@pytest.mark.parametrize("kind", ["provision", "install", "fabric", "validate", "optimize", "handover"])
def test_single_phases_record_nothing(project: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert ran(project, monkeypatch, kind) == set()


def test_check_records_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, monkeypatch, "deploy", check=True) == set()
