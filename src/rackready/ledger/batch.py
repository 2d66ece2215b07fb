"""States, lines of progress and changes of many nodes: read together, and written in one transaction.

A transaction for each row would cost a batch of 512 nodes two thousand commits, each of which waits for the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.evidence_mark import mark
from rackready.ledger.rows import NodeRow, words
from rackready.ledger.store import CHANGE, Ledger, open_intent
from rackready.model.state import NodeState

_AT_ONCE = 500
"""Nodes that one query names: SQLite takes 999 values and more, PostgreSQL 65,535."""


class Batch:
    """The records of some nodes within one transaction. What is recorded here is read here, and written at its end.

    Its functions of the same name do what those of ``Ledger`` do.
    """

    def __init__(self, connection: sa.Connection, nodes: Sequence[str]) -> None:
        self._connection, self._nodes = connection, list(nodes)
        found = schema.nodes.c
        columns = [found[name] for name in NodeRow.__slots__]
        self._rows = {
            row.name: NodeRow(row.name, NodeState(row.state), *row[2:]) for row in self._of(columns, found.name)
        }
        self._before = dict(self._rows)
        self._events: list[dict[str, Any]] = []
        self._transitions: list[dict[str, Any]] = []
        self._ends: dict[int, dict[str, Any]] = {}

    def state(self, node: str) -> NodeRow | None:
        """Return the state of one of the nodes, None when it is not on record."""
        return self._rows.get(node)

    def set_state(self, node: str, state: NodeState, reason: str = "", *, phase: str = "", campaign: str = "") -> None:
        """Record the state of a node. Every change is kept as a transition, too."""
        now, reason, before = time.time(), words(reason), self._rows.get(node)
        moved = before is None or before.state is not state
        if before is None:
            self._rows[node] = NodeRow(node, state, reason, phase, campaign, 1, now)
        else:
            since = now if moved else before.since
            self._rows[node] = replace(before, state=state, reason=reason, phase=phase, campaign=campaign, since=since)
        if before is None or moved or before.reason != reason:
            self._transitions.append(
                {"node": node, "state": state.value, "reason": reason, "campaign": campaign, "at": now}
            )

    def event(self, campaign: str, node: str, phase: str, text: str, level: str = "info") -> None:
        """Append one line of progress."""
        row = {"campaign": campaign, "node": node, "phase": phase, "level": level, "text": words(text)}
        self._events.append({**row, "at": time.time()})

    def changes_begin(self, what: str) -> dict[str, int]:
        """Record that something is about to change every node, and return node -> its token.

        A change that a killed run left open is taken as done.
        """
        table, epochs = schema.operations, {node: row.epoch for node, row in self._rows.items()}
        last = sa.func.max(table.c.token).label("token")
        columns = [table.c.node, table.c.epoch, last]
        newest = self._of(columns, table.c.node, table.c.operation == CHANGE, by=(table.c.node, table.c.epoch))
        open_ = self._open(row.token for row in newest if row.epoch == epochs.get(row.node, 1))
        for token in open_:
            self.done(token, {"interrupted": True})
        self._end()
        observed = mark(self._connection)
        common = {"operation": CHANGE, "desired": what, "status": "intent", "observed": observed, "result": {}}
        rows = [{"node": node, "epoch": epochs.get(node, 1), "begun": time.time(), **common} for node in self._nodes]
        made = self._connection.execute(sa.insert(table).returning(table.c.node, table.c.token), rows) if rows else ()
        return {row.node: row.token for row in made}

    def done(self, token: int, result: dict[str, Any] | None = None) -> None:
        """Record that the effect of that token has happened."""
        self._ends[token] = {"status": "done", "result": result or {}}

    def failed(self, token: int, error: str) -> None:
        """Record that the effect of that token surely did not happen, or was undone."""
        self._ends[token] = {"status": "failed", "result": {"error": error}}

    def write(self) -> None:
        """Write what is recorded. Raises LedgerError when an effect has ended already."""
        self._end()
        rows = [
            asdict(row) | {"state": row.state.value} for node, row in self._rows.items() if node not in self._before
        ]
        changed = [row for node, row in self._rows.items() if row != self._before.get(node, row)]
        for table, new in (
            (schema.nodes, rows),
            (schema.transitions, self._transitions),
            (schema.events, self._events),
        ):
            if new:
                self._connection.execute(sa.insert(table), new)
        if changed:
            kept = ("state", "reason", "phase", "campaign", "since")
            query = sa.update(schema.nodes).where(schema.nodes.c.name == sa.bindparam("of"))
            query = query.values({name: sa.bindparam(f"new_{name}") for name in kept})
            self._connection.execute(query, [_named(row, kept) for row in changed])

    def _end(self) -> None:
        """Write the ends of effects."""
        table, ends = schema.operations, self._ends
        if not ends:
            return
        self._ends = {}
        still = self._open(ends)
        for token in ends:
            if token not in still:
                raise open_intent(token)
        query = sa.update(table).where(table.c.token == sa.bindparam("of"))
        query = query.values(status=sa.bindparam("status_"), result=sa.bindparam("result_"), ended=time.time())
        values = [{"of": token, "status_": end["status"], "result_": end["result"]} for token, end in ends.items()]
        self._connection.execute(query, values)

    def _open(self, tokens: Any) -> set[int]:  # noqa: ANN401 - any iterable of tokens
        """Return those of the tokens whose effect has no end on record."""
        table, wanted = schema.operations, list(tokens)
        out: set[int] = set()
        for some in _cut(wanted):
            query = sa.select(table.c.token).where(table.c.token.in_(some), table.c.status == "intent")
            out.update(self._connection.execute(query).scalars())
        return out

    def _of(
        self,
        columns: Sequence[Any],
        node: sa.ColumnElement[str],
        *where: sa.ColumnElement[bool],
        by: Sequence[Any] = (),
    ) -> list[Any]:
        """Return the rows of the nodes."""
        out: list[Any] = []
        for some in _cut(self._nodes):
            query = sa.select(*columns).where(node.in_(some), *where)
            out += self._connection.execute(query.group_by(*by) if by else query).all()
        return out


@contextmanager
def batch(ledger: Ledger, nodes: Sequence[str]) -> Iterator[Batch]:
    """Yield the records of nodes, and write what was recorded at the end: all or nothing. Raises LedgerError."""
    with ledger.writing() as connection:
        records = Batch(connection, nodes)
        yield records
        records.write()


def _cut(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


def _named(row: NodeRow, kept: Sequence[str]) -> Mapping[str, Any]:
    values = {f"new_{name}": getattr(row, name) for name in kept}
    return {"of": row.name, **values, "new_state": row.state.value}
