"""The one way in which a reader says that it does not understand."""

from __future__ import annotations

TWICE = "the output of one command is wanted"
"""How a reader ends that finds two reports in one output: the second may be of another node, or of another time."""


class FormatError(ValueError):
    """The output is not in a format that is known, or not complete; the text says what was missing."""


class TwoReportsError(FormatError):
    """There are two reports in one output."""
