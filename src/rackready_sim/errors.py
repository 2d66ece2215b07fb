"""Errors of the simulated rack, worded for the person who brings it up."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class SimError(RackreadyError):
    """The simulated rack could not be made, changed or removed."""


def describe(where: str, expected: str, actual: str, hint: str) -> SimError:
    """Return the error in the one form that all of them have: where, Expected, Actual, next step."""
    return SimError(f"{where} - Expected: {expected} Actual: {actual.strip() or 'nothing'}. {hint}")
