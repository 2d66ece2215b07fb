"""A ledger on a PostgreSQL server: each error names the next step and shows no password."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from rackready.campaign.tables import TABLES
from rackready.design.database import read_server
from rackready.evidence.store import EvidenceError, EvidenceStore
from rackready.ledger import schema
from rackready.ledger.postgres import Postgres
from rackready.ledger.store import Ledger, LedgerError
from rackready.model.database import Server
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.model.state import NodeState
from rackready.paths import Database, EnvPaths
from rackready.watch.store import WatchStore
from tests.postgres import PASSWORD, PostgresServer, make_certificate, name_of
from tests.unit.evidence.test_store import record


def refusal(database: Database) -> str:
    """Return why the ledger cannot be opened; in one line, and without the password."""
    with pytest.raises(RackreadyError) as caught:
        Ledger.open(database)
    text = str(caught.value)
    assert PASSWORD not in text
    assert PASSWORD not in repr(caught.value.__cause__)
    return text


def test_without_settings_the_records_are_in_a_file(tmp_path: Path) -> None:
    Ledger.open(EnvPaths(tmp_path, "lab").database).close()
    assert (tmp_path / ".rackready/lab/state.sqlite").exists()


def test_with_settings_there_is_no_file(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database(tmp_path)
    assert not Ledger.exists(database)
    with pytest.raises(
        LedgerError,
        match=r"no ledger - Expected: one made by a run Actual: none\. Nothing was deployed yet: run `rackready "
        r"deploy`\.",
    ):
        Ledger.read_only(database)
    Ledger.open(database).set_state("node01", NodeState.READY)
    assert Ledger.exists(database)
    assert [row.name for row in Ledger.read_only(database).states()] == ["node01"]
    assert not database.file.exists()


def test_reading_cannot_write(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database(tmp_path)
    Ledger.open(database).close()
    with pytest.raises(
        LedgerError, match=r"Actual: cannot execute .* in a read-only transaction\. Name the primary, not a standby"
    ):
        Ledger.read_only(database).set_state("node01", NodeState.READY)


def test_rows_are_sorted_as_in_a_file(database: Database) -> None:
    ledger = Ledger.open(database)
    for name in ("b", "a-2", "a1", "a"):
        ledger.set_state(name, NodeState.DECLARED)
    assert [row.name for row in ledger.states()] == ["a", "a-2", "a1", "b"]


def test_words_of_others_may_hold_anything(database: Database) -> None:
    ledger = Ledger.open(database)
    ledger.event("c", "n", "install", "half\0 of a \N{ROCKET} line")
    ledger.set_state("n", NodeState.DECLARED, "bad\0")
    ledger.done(ledger.begin("n", "o", "d", {"seen": "\0"}).token, {"end": "\0"})
    assert ledger.events("c")[0].text == "half\ufffd of a \N{ROCKET} line"
    assert ledger.states()[0].reason == "bad\ufffd"
    assert (ledger.entries()[0].observed, ledger.entries()[0].result) == ({"seen": "\0"}, {"end": "\0"})


def test_server_that_is_not_there(postgres: PostgresServer, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        text = refusal(postgres.settings(tmp_path, host="127.0.0.1", port=port, tls="disable"))
    where = f"PostgreSQL database rackready on 127.0.0.1:{port}: the ledger cannot be opened"
    assert text.startswith(
        f"{where} - Expected: a database that can be reached and takes writes Actual: connection failed: "
    )
    assert "Connection refused" in text
    assert text.endswith(
        f"Start the server, or correct host and port in {tmp_path}/inventories/lab/database.yml, then run again."
    )


def test_wrong_password_is_not_shown(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database(tmp_path, host="127.0.0.1", tls="disable")
    secret = tmp_path / "inventories/lab/secrets/database"
    secret.write_text("another-one-that-is-wrong", encoding="utf-8")
    text = refusal(database)
    assert 'FATAL: password authentication failed for user "rackready"' in text
    assert text.endswith(f"Correct user, or the password in file {secret}, then run again.")
    assert "another-one-that-is-wrong" not in text


@pytest.mark.parametrize(
    ("settings", "actual", "step"),
    [
        (
            {"name": "none"},
            'FATAL: database "none" does not exist',
            "Make it as in docs/howto/postgresql.md, or correct name and user in ",
        ),
        ({"password": None}, "no password supplied", "Correct user, or the password in "),
        ({"password": {"env": "NOT_SET"}}, "not set", "Export NOT_SET and run again."),
        (
            {"host": "127.0.0.1", "ca": "/nonexistent"},
            'root certificate file "/nonexistent" does not exist',
            "Correct tls, ca, certificate and private_key in ",
        ),
        ({"host": "127.0.0.1"}, "certificate verify failed", "Correct tls, ca, certificate and private_key in "),
    ],
    ids=["database", "password", "secret", "ca", "unknown-ca"],
)
def test_settings_that_do_not_fit_the_server(
    postgres: PostgresServer, tmp_path: Path, settings: dict[str, Any], actual: str, step: str
) -> None:
    text = refusal(postgres.settings(tmp_path, **settings))
    assert actual in text
    assert step in text


def test_server_proves_who_it_is(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database(tmp_path, host="127.0.0.1", ca=str(postgres.ca))
    with Ledger.open(database).engine.connect() as connection:
        assert (
            connection.execute(sa.text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")).scalar_one() is True
        )
    plain = {"name": name_of(database), "host": "localhost", "ca": str(postgres.ca)}
    assert 'does not match host name "localhost"' in refusal(postgres.settings(tmp_path, **plain))
    Ledger.open(postgres.settings(tmp_path, tls="verify-ca", **plain)).close()
    make_certificate(tmp_path / "other.pem", tmp_path / "other.key")
    text = refusal(
        postgres.settings(tmp_path, name=name_of(database), host="127.0.0.1", ca=str(tmp_path / "other.pem"))
    )
    assert "certificate verify failed" in text
    assert "Correct tls, ca, certificate and private_key in " in text


def test_server_gives_up_a_machine_that_is_cut_off_before_others_give_up_waiting(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Keepalives alone do not: Linux sends none while an answer waits to be acknowledged (test_worker_nets.py)."""
    database = postgres.database(tmp_path, host="127.0.0.1", ca=str(postgres.ca))
    with Ledger.open(database).engine.connect() as connection:
        found = [connection.execute(sa.text(f"SHOW {key}")).scalar() for key in ("tcp_user_timeout", "lock_timeout")]
    assert found == ["20000", "30s"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"password": "hunter2"}, "password: Expected: a mapping Actual: text. Correct it."),
        (
            {"url": "postgresql://me:hunter2@host/db"},
            "url: unknown key. Correct its spelling or remove it; docs/howto/postgresql.md lists the keys.",
        ),
        ({"tls": "verify-ca"}, "tls: verify-ca needs ca"),
        ({"certificate": "me.pem"}, "give certificate and private_key together, or neither"),
        (
            {"tls": "prefer"},
            "tls: Expected: 'verify-full', 'verify-ca' or 'disable' Actual: 'prefer'. Correct it.",
        ),
        ({"host": "a b"}, "host: Expected: text that matches"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_are_wrong(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "inventories/lab/database.yml"
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"schema": "rackready/database/v1", "host": "db.example.com"} | change), encoding="utf-8"
    )
    with pytest.raises(SiteInvalidError) as caught:
        read_server(path)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("text", "actual"), [("", "an empty file"), ("- a\n", "a list")])
