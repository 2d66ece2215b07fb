"""Maps parts of the explicit document to their places in the compact file, so that problems name an editable place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Loc = tuple[str | int, ...]
Chain = tuple[Loc, ...]
"""Places that make up one item: the item in the file, then its templates, nearest first."""


class Origins:
    """``lists``: for each list of the file (by its path), the chain of every item that it became."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.lists: dict[Loc, list[Chain]] = {}

    def written(self, loc: Sequence[str | int]) -> Loc:
        """Return the place in the file of a place in the explicit document. Parts of an overlay keep their place."""
        chain: Chain = ((),)
        for place, step in enumerate(loc):
            if isinstance(step, int):
                items = self.lists.get(chain[0])
                if items is None:
                    chain = ((*chain[0], step),)
                elif step < len(items):
                    chain = items[step]
                else:
                    return (*chain[0], *loc[place:])
            else:
                chain = self.descend(chain, step)
        return chain[0]

    def descend(self, chain: Chain, key: str) -> Chain:
        """Return where a key of an item is set: in the item itself, else in the nearest template that has it."""
        return tuple((*loc, key) for loc in chain if self._has(loc, key)) or ((*chain[0], key),)

    def _has(self, loc: Loc, key: str) -> bool:
        here: Any = self.raw
        for step in loc:
            try:
                here = here[step]
            except (KeyError, IndexError, TypeError):
                return False
        return isinstance(here, dict) and key in here
