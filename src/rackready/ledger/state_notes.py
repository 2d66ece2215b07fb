"""Notes on states that a node reached, each with the time of the look that made it: a later run carries them on."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.rows import words
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState

OPERATION = "state-note"


@dataclass(frozen=True, slots=True)
class StateNote:
    """What was found when the node reached a state. ``at``: of that look, seconds since 1970."""

    text: str
    at: float


Notes = Mapping[str, Mapping[NodeState, StateNote]]
"""Node -> state -> its note."""


def notes_of(ledger: Ledger, nodes: Collection[str]) -> dict[str, dict[NodeState, StateNote]]:
    """Return the newest notes of nodes. Raises LedgerError."""
    table = schema.operations
    query = sa.select(table.c.node, table.c.desired, table.c.observed).where(table.c.operation == OPERATION)
    out: dict[str, dict[NodeState, StateNote]] = {node: {} for node in nodes}
    with ledger.read() as connection:
        for node, state, seen in connection.execute(query.order_by(table.c.token)):
            if node in out:
                out[node][NodeState(state)] = StateNote(str(seen["text"]), float(seen["at"]))
    return out


def keep(ledger: Ledger, notes: Notes) -> None:
    """Record notes, all or nothing. Raises LedgerError."""
    epochs, now = {row.name: row.epoch for row in ledger.states()}, time.time()
    rows = [
        {
            "node": node,
            "operation": OPERATION,
            "desired": state.value,
            "epoch": epochs.get(node, 1),
            "status": "done",
            "observed": {"text": words(note.text), "at": note.at},
            "result": {},
            "begun": now,
            "ended": now,
        }
        for node, found in notes.items()
        for state, note in found.items()
    ]
    if rows:
        with ledger.writing() as connection:
            connection.execute(sa.insert(schema.operations), rows)
