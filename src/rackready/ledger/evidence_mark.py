"""Which evidence a change of a node found on record. Ids of evidence grow whatever the clock says, times do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from rackready.ledger.rows import LedgerEntry

EVIDENCE = "evidence"
"""Table of the evidence store, which makes it with its first record (evidence/store.py)."""
_MARK = "evidence"
"""Key in what was observed before a change. Changes of older releases lack it."""


class LastChange(NamedTuple):
    """The last change of a node in its present epoch."""

    at: float
    """When it ended, or began if its end is not known, in s since 1970; 0.0: there was none."""
    before: str
    """Id of the newest evidence, of any node, that it found on record, "" for none. That evidence is about the node
    before it, even if it was written while the clock was ahead."""


def mark(connection: sa.Connection) -> dict[str, str]:
    """Return what a change that begins now observed: the newest evidence, of any node. Nothing where there is none."""
    if not sa.inspect(connection).has_table(EVIDENCE):
        return {}
    newest = connection.execute(sa.select(sa.func.max(sa.column("id"))).select_from(sa.table(EVIDENCE))).scalar()
    return {_MARK: str(newest)} if newest else {}


def newest_mark(changes: Iterable[LedgerEntry]) -> str:
    """Return the id of the newest evidence that a node's changes found on record, "" for none."""
    return max((str(entry.observed.get(_MARK, "")) for entry in changes), default="")
