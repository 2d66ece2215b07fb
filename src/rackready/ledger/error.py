"""Errors of the ledger, in a module of their own because both backends and the ledger raise them."""

from __future__ import annotations

import sqlalchemy as sa

from rackready.model.problems import RackreadyError


class LedgerError(RackreadyError):
    """The ledger cannot be read or written."""


class ControllerBusyError(RackreadyError):
    """Another controller works on the same site."""


def client_error(error: BaseException) -> BaseException:
    """Return the error of the database's client library that SQLAlchemy wraps, else the error itself."""
    return error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error
