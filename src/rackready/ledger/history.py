"""The states that a node came to, with the reasons for them."""

from __future__ import annotations

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.rows import StateRow
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState


def history(ledger: Ledger, node: str) -> list[StateRow]:
    """Return the states of a node and the reasons for them, oldest first. Raises LedgerError."""
    table = schema.transitions
    with ledger.read() as connection:
        rows = connection.execute(sa.select(table).where(table.c.node == node).order_by(table.c.id)).mappings().all()
    return [StateRow(NodeState(row["state"]), row["reason"], row["campaign"], row["at"]) for row in rows]
