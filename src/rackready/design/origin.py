"""Where each part of an explicit document was written in the compact file, so that a problem names the place that a person can correct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Loc = tuple[str | int, ...]
Chain = tuple[Loc, ...]
"""Places that make up one item: the item as written, then the templates that it takes, nearest first."""


class Origins:
    """``lists`` says for each written list (by its place in the file) the chain of every item that it became."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.lists: dict[Loc, list[Chain]] = {}

    def written(self, loc: Sequence[str | int]) -> Loc:
        """Translate a place of the explicit document to the place in the file. What an overlay added keeps its place."""
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
        """Return where a key of an item stands: in the item itself, else in the nearest template that has it."""
        return tuple((*loc, key) for loc in chain if self._has(loc, key)) or ((*chain[0], key),)

    def _has(self, loc: Loc, key: str) -> bool:
        here: Any = self.raw
        for step in loc:
            try:
                here = here[step]
            except (KeyError, IndexError, TypeError):
                return False
        return isinstance(here, dict) and key in here


def path_text(steps: Sequence[str | int]) -> str:
    """Return a path as people read it: ``racks[2].nodes[7].bmc.address``."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text
