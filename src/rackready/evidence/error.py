"""The error of the evidence store, in a module of its own because records and raw outputs raise it."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class EvidenceError(RackreadyError):
    """Evidence cannot be written, or stored evidence is not what was written."""
