"""Records of plays and proofs that cannot be written, that a role with few rights writes, or another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.campaign import proof
from rackready.campaign.tables import TABLES
from rackready.ledger.store import Ledger, LedgerError
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from tests.postgres import PostgresServer, name_of
from tests.unit.proof.test_proving import NODES, ROOT, Rack


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    found = Rack(PhaseContext("sim", tmp_path, "c1"))
    monkeypatch.setattr(proof, "run_playbook", found.play)
    return found


def test_a_role_without_the_owner_s_rights_records_plays_and_proofs(
    rack: Rack, postgres: PostgresServer, tmp_path: Path
) -> None:
    """With the rights of docs/howto/postgresql.md; the second play overwrites the record of the first."""
    database = postgres.database(tmp_path, "sim")
    Ledger.open(database).make_owned(TABLES)
    postgres.granted(tmp_path, "sim", name_of(database))
    assert rack.run() == dict.fromkeys(NODES, NodeResult(Outcome.PASS))
    rack.answers["node01"] = {"loaded": "570.9"}
    results = rack.run()
    assert rack.played == ["node01"]
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert not [text for text in rack.events() if "the next run plays it" in text]
    rack.answers.clear()
    rack.run()
    assert rack.played == []


@pytest.mark.parametrize("silent", [False, True], ids=["only the record", "every write"])
def test_a_record_that_cannot_be_kept_leaves_the_results_of_the_play(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, *, silent: bool
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise LedgerError("db", "a proof cannot be recorded", expected="rights", actual="none", next_step="Grant them.")

    monkeypatch.setattr(proof, "keep_record", refused)
    if silent:
        rack.during = lambda: monkeypatch.setattr(Ledger, "event", refused)
    assert rack.run() == dict.fromkeys(NODES, NodeResult(Outcome.PASS))
    told = "node01: the next run plays it, too: db: a proof cannot be recorded - Expected: rights Actual: none. Grant"
    assert silent or any(text.startswith(told) for text in rack.events())


def test_a_proof_that_cannot_be_recorded_proves_nothing(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise LedgerError("db", "a proof cannot be recorded", expected="rights", actual="none", next_step="Grant them.")

    rack.run()
    monkeypatch.setattr(proof, "append_proof", refused)
    assert rack.run() == dict.fromkeys(NODES, NodeResult(Outcome.PASS))
    assert rack.played == NODES
    assert rack.reason() == "db: a proof cannot be recorded - Expected: rights Actual: none. Grant them."


def test_machines_that_share_the_key_prove_each_other_s_plays(
    rack: Rack, postgres: PostgresServer, tmp_path: Path
) -> None:
    """With a key each, a node that the other one played is played, and the reason is no change of roles."""
    database = postgres.database(tmp_path, "sim")
    rack.run()
    key = rack.paths.state / "proof.key"
    own = key.read_bytes()
    key.unlink()
    rack.run()
    assert rack.played == NODES
    assert rack.reason().startswith("its last play was recorded with another proof.key")
    key.write_bytes(own)
    rack.run()
    rack.run()
    assert rack.played == []
    assert Ledger.exists(database)
