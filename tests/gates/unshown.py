"""Kinds of findings that no gate test shows, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.gates.finding_kinds import KINDS, FindingKind
from rackready.gates.registry import all_gates

NO_TEST_SHOWS: Mapping[str, str] = {}
"""Code -> why no test shows it."""


def product_kinds() -> dict[str, FindingKind]:
    """Return every kind of finding of ours by its code, sorted; tests declare some for themselves (``test-...``)."""
    all_gates()  # imports every module that declares some
    return {code: kind for code, kind in sorted(KINDS.items()) if not code.startswith("test-")}
