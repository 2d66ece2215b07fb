"""The ledger in a SQLite file: one machine, one controller, with an flock beside the file."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.error import LedgerError, client_error
from rackready.paths import private_dir

if TYPE_CHECKING:
    from rackready.model.database import WorkerUse
    from rackready.model.object_store import SharedOutputs

_ARGS = {"timeout": 30, "check_same_thread": False}
_PRIMARY = 0xFF
"""Bits of SQLite's result code that say what happened; the others say where."""
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
_DISK = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A SQLite file, readable by its owner alone."""

    home: Path
    alone: bool = True
    writable: str = "a writable file"
    readable: str = "a ledger of this version"
    raw_outputs: SharedOutputs | None = None
    workers: WorkerUse | None = None

    @property
    def place(self) -> str:
        """Return the file's path."""
        return str(self.home)

    def engine(self) -> sa.Engine:
        """Open the file, and make it when it is absent. Raises LedgerError: a full disk, an emptied file."""
        try:
            private_dir(self.home.parent)
            if not self.home.exists():
                _make(self.home)
            self._not_emptied()
            engine = sa.create_engine(_url(self.home), connect_args=_ARGS)
            sa.event.listen(engine, "connect", _pragmas)
            with engine.connect() as connection:
                self._not_emptied(sa.inspect(connection).get_table_names())
            self.make(engine, schema.metadata)
            _add_indexes(engine)
        except (OSError, sa.exc.SQLAlchemyError) as error:
            cause = client_error(error)
            raise LedgerError(
                self.home,
                "the ledger cannot be written",
                expected=self.writable,
                actual=cause,
                next_step=self.step(cause),
            ) from error
        return engine

    def reader(self) -> sa.Engine:
        """Open the file read-only."""
        if not self.exists():
            raise LedgerError(
                self.home,
                "no ledger",
                expected="one made by a run",
                actual="none",
                next_step="Nothing was deployed from this checkout yet: run `rackready deploy`.",
            )
        self._not_emptied()
        url = sa.URL.create("sqlite", database=f"file:{quote(str(self.home))}", query={"mode": "ro", "uri": "true"})
        return sa.create_engine(url, connect_args=_ARGS)

    def _not_emptied(self, tables: Collection[str] | None = None) -> None:
        """Raise LedgerError for a file that lost its content: an empty ledger would hide every fail on record.

        A ledger is made with all its tables, or not at all.
        """
        if self.home.is_dir():
            step = "Move the folder away, then run again."
            raise LedgerError(self.home, "no ledger", expected="a file", actual="a folder", next_step=step)
        if self.home.stat().st_size and (tables is None or set(tables) & set(schema.metadata.tables)):
            return
        step = (
            "Restore it from a backup (docs/howto/ledger-backup.md); without one, move it away: every node then "
            "begins from the start, and quarantines and evidence are lost."
        )
        raise LedgerError(self.home, "no ledger in it", expected="the tables of one", actual="none", next_step=step)

    def close(self, engine: sa.Engine) -> None:
        """Close the file."""
        engine.dispose()

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self.home.exists()

    def make(self, engine: sa.Engine, metadata: sa.MetaData) -> None:
        """Make tables that are absent. Of two processes at once, the second finds them made."""
        with engine.begin() as connection:
            if not metadata.tables.keys() <= set(sa.inspect(connection).get_table_names()):
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                metadata.create_all(connection)

    def make_owned(self, engine: sa.Engine, wanted: Sequence[sa.MetaData]) -> None:
        """Do nothing: a file has one owner, who makes tables when they are needed."""

    def guard(self, connection: sa.Connection) -> None:
        """Keep other writers out from here on: what the transaction reads first still holds when it writes.

        There is no other controller: the flock beside the file keeps it away.
        """
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def identity(self, _engine: sa.Engine) -> str:
        """Return a name made of machine and file."""
        return hashlib.sha256(f"{socket.gethostname()} {self.home} {self.home.stat().st_ino}".encode()).hexdigest()[:16]

    def machine_of(self, _engine: sa.Engine, _boot_id: str) -> str:
        """Return "": no other machine writes here."""
        return ""

    def step(self, cause: BaseException, *, reading: bool = False) -> str:
        """Return the next step: free space does not help a damaged file."""
        code = getattr(cause, "sqlite_errorcode", 0) & _PRIMARY
        if code in _DAMAGED:
            return "Run `rackready doctor`: it shows the next step."
        if code in _DISK:
            return "Free disk space there (`df`), check `dmesg` for errors of its disk, then run again."
        return "Run `rackready doctor`." if reading else "Free disk space or correct its owner, then run again."

    def controller(self, _what: str) -> AbstractContextManager[object]:
        """Return an empty context: the flock is enough."""
        return nullcontext()

    def holder(self) -> str:
        """Return "": only the flock has a holder."""
        return ""


def _add_indexes(engine: sa.Engine) -> None:
    """Make the indexes that the file of an earlier release lacks. Of two processes at once, the second finds them."""
    with engine.connect() as connection:
        if not schema.lacking(connection):
            return
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        for index in schema.lacking(connection):
            index.create(connection)


def _make(path: Path) -> None:
    """Make the whole file or none: `rackready status` may read at any moment, and a kill must leave no half ledger."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        fresh.touch(mode=0o600)
        engine = sa.create_engine(_url(fresh))
        schema.metadata.create_all(engine)
        engine.dispose()
        with suppress(FileExistsError):  # another process was quicker
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _url(path: Path) -> sa.URL:
    """Return the URL of a file of any name: a `?` in it begins no options."""
    return sa.URL.create("sqlite", database=str(path))


def _pragmas(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DB-API connection
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
