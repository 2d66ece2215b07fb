"""What can be wrong with the record; a module of its own, since both backends and the ledger raise it."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class LedgerError(RackreadyError):
    """The ledger cannot be read or written."""


class ControllerBusyError(RackreadyError):
    """Another controller works on the same site."""
