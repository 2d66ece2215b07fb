"""Redundancy groups of supplies, fans or pumps in a BMC's answer.

DSP0268: Redundancy.RedundantGroup, and the older Redundancy.Mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackready.gates.bmc import words
from rackready.gates.bmc.documents import Document, numeric, parts

NONE = words.NOT_REDUNDANT


def groups(newer: Iterable[Document], key: str, older: Iterable[Document] = ()) -> list[Document]:
    """Return the redundancy groups of a subsystem and of the older schema.

    ``key``: PowerSupplyRedundancy, FanRedundancy or PumpRedundancy.
    """
    return [group for document in newer for group in parts(document, key)] + [
        group for document in older for group in parts(document, "Redundancy")
    ]


def kind(group: Document) -> str | None:
    """Return a group's kind of redundancy, NotRedundant among them, or None when it reports none.

    A word that Redfish does not define is returned as it is.
    """
    said = (group[key] for key in ("RedundancyType", "Mode") if group.get(key) is not None)
    return next((str(word) for word in said), None)


def strange(group: Document) -> bool:
    """Return whether a group reports its redundancy in a word that Redfish does not define."""
    return kind(group) not in {None, NONE} | words.SPARE_KINDS


def spares(found: Sequence[Document]) -> bool:
    """Return whether a group reports spares."""
    return any(kind(group) in words.SPARE_KINDS for group in found)


def needed(found: Sequence[Document]) -> int:
    """Return how many parts must be in use by what the groups report.

    At least one: a running machine takes its power or coolant from somewhere.
    """
    said = (numeric(group.get(key)) for group in found for key in ("MinNeededInGroup", "MinNumNeeded"))
    return max([1, *(int(least) for least in said if least is not None)])
