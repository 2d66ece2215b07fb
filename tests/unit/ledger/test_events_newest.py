"""The newest line of each node, and the index for it: files of earlier releases get it when they are written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rackready.ledger import progress
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import Database
from tests.postgres import PASSWORD, PostgresServer, name_of

INDEX = "events_newest"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(tmp_path / "state.sqlite", tmp_path / "none.yml", "lab")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database(tmp_path)


def filled(database: Database) -> None:
    """Write lines of two campaigns in turns, of names that sort differently by bytes and by language."""
    with Ledger.open(database) as ledger:
        for text in ("first", "second", "last"):
            for node in ("node10", "Node2", "node2", "ü", "a, b"):
                ledger.event("c1", node, "install", f"{text} of {node}")
                ledger.event("c2", node, "validate", "of another campaign")
        ledger.event("c1", "node2", "install", "after all")
        ledger.set_state("node2", NodeState.READY)


NEWEST = {
    "node10": "last of node10",
    "Node2": "last of Node2",
    "node2": "after all",
    "ü": "last of ü",
    "a, b": "last of a, b",
}


def newest(database: Database, campaign: str = "c1") -> dict[str, str]:
    with Ledger.read_only(database) as ledger:
        return {node: event.text for node, event in ledger.newest_events(campaign).items()}


def indexed(database: Database) -> bool:
    with Ledger.read_only(database) as ledger, ledger.read() as connection:
        return not progress.schema.lacking(connection)


def test_the_newest_line_of_every_node_of_this_campaign(database: Database) -> None:
    filled(database)
    assert newest(database) == NEWEST
    assert newest(database, "none") == {}
    with Ledger.read_only(database) as ledger:
        last = ledger.newest_events("c1")["node2"]
        assert (last.campaign, last.node, last.phase, last.level) == ("c1", "node2", "install", "info")
        assert ledger.last_event("c1") == last.id
        assert ledger.last_event("none") == 0


def test_a_database_of_an_earlier_release_is_read_as_it_is_and_gets_the_index_when_it_is_written(
    database: Database,
) -> None:
    filled(database)
    with Ledger.open(database) as ledger, ledger.write() as connection:
        connection.exec_driver_sql(f"DROP INDEX {INDEX}")
    assert not indexed(database)
    assert newest(database) == NEWEST
    assert not indexed(database), "a reader changes nothing"
    with Ledger.open(database) as ledger:
        assert [row.name for row in ledger.states()] == ["node2"]
    assert indexed(database)
    assert newest(database) == NEWEST
    with Ledger.open(database):
        pass  # a second time there is nothing to do


def test_the_index_is_used_where_it_is(tmp_path: Path) -> None:
    """A scan of a long campaign takes a second for every hundred thousand lines."""
    database = Database(tmp_path / "state.sqlite", tmp_path / "none.yml", "lab")
    filled(database)
    with Ledger.read_only(database) as ledger:
        query = str(progress._by_index("c1").compile(ledger.engine, compile_kwargs={"literal_binds": True}))
    with closing(sqlite3.connect(database.file)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    looks = [line for line in plan if "events" in line]
    assert looks
    assert all(f"COVERING INDEX {INDEX} (campaign=?" in line for line in looks), plan


def test_campaigns_without_their_nodes_and_by_status(database: Database) -> None:
    common = {"env": "lab", "kind": "deploy", "site_digest": "d", "abi": "1"}
    with Ledger.open(database) as ledger:
        ledger.put_campaign("c1", nodes=["a", "b"], status="finished", begun=1.0, **common)
        ledger.put_campaign("c2", nodes=["b"], status="running", begun=2.0, **common)
        heads = ledger.campaign_heads()
        assert [(row["id"], row["status"], row["ended"]) for row in heads] == [
            ("c2", "running", None),
            ("c1", "finished", None),
        ]
        assert not {"nodes", "summary"} & heads[0].keys()
        assert [row["id"] for row in ledger.campaigns()] == ["c2", "c1"]
        assert [row["id"] for row in ledger.campaigns(status=["finished"])] == ["c1"]
        assert (ledger.campaign_nodes("c1"), ledger.campaign_nodes("none")) == (["a", "b"], [])


def test_a_role_that_owns_no_table_works_on_a_database_of_an_earlier_release(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """As docs/howto/postgresql.md recommends. Only the owner may make the index."""
    owned = postgres.database(tmp_path)
    filled(owned)
    name = name_of(owned)
    postgres.sql(f"DROP INDEX {INDEX}", name)
    postgres.sql(f"CREATE ROLE worker LOGIN PASSWORD '{PASSWORD}'")
    postgres.sql("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO worker", name)
    postgres.sql("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO worker", name)
    with Ledger.open(postgres.settings(tmp_path, name=name, user="worker")) as ledger:
        ledger.event("c1", "node2", "install", "by another role")
        assert ledger.newest_events("c1")["node2"].text == "by another role"
    assert not indexed(owned)
    with Ledger.open(postgres.settings(tmp_path, name=name)):
        pass
    assert indexed(owned)
