"""Errors of the ledger, in a module of their own because both backends and the ledger raise them."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class LedgerError(RackreadyError):
    """The ledger cannot be read or written."""


class ControllerBusyError(RackreadyError):
    """Another controller works on the same site."""
