"""Errors of the simulated rack, for the person who starts it."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class SimError(RackreadyError):
    """The simulated rack could not be created, changed or removed."""


def describe(where: str, expected: str, actual: str, hint: str) -> SimError:
    """Return the error in the common form: where, Expected, Actual, next step."""
    return SimError(where, expected=expected, actual=actual.strip() or "nothing", next_step=hint)
