"""Names that exist, for the error about one that does not: those near it first, and never a page of them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from rackready.model.host_list import host_list

NEAR = 4
"""Number of near names that a message shows."""
_FEW = 8
"""Up to so many names a message shows all of them."""
_LONGEST = 120
"""Characters of a host list that a message shows whole."""
_CUTOFF = 0.6
"""Likeness by difflib's ratio, its own default: `dgx_h10` is 0.93 of `dgx_h100`, `gb300_nvl72` 0.44."""


CORRECT = "Correct the name: `rackready status` lists the nodes."
"""Next step for a node that the site does not have."""


def near(wanted: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return up to four of the known names that are most like the wanted ones, of which the first two count."""
    names = list(known)
    found = (name for text in islice(wanted, 2) for name in get_close_matches(text, names, NEAR, _CUTOFF))
    return list(islice(dict.fromkeys(found), NEAR))


def among(known: Iterable[str], *wanted: str) -> str:
    """Return names to choose from: all where they are few, else those near the wanted ones and how many there are.

    ``dgx_h100, dgx_h200 and 22 more``
    """
    names = list(dict.fromkeys(known))
    if len(names) <= _FEW:
        return ", ".join(names) or "none"
    shown = near(wanted, names) or names[:NEAR]
    more = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


def hosts_among(known: Iterable[str], *wanted: str) -> str:
    """Return hosts to choose from: one by one where they are few, else ``folded``."""
    names = list(dict.fromkeys(known))
    return among(names) if len(names) <= _FEW else folded(names, *wanted)


def folded(known: Iterable[str], *wanted: str) -> str:
    """Return hosts to choose from as a host list, ``gpu[001-512]``; as ``among`` where that would be long."""
    names = list(dict.fromkeys(known))
    text = host_list(names)
    return text if 0 < len(text) <= _LONGEST else among(names, *wanted)
