"""The connection of a ledger: opens its database, and reads and writes it with errors in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from rackready.ledger.backend import Backend, backend_of
from rackready.ledger.error import LedgerError, client_error
from rackready.model.printable import visible
from rackready.model.problems import Message
from rackready.paths import Database

_SAID = 300
"""Characters of a database's message that are shown."""


class Connected:
    """An open database. Safe to use from several threads and processes."""

    def __init__(self, backend: Backend, engine: sa.Engine) -> None:
        self.backend = backend
        self._engine = engine

    @classmethod
    def open(cls, database: Database | Path) -> Self:
        """Open the ledger of an environment, and make it when it is absent. A path is a SQLite file.

        Raises LedgerError when it cannot be made or written, e.g. because the disk is full or the server does not
        answer.
        """
        backend = backend_of(database)
        return cls(backend, backend.engine())

    @classmethod
    def read_only(cls, database: Database | Path) -> Self:
        """Open an existing ledger for reading. Raises LedgerError when there is none, because nothing was deployed."""
        backend = backend_of(database)
        return cls(backend, backend.reader())

    @staticmethod
    def exists(database: Database | Path) -> bool:
        """Return whether there is a ledger. Raises LedgerError when its server does not answer."""
        return backend_of(database).exists()

    @property
    def engine(self) -> sa.Engine:
        """Return the database engine."""
        return self._engine

    @property
    def alone(self) -> bool:
        """Return whether only this machine writes here. Then the files that its records name are here, too."""
        return self.backend.alone

    @property
    def home(self) -> Path:
        """Return the path of the ledger's file, existing or not: the name of this checkout's state on this machine."""
        return self.backend.home

    def identity(self) -> str:
        """Return a name for this ledger. Fencing tokens of different ledgers cannot be compared."""
        return self.backend.identity(self._engine)

    def machine_of(self, boot_id: str) -> str:
        """Return another machine whose controller ran in that boot, "" when it was this one or is not known."""
        return self.backend.machine_of(self._engine, boot_id)

    def __enter__(self) -> Self:
        """Return the ledger; it is closed at the end of the ``with``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the ledger."""
        self.close()

    def close(self) -> None:
        """Release the connections."""
        with suppress(sa.exc.SQLAlchemyError):
            self.backend.close(self._engine)

    def make(self, metadata: sa.MetaData) -> None:
        """Make more tables beside the ledger's, if they are absent. Raises LedgerError."""
        try:
            self.backend.make(self._engine, metadata)
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self.in_words("the database cannot be written", error)]) from error

    def make_owned(self, wanted: Sequence[sa.MetaData]) -> None:
        """Make tables before they are needed, where a role with fewer rights may need them. Raises LedgerError."""
        try:
            self.backend.make_owned(self._engine, wanted)
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self.in_words("the database cannot be written", error)]) from error

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Yield a transaction that commits as a whole at its end, or not at all.

        Raises LedgerError when another controller works on these records.
        """
        with self._engine.begin() as connection:
            self.backend.guard(connection)
            yield connection

    def in_words(self, what: str, error: sa.exc.SQLAlchemyError, *, reading: bool = False) -> Message:
        """Return the message about an error of the database, with the next step."""
        cause = client_error(error)
        said = visible(" ".join(str(cause).split()).removesuffix("."))
        if len(said) > _SAID:  # SQLite quotes a damaged value whole
            said = f"{said[:_SAID]}..."
        expected = self.backend.readable if reading else self.backend.writable
        return Message(self.backend.place, what, expected, said, self.backend.step(cause, reading=reading))

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Yield the same transaction. Raises LedgerError for an error of the database, too."""
        try:
            with self.write() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self.in_words("the ledger cannot be written", error)]) from error

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yield a connection for reading. Raises LedgerError."""
        try:
            with self._engine.connect() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self.in_words("the ledger cannot be read", error, reading=True)]) from error

    def _rows(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        with self.read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
