"""Kinds of findings for gates, of ours and of other packages (docs/howto/extend.md). They live in ``model``."""

from __future__ import annotations

from rackready.model.finding_kinds import KINDS, ErrorKind, FailKind, FindingKind, Kinds, NotRunKind

__all__ = ["KINDS", "ErrorKind", "FailKind", "FindingKind", "Kinds", "NotRunKind"]
