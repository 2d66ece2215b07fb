"""What the ledger and the evidence store ask of the database that they lie in: a SQLite file (``sqlite``) or a PostgreSQL server (``postgres``)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from rackready.paths import Database


class Backend(Protocol):
    """One database. Everything in which SQLite and PostgreSQL differ is behind it; each has one module."""

    @property
    def home(self) -> Path:
        """The SQLite file, or where it would lie: what names this checkout's state on this machine."""

    @property
    def alone(self) -> bool:
        """Whether this machine alone writes to it: then files that belong to its records lie here, too."""

    @property
    def writable(self) -> str:
        """What a write needs, for messages."""

    @property
    def readable(self) -> str:
        """What a read needs, for messages."""

    def engine(self) -> sa.Engine:
        """Open it for writing, and make the ledger's tables when they are absent: whole or not at all. Raises LedgerError."""

    def reader(self) -> sa.Engine:
        """Open it for reading alone. Raises LedgerError when nothing was recorded yet."""

    def close(self, engine: sa.Engine) -> None:
        """Give back the connections of an engine."""

    def exists(self) -> bool:
        """Whether anything was ever recorded. Raises LedgerError when that cannot be known."""

    def make(self, engine: sa.Engine, metadata: sa.MetaData) -> None:
        """Make tables that are absent. Raises SQLAlchemyError."""

    def guard(self, connection: sa.Connection) -> None:
        """Called first in every transaction that writes: no other writes until it ends. Raises LedgerError when another controller works on these records."""

    def identity(self, engine: sa.Engine) -> str:
        """Return a name for this ledger: fencing tokens of another one are not comparable with its own."""

    def machine_of(self, engine: sa.Engine, boot_id: str) -> str:
        """Return the name of another machine whose controller ran in that boot; "" when it was this machine, or nobody knows."""

    def step(self, cause: str, *, reading: bool = False) -> str:
        """Return the next step after that error of the database."""

    def controller(self, what: str) -> AbstractContextManager[object]:
        """Be the one controller of these records. Raises ControllerBusyError."""

    def holder(self) -> str:
        """Return who is the controller of these records now, "" when nobody is. Raises LedgerError when that cannot be known."""


def backend_of(database: Database | Path) -> Backend:
    """Return the database that is meant: a path is a SQLite file. Raises SiteInvalidError for settings that are wrong."""
    if isinstance(database, Database) and database.settings.exists():
        from rackready.design.database import read_server  # noqa: PLC0415 - only where there is a server
        from rackready.ledger.postgres import Postgres  # noqa: PLC0415 - the same: its client library is loaded

        return Postgres(read_server(database.settings), database)
    from rackready.ledger.sqlite import SqliteFile  # noqa: PLC0415 - beside the other

    return SqliteFile(database.file if isinstance(database, Database) else database)
