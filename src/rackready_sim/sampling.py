"""Choosing some of many losses to rehearse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Return all items, or ``most`` of them in even steps."""
    if len(items) <= most:
        return list(items)
    return [items[place * len(items) // most] for place in range(most)]
