"""Errors of readers that do not understand an output."""

from __future__ import annotations

TWICE = "the output of one command is wanted"
"""End of the message about two reports in one output: the second may be from another node or another time."""


class FormatError(ValueError):
    """An output is of unknown format or incomplete; the text gives the reason."""


class TwoReportsError(FormatError):
    """An output contains two reports."""
