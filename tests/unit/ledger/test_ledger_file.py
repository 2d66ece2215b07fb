"""Where a ledger may lie."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.ledger.sqlite import SqliteFile
from rackready.ledger.store import Ledger, LedgerError
from rackready.model.state import NodeState


def test_a_ledger_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "rack 1#%20?x"
    folder.mkdir()
    Ledger.open(folder / "s.sqlite").set_state("node01", NodeState.READY)
    assert [row.name for row in Ledger.read_only(folder / "s.sqlite").states()] == ["node01"]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


DISK = "Free disk space there (`df`), check `dmesg` for errors of its disk, then run again."
DOCTOR = "Run `rackready doctor`: it shows the next step."


@pytest.mark.parametrize("reading", [True, False])
@pytest.mark.parametrize(
    ("code", "step"),
    [
        (sqlite3.SQLITE_FULL, DISK),
        (sqlite3.SQLITE_IOERR, DISK),
        (sqlite3.SQLITE_IOERR_FSYNC, DISK),
        (sqlite3.SQLITE_NOTADB, DOCTOR),
        (sqlite3.SQLITE_CORRUPT, DOCTOR),
        (sqlite3.SQLITE_CORRUPT_INDEX, DOCTOR),
    ],
)
def test_the_code_of_sqlite_and_not_its_words_chooses_the_step(
    code: int,
    step: str,
    reading: bool,  # noqa: FBT001 - a case
    tmp_path: Path,
) -> None:
    error = sqlite3.OperationalError("in words of another release")
    error.sqlite_errorcode = code
    assert SqliteFile(tmp_path / "state.sqlite").step(error, reading=reading) == step


@pytest.mark.parametrize(
    ("reading", "step"),
    [(True, "Run `rackready doctor`."), (False, "Free disk space or correct its owner, then run again.")],
)
@pytest.mark.parametrize("error", [sqlite3.OperationalError("no such table: disk is full"), PermissionError("no")])
def test_an_error_without_such_a_code_has_another_step(
    error: Exception,
    reading: bool,  # noqa: FBT001 - a case
    step: str,
    tmp_path: Path,
) -> None:
    assert SqliteFile(tmp_path / "state.sqlite").step(error, reading=reading) == step


def test_a_file_that_fills_its_disk_has_the_code(tmp_path: Path) -> None:
    """SQLite's own error, through SQLAlchemy: a limit on the file's pages is a full disk to it."""
    with Ledger.open(tmp_path / "state.sqlite") as ledger:
        sa.event.listen(ledger.engine, "begin", lambda one: one.exec_driver_sql("PRAGMA max_page_count=1"))
        with pytest.raises(LedgerError) as caught:
            ledger.set_state("node01", NodeState.READY, "x" * 100_000)
    assert str(caught.value) == (
        f"{tmp_path}/state.sqlite: the ledger cannot be written - Expected: a writable file "
        f"Actual: database or disk is full. {DISK}"
    )