def test_settings_without_a_mapping(tmp_path: Path, text: str, actual: str) -> None:
    path = tmp_path / "inventories/lab/database.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_server(path)
    assert [str(found) for found in caught.value.problems] == [
        f"Expected: a mapping Actual: {actual}. Write it as in docs/howto/postgresql.md."
    ]


@pytest.mark.parametrize("named", [False, True], ids=["the system's file", "SSL_CERT_FILE"])
def test_without_a_ca_the_server_is_verified_by_those_of_the_system(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    absent = str(tmp_path / "absent")
    monkeypatch.setattr("rackready.ledger.postgres._SYSTEM_CAS", (absent, absent if named else str(postgres.ca)))
    database = postgres.database(tmp_path, host=postgres.address)
    if named:
        assert refusal(database).endswith(
            f"the server's certificate cannot be verified - Expected: the system's CAs in {absent} or {absent} "
            "Actual: neither is there. Install ca-certificates on this machine, or name the CA of the server as ca in "
            "database.yml."
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(postgres.ca))
    Ledger.open(database).close()


def test_paths_in_settings_are_taken_from_the_top_of_the_checkout(tmp_path: Path) -> None:
    path = tmp_path / "inventories/lab/database.yml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "schema: rackready/database/v1\nhost: h\nca: a.pem\npassword: {file: p}\ncertificate: c.pem\nprivate_key: /k\n",
        encoding="utf-8",
    )
    server = read_server(path)
    assert (server.ca, server.certificate, server.private_key) == (tmp_path / "a.pem", tmp_path / "c.pem", Path("/k"))
    assert str(server.password) == f"file {tmp_path / 'p'}"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE about SET version = version - 1",
            "Actual: version 0, made by an older rackready. Name an empty database, or keep using that rackready.",
        ),
        (
            "UPDATE about SET version = version + 1",
            "Actual: version 2, made by a newer rackready. Use that rackready on this machine, too.",
        ),
    ],
    ids=["older", "newer"],
)
def test_tables_of_another_version(postgres: PostgresServer, tmp_path: Path, statement: str, said: str) -> None:
    database = postgres.database(tmp_path)
    Ledger.open(database).close()
    postgres.sql(statement, name_of(database))
    assert refusal(database).endswith(f"Expected: tables of version {schema.VERSION} {said}")
    with pytest.raises(LedgerError, match="Expected: tables of version"):
        Ledger.read_only(database)


