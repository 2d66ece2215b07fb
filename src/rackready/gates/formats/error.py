"""The one way in which a reader says that it does not understand."""

from __future__ import annotations


class FormatError(ValueError):
    """The output is not in a format that is known, or not complete; the text says what was missing."""
