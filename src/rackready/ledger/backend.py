"""The contract of the database below ledger and evidence: a SQLite file or a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

from rackready.paths import Database

if TYPE_CHECKING:
    from rackready.model.database import WorkerUse
    from rackready.model.object_store import SharedOutputs


class Backend(Protocol):
    """One database. It hides all differences between SQLite (``sqlite``) and PostgreSQL (``postgres``)."""

    @property
    def home(self) -> Path:
        """Return the path of the SQLite file, existing or not: the name of this checkout's state on this machine."""

    @property
    def alone(self) -> bool:
        """Return whether only this machine writes to it. Then the files that its records name are here, too."""

    @property
    def raw_outputs(self) -> SharedOutputs | None:
        """Return the place of raw outputs that all machines share, None when each keeps its own."""

    @property
    def workers(self) -> WorkerUse | None:
        """Return what worker processes are used for, None when the controller does all work itself."""

    @property
    def place(self) -> str:
        """Return file, or database and server, for messages."""

    @property
    def writable(self) -> str:
        """Return what a write needs, for messages."""

    @property
    def readable(self) -> str:
        """Return what a read needs, for messages."""

    def engine(self) -> sa.Engine:
        """Open it for writing, and make all the ledger's tables when they are absent. Raises LedgerError."""

    def reader(self) -> sa.Engine:
        """Open it read-only. Raises LedgerError when nothing was recorded yet."""

    def close(self, engine: sa.Engine) -> None:
        """Release the connections of an engine."""

    def exists(self) -> bool:
        """Return whether anything was recorded. Raises LedgerError when that cannot be known."""

    def make(self, engine: sa.Engine, metadata: sa.MetaData) -> None:
        """Make tables that are absent. Raises SQLAlchemyError."""

    def make_owned(self, engine: sa.Engine, wanted: Sequence[sa.MetaData]) -> None:
        """Make tables before they are needed, where later runs may lack the right. Raises SQLAlchemyError."""

    def guard(self, connection: sa.Connection) -> None:
        """Keep other writers out until the end of the transaction. Every transaction that writes calls it first.

        Raises LedgerError when another controller works on these records.
        """

    def identity(self, engine: sa.Engine) -> str:
        """Return a name for this ledger. Fencing tokens of different ledgers cannot be compared."""

    def machine_of(self, engine: sa.Engine, boot_id: str) -> str:
        """Return another machine whose controller ran in that boot, "" when it was this one or is not known."""

    def step(self, cause: BaseException, *, reading: bool = False) -> str:
        """Return the next step after that error of the database's client library."""

    def controller(self, what: str) -> AbstractContextManager[object]:
        """Be the only controller of these records in the context. Raises ControllerBusyError."""

    def holder(self) -> str:
        """Return the present controller of these records, "" for none. Raises LedgerError when that cannot be known."""


def backend_of(database: Database | Path) -> Backend:
    """Return the backend of a database; a path is a SQLite file. Raises SiteInvalidError for wrong settings."""
    if isinstance(database, Database) and database.settings.exists():
        from rackready.design.database import read_server  # noqa: PLC0415 - only where there is a server
        from rackready.ledger.postgres import Postgres  # noqa: PLC0415 - the same: its client library is loaded

        return Postgres(read_server(database.settings), database)
    from rackready.ledger.sqlite import SqliteFile  # noqa: PLC0415 - beside the other

    return SqliteFile(database.file if isinstance(database, Database) else database)
