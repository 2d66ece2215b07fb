"""Campaigns with a ledger on PostgreSQL: whole, killed, refused beside another machine's, stopped when it is lost."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.campaign.tables import TABLES
from rackready.ledger.store import Ledger
from rackready.paths import Database, EnvPaths
from tests.postgres import PASSWORD, PostgresServer, name_of
from tests.unit.campaign.test_campaign import did, run, start


@pytest.fixture
def shared(postgres: PostgresServer, tmp_path: Path) -> Database:
    return postgres.database(tmp_path, "x")


def begun(root: Path, phase: str) -> None:
    """Wait until a phase works."""
    deadline = time.monotonic() + 300
    while not ((root / "did.log").exists() and any(line.startswith(phase) for line in did(root))):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killed_it_goes_on_and_no_password_is_left_anywhere(tmp_path: Path, shared: Database) -> None:
    code, _ = run(tmp_path, "die:fabric")
    assert code == -signal.SIGKILL
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert "which was cut off" in text
    assert "ROW node02 ready handover pass" in text
    assert did(tmp_path).count("provision node01,node02,node03") == 1
    assert {row.state.value for row in Ledger.read_only(shared).states()} == {"ready"}
    assert not shared.file.exists()
    with Ledger.read_only(shared).read() as connection:  # a role with fewer rights makes none later
        assert {name for one in TABLES for name in one.tables} <= set(sa.inspect(connection).get_table_names())
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == [tmp_path / "inventories/x/secrets/database"]


def test_another_machine_is_refused_and_takes_over_once_it_is_free(
    postgres: PostgresServer, tmp_path: Path, shared: Database
) -> None:
    """Workflow progress is only on the machine that died: a new campaign continues from the ledger and reports so."""
    other = tmp_path / "other"
    postgres.settings(other, "x", name=name_of(shared))
    child = start(tmp_path, "hang:fabric")
    begun(tmp_path, "fabric")
    code, text = run(other, "run")
    assert code == 1, text
    assert f"ControllerBusyError: PostgreSQL database {name_of(shared)} on " in text
    assert "another controller works on this site - Expected: none Actual: pid " in text
    assert not (other / "did.log").exists()
    child.kill()
    child.communicate()
    code, text = run(other, "run")
    assert code == 0, text
    assert "was cut off and is not resumed (how far it was is not on record on this machine)" in text
    assert "ROW node02 ready handover pass" in text


@pytest.mark.usefixtures("shared")
def test_a_campaign_that_another_machine_took_over_does_not_come_back_on_the_first_one(tmp_path: Path) -> None:
    """The first machine's own file still has its campaign as pending: it must not run beside the new one."""
    run(tmp_path, "die:fabric")
    state, first = EnvPaths(tmp_path, "x").base, tmp_path / "state-of-the-first"
    state.rename(first)  # the checkout has the same path on both machines
    code, text = run(tmp_path, "die:validate")
    assert "is not resumed (how far it was is not on record on this machine)" in text
    shutil.rmtree(state)
    first.rename(state)
    before = did(tmp_path)
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert "is not resumed (how far it was is not on record on this machine)" in text
    assert did(tmp_path)[len(before) :].count("fabric node01,node02,node03") == 1


def test_lost_server_stops_the_campaign_and_the_next_run_goes_on(
    postgres: PostgresServer, tmp_path: Path, shared: Database
) -> None:
    child = start(tmp_path, "hang:fabric")
    begun(tmp_path, "fabric")
    held = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT "
        "oid FROM pg_database WHERE datname = '{}')"
    )
    assert postgres.sql(held.format(name_of(shared))) == [(True,)]
    text, _ = child.communicate(timeout=60)
    assert child.returncode == 2, text
    assert "this controller has lost its lock - Expected: a connection that stays Actual: " in text
    assert (
        "this controller has lost its lock - Expected: lock number 1 Actual: the connection that held it ended. "
        "Nothing more is started." in text
    )
    assert (tmp_path / "ended.log").read_text(encoding="utf-8") == "fabric held\n", (
        "what was under way ended before the lock of this machine was given back"
    )
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert did(tmp_path).count("provision node01,node02,node03") == 1
    assert EnvPaths(tmp_path, "x").workflows.exists()
