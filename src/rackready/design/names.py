"""Shortens long lists in messages to the first items and the number of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHOWN = 8


def listed(names: Iterable[object], shown: int = SHOWN) -> str:
    """Return names for a sentence: ``a, b, c and 5 more``; ``none`` if there are none."""
    every = [str(name) for name in names]
    more = f" and {len(every) - shown:,} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more if every else "none"


def block(title: str, lines: Sequence[str], shown: int) -> list[str]:
    """Return a title with the number of lines, the first lines, and the number of others; empty without lines."""
    if not lines:
        return []
    more = [f"  and {len(lines) - shown:,} more"] if len(lines) > shown else []
    return [f"{title} ({len(lines):,})", *(f"  {line}" for line in lines[:shown]), *more]