def test_database_of_another_environment(postgres: PostgresServer, tmp_path: Path) -> None:
    lab = postgres.database(tmp_path, "lab")
    Ledger.open(lab).close()
    prod = postgres.settings(tmp_path, "prod", name=name_of(lab))
    said = (
        "Expected: the records of environment prod Actual: those of lab. "
        "Give each environment a database of its own: correct name in "
    )
    assert said in refusal(prod)


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ("3D000", "Make it as in docs/howto/postgresql.md, or correct name and user in "),
        ("42501", "Grant the role what docs/howto/postgresql.md lists, then run again."),
        ("25006", "Name the primary, not a standby, as host in "),
        ("55P03", "Find the other writer that does not end (pg_stat_activity), then run again."),
        ("53300", "Raise max_connections of the server, or end other sessions, then run again."),
        ("53100", "Free disk space on the database's server, then run again."),
        ("57P01", "Nothing was half written. Run the same command again once the server answers: it goes on from "),
        ("22012", "Run `rackready doctor`, and look at the server's log."),
    ],
)
def test_the_code_of_the_server_and_not_its_words_chooses_the_step(code: str, step: str, tmp_path: Path) -> None:
    """A server speaks the language of its lc_messages."""
    server = Server(schema="rackready/database/v1", host="db", name="lab", user="me", tls="disable")
    error = psycopg.errors.lookup(code)("Verbindung abgelehnt, connection refused")
    assert Postgres(server, EnvPaths(tmp_path, "lab").database).step(error).startswith(step)


