"""Drift runs on record: appended, never changed; and the last campaign in which a phase passed."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.ledger.drift import append_runs, last_passes, runs_of
from rackready.ledger.store import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


def test_runs_come_newest_first_and_only_of_their_target(ledger: Ledger) -> None:
    assert list(runs_of(ledger, "node01")) == []
    append_runs(ledger, "d1", 1.0, "s", [{"name": "node01", "items": []}, {"name": "node02", "items": []}])
    append_runs(ledger, "d2", 2.0, "s", [{"name": "node01", "items": [1]}])
    assert [(row.run, row.at, row.report["items"]) for row in runs_of(ledger, "node01")] == [
        ("d2", 2.0, [1]),
        ("d1", 1.0, []),
    ]


@pytest.mark.parametrize("statement", ["UPDATE drift SET at = 0", "DELETE FROM drift"])
def test_the_database_refuses_to_change_them(ledger: Ledger, statement: str) -> None:
    append_runs(ledger, "d1", 1.0, "s", [{"name": "node01"}])
    with pytest.raises(sa.exc.IntegrityError, match="append-only"), ledger.engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_the_last_pass_of_a_phase_is_a_campaigns_and_no_dry_runs(ledger: Ledger) -> None:
    for campaign in ("c1", "c2"):
        ledger.put_campaign(
            campaign, env="sim", kind="deploy", nodes=["node01"], site_digest="s", abi="1", status="finished"
        )
    ledger.event("c1", "node01", "install", "unchanged", "ok")
    ledger.event("c2", "node01", "install", "changed", "ok")
    ledger.event("c2", "node01", "fabric", "no answer", "error")
    ledger.event("dry", "node01", "install", "would change", "ok")
    ledger.event("c2", "node02", "install", "unchanged", "ok")
    found = last_passes(ledger, ["node01"], ("install", "fabric"))
    assert {node: {phase: done.campaign for phase, done in phases.items()} for node, phases in found.items()} == {
        "node01": {"install": "c2"}
    }
