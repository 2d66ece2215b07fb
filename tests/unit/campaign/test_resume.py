"""Which campaign a run resumes: the same work, whole on this machine, that can still end well; nothing beside it."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.campaign import controller
from rackready.campaign.request import CampaignRequest
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths
from tests.unit.campaign.test_campaign import did, run

ALL = "node01,node02,node03"


def asked(root: Path, campaign: str, *, again: bool = False, full: bool = False) -> CampaignRequest:
    return CampaignRequest(
        campaign, "x", str(root), "validate", ("validate",), ("node01",), 8, (1,), 100, "d", again=again, full=full
    )


def progress(paths: EnvPaths, *campaigns: str, status: str = "PENDING") -> None:
    """Write the tables and columns of dbos that are read, as a killed controller leaves them."""
    with closing(sqlite3.connect(paths.workflows)) as file, file:
        file.execute("CREATE TABLE workflow_status (workflow_uuid TEXT, name TEXT, status TEXT)")
        file.execute("CREATE TABLE operation_outputs (workflow_uuid TEXT, error TEXT)")
        rows = [(name, "campaign", status) for name in campaigns]
        file.executemany("INSERT INTO workflow_status VALUES (?, ?, ?)", rows)


@pytest.mark.parametrize("option", ["again", "full"])
def test_a_campaign_with_an_option_is_not_resumed_by_one_without_it(tmp_path: Path, option: str) -> None:
    paths, said = EnvPaths(tmp_path, "x"), []
    ledger = Ledger.open(paths.database)
    controller._choose(paths, ledger, asked(tmp_path, "c1"), said.append)
    progress(paths, "c1")
    with_it = asked(tmp_path, "c2", **{option: True})
    assert controller._choose(paths, ledger, with_it, said.append) == (with_it, False)
    progress(paths, "c2")
    assert controller._choose(paths, ledger, asked(tmp_path, "c3", **{option: True}), said.append) == (with_it, True)
    without = asked(tmp_path, "c4")
    assert controller._choose(paths, ledger, without, said.append) == (without, False)


def test_a_campaign_of_an_older_release_was_no_full_one(tmp_path: Path) -> None:
    paths, said = EnvPaths(tmp_path, "x"), []
    ledger, first = Ledger.open(paths.database), asked(tmp_path, "c1")
    controller._choose(paths, ledger, first, said.append)
    old = first.plain()
    del old["full"]
    ledger.put_campaign("c1", summary={"request": old, "check": False})
    progress(paths, "c1")
    assert controller._choose(paths, ledger, asked(tmp_path, "c2"), said.append) == (first, True)


def test_a_campaign_of_other_phases_is_not_resumed(tmp_path: Path) -> None:
    """The proof behind a switch and a wave of an upgrade are of one kind."""
    paths, said = EnvPaths(tmp_path, "x"), []
    ledger, other = Ledger.open(paths.database), replace(asked(tmp_path, "c2"), phases=("install", "validate"))
    controller._choose(paths, ledger, asked(tmp_path, "c1"), said.append)
    progress(paths, "c1")
    assert controller._choose(paths, ledger, other, said.append) == (other, False)


@pytest.mark.parametrize(
    ("held", "status", "why"),
    [
        (("c0",), "PENDING", "how far it was is not on record on this machine"),
        (("c0", "c1"), "PENDING", "how far it was is not on record on this machine"),
        ((), "PENDING", "how far it was is not on record on this machine"),
        (("c1",), "ERROR", "a step of it ended with an error"),
        (("c1",), "CANCELLED", "a step of it ended with an error"),
        (("c1",), "MAX_RECOVERY_ATTEMPTS_EXCEEDED", "a step of it ended with an error"),
    ],
)
def test_it_is_not_resumed_from_a_file_that_cannot_carry_it_on_alone(
    tmp_path: Path, held: tuple[str, ...], status: str, why: str
) -> None:
    paths, said = EnvPaths(tmp_path, "x"), []
    ledger, anew = Ledger.open(paths.database), asked(tmp_path, "c2")
    controller._choose(paths, ledger, asked(tmp_path, "c1"), said.append)
    progress(paths, *held, status=status)
    assert controller._choose(paths, ledger, anew, said.append) == (anew, False)
    assert f"campaign c1 was cut off and is not resumed ({why}): a new one continues" in said[0]
    assert not paths.workflows.exists(), "the engine would take up what is pending there"


def test_a_damaged_file_is_not_resumed_from(tmp_path: Path) -> None:
    paths, said = EnvPaths(tmp_path, "x"), []
    ledger, anew = Ledger.open(paths.database), asked(tmp_path, "c2")
    controller._choose(paths, ledger, asked(tmp_path, "c1"), said.append)
    paths.workflows.write_bytes(b"no database " * 100)
    assert controller._choose(paths, ledger, anew, said.append) == (anew, False)
    assert "(its record of progress cannot be read)" in said[0]


def test_an_earlier_campaign_in_the_file_does_not_come_back_beside_the_one_on_record(tmp_path: Path) -> None:
    """The ledger names a campaign that another machine began; this machine's file has one that it superseded."""
    code, _ = run(tmp_path, "die:fabric")
    assert code == -signal.SIGKILL
    before = did(tmp_path)
    with closing(sqlite3.connect(EnvPaths(tmp_path, "x").database.file)) as tables, tables:
        assert tables.execute("UPDATE campaigns SET id = 'of-another'").rowcount == 1
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert "campaign of-another was cut off and is not resumed (how far it was is not on record" in text
    again = did(tmp_path)[len(before) :]
    assert (again.count(f"provision {ALL}"), again.count(f"fabric {ALL}")) == (1, 1)


def test_after_an_error_that_could_not_be_recorded_the_next_run_begins_anew(tmp_path: Path) -> None:
    """The engine keeps the error; the ledger, which failed, still calls the campaign running."""
    code, text = run(tmp_path, "torn:install")
    assert (code, "LedgerError: the ledger cannot be written" in text) == (2, True), text
    with closing(sqlite3.connect(EnvPaths(tmp_path, "x").database.file)) as tables, tables:
        assert tables.execute("UPDATE campaigns SET status = 'running'").rowcount == 1
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert "is not resumed (a step of it ended with an error)" in text
