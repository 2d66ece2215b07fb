"""The error of a release that cannot be made or used."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class ReleaseError(RackreadyError):
    """A release cannot be made, or one of its objects is damaged or missing."""
