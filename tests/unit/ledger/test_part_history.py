"""The history of parts and the voids of gates: written once, never changed, the same in SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.ledger.part_history import (
    ACCUSED,
    LISTED,
    RETIRED,
    GateVoid,
    PartEvent,
    append,
    events_of,
    every_void,
    last_listed,
    retired_serials,
    void_since,
)
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import Database
from tests.postgres import PostgresServer

PAIR = "pair/fabric/performance/ib-write-bw"


def event(at: float, what: str, serial: str = "S1", node: str = "node01") -> PartEvent:
    return PartEvent(at, "case-1", node, what, "gpu", serial, "gpu2", "699", "xid")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(tmp_path / "state.sqlite", tmp_path / "database.yml", "t")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database(tmp_path)


def test_what_was_written_is_read_and_never_changed(database: Database) -> None:
    with Ledger.open(database) as ledger:
        assert events_of(ledger, node="node01") == []
        assert every_void(ledger, "node01") == {}
        first = [event(1.5, ACCUSED), event(2.5, LISTED), event(2.5, LISTED, "S2")]
        append(ledger, first, [GateVoid("node02", PAIR, "node01 came back", 3.0)])
        append(ledger, [event(4.5, LISTED, "S3"), event(4.5, RETIRED, "S2", "node09")])
        assert events_of(ledger, node="node01") == [*first, event(4.5, LISTED, "S3")]
        assert [item.serial for item in last_listed(ledger, "node01")] == ["S3"], "of the newest return alone"
        assert retired_serials(ledger, ["S1", "S2"]) == {
            "S2": [event(2.5, LISTED, "S2"), event(4.5, RETIRED, "S2", "node09")]
        }
        for statement in ("UPDATE part_events SET serial = 'X'", "DELETE FROM gate_voids"):
            with pytest.raises(sa.exc.DBAPIError, match="append-only"), ledger.write() as connection:
                connection.execute(sa.text(statement))


def test_a_void_waits_while_the_node_is_in_production(database: Database) -> None:
    with Ledger.open(database) as ledger:
        append(ledger, [], [GateVoid("node02", PAIR, "a", 3.0), GateVoid("node02", PAIR, "b", 5.0)])
        assert void_since(ledger, "node02")[PAIR] == GateVoid("node02", PAIR, "b", 5.0), "the newest counts"
        ledger.set_state("node02", NodeState.READY)
        assert void_since(ledger, "node02") == {}
        ledger.set_state("node02", NodeState.CERTIFIED)
        assert void_since(ledger, "node02")[PAIR].at == 5.0
        assert void_since(ledger, "node03") == {}