def test_role_that_may_not_write(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database(tmp_path)
    EvidenceStore.open(Ledger.open(database), tmp_path / "raw")
    name = name_of(database)
    postgres.sql(f"DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
    postgres.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name)
    ledger = Ledger.open(postgres.settings(tmp_path, name=name, user="reader"))
    store = EvidenceStore.open(ledger, tmp_path / "raw")
    assert ledger.states() == []
    step = r"Grant the role what docs/howto/postgresql\.md lists, then run again\."
    with pytest.raises(
        LedgerError, match=f"the ledger cannot be written - .* Actual: permission denied for table nodes. {step}"
    ):
        ledger.set_state("n", NodeState.READY)
    with pytest.raises(
        EvidenceError, match=f"cannot be appended - .* Actual: permission denied for table evidence. {step}"
    ):
        store.append(record())


def test_role_that_may_not_make_tables(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database(tmp_path)
    postgres.sql("DROP ROLE IF EXISTS guest")
    postgres.sql(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    text = refusal(postgres.settings(tmp_path, name=name_of(database), user="guest"))
    assert "Actual: permission denied for schema public" in text
    assert postgres.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", name_of(database)) == [(0,)], (
        "whole or not at all"
    )


def test_role_that_owns_no_table_can_do_its_work_and_lift_no_guard(postgres: PostgresServer, tmp_path: Path) -> None:
    """As the how-to recommends: the tables belong to another role than the one that controllers use."""
    database = postgres.database(tmp_path)
    Ledger.open(database).make_owned(TABLES)
    name = name_of(database)
    ledger = Ledger.open(postgres.granted(tmp_path, "lab", name))
    ledger.make_owned(TABLES)
    EvidenceStore.open(ledger, tmp_path / "raw").append(record())
    ledger.done(ledger.begin("n", "o", "d", {}).token)
    ledger.set_state("n", NodeState.READY)
    assert not WatchStore.exists(ledger), "its tables alone are no watch that ran"
    store = WatchStore.open(ledger)
    for at in (1, 2):
        store.put_mark("beat", {"at": at})
    store.put_node("n", cursor="c")
    store.forget(["n"])
    assert (store.mark("beat"), WatchStore.exists(ledger)) == ({"at": 2}, True)
    store.drop_marks(["beat"])
    for statement in (
        "DROP TRIGGER evidence_no_update ON evidence",
        "ALTER TABLE evidence DISABLE TRIGGER ALL",
        "DELETE FROM evidence",
        "TRUNCATE evidence",
    ):
        with pytest.raises(sa.exc.DBAPIError), ledger.engine.begin() as connection:
            connection.execute(sa.text(statement))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE evidence SET outcome = 'pass'", "evidence is append-only: update of evidence is refused"),
        ("DELETE FROM evidence_nodes", "evidence is append-only: delete of evidence_nodes is refused"),
        ("TRUNCATE evidence", "evidence is append-only: truncate of evidence is refused"),
    ],
    ids=["update", "delete", "truncate"],
)
def test_owner_of_the_tables_is_refused_changes_of_evidence(
    postgres: PostgresServer, tmp_path: Path, statement: str, said: str
) -> None:
    ledger = Ledger.open(postgres.database(tmp_path))
    EvidenceStore.open(ledger, tmp_path / "raw")
    with pytest.raises(sa.exc.IntegrityError, match=said), ledger.engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_writer_that_does_not_end_is_not_waited_for_for_ever(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackready.ledger.postgres._OPTIONS", "-c lock_timeout=200ms")
    ledger = Ledger.open(postgres.database(tmp_path))
    words = (
        r"Actual: canceling statement due to lock timeout\. Find the other writer that does not end "
        r"\(pg_stat_activity\), then run again\."
    )
    with ledger.write(), pytest.raises(LedgerError, match=words):
        ledger.set_state("n", NodeState.READY)


def test_many_ledgers_of_a_process_share_a_few_connections(postgres: PostgresServer, tmp_path: Path) -> None:
    """The provider opens one for every node that it works on."""
    database = postgres.database(tmp_path)
    opened = [Ledger.open(database) for _ in range(40)]
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda ledger: ledger.event("c", "n", "p", "x"), opened))
    assert len(opened[0].events("c")) == 40
    assert (
        1
        <= postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()", name_of(database))[
            0
        ][0]
        - 1
        <= 10
    )


def test_identity_is_the_same_on_every_machine_and_another_for_another_ledger(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    one = postgres.database(tmp_path / "a")
    same = postgres.settings(tmp_path / "b", name=name_of(one))
    other = postgres.database(tmp_path / "c")
    found = [Ledger.open(database).identity() for database in (one, same, other)]
    assert found[0] == found[1] != found[2]


def test_state_of_this_machine_is_where_the_file_would_lie(postgres: PostgresServer, tmp_path: Path) -> None:
    assert Ledger.open(postgres.database(tmp_path)).home == tmp_path / ".rackready/lab/state.sqlite"
