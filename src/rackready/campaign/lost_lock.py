"""An error of a database that went: with it went the controller's lock, and its loss stops the campaign."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rackready.drivers.process import STOP, Interrupted
from rackready.ledger.backend import backend_of
from rackready.ledger.error import LedgerError
from rackready.paths import Database

_LOST_S = 15.0
"""How long the loss of the controller's lock may take to be seen after the database stopped answering."""


@contextmanager
def lost_lock_first(database: Database) -> Iterator[None]:
    """Raise Interrupted in place of LedgerError when the lock is lost, too, or its loss is seen in time.

    The workflow engine records a LedgerError as the step's end, and the campaign could only raise it again. The lock
    of a SQLite file is no connection that could break.
    """
    try:
        yield
    except LedgerError:
        if not backend_of(database).alone and STOP.wait(_LOST_S):
            raise Interrupted from None
        raise
