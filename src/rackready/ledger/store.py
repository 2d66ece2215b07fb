"""The ledger: intents and their ends, node states, progress events, child processes, campaigns."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.connected import Connected
from rackready.ledger.error import LedgerError
from rackready.ledger.evidence_mark import LastChange, mark, newest_mark
from rackready.ledger.progress import newest_events
from rackready.ledger.rows import DETAIL, FAILED, IMPORT, EventRow, LedgerEntry, NodeRow, words
from rackready.model.state import NodeState

__all__ = [
    "CHANGE",
    "DETAIL",
    "FAILED",
    "IMPORT",
    "PAUSED",
    "UNFINISHED",
    "EventRow",
    "Ledger",
    "LedgerEntry",
    "LedgerError",
    "NodeRow",
    "put_campaign",
]

CHANGE = "changed"
"""Operation that records every change of a node: evidence from before it does not count any more."""

_LINES = 4096
"""Lines of progress in one query."""

PAUSED = "paused"
"""Status of a deploy that a second terminal asked to pause: only `rackready deploy --resume` goes on."""
UNFINISHED = frozenset({"running", "interrupted"})
"""States of a campaign that a later run may resume."""


class Ledger(Connected):
    """Reads and writes the record. Safe to use from several threads and processes."""

    # effects -----------------------------------------------------------------------------------------------------

    def begin(self, node: str, operation: str, desired: str, observed: dict[str, Any]) -> LedgerEntry:
        """Commit the intent of an effect, with what was observed before. Return the entry with its fencing token."""
        values: dict[str, Any] = {
            "node": node,
            "operation": operation,
            "desired": desired,
            "epoch": self.epoch(node),
            "status": "intent",
            "observed": observed,
            "result": {},
            "begun": time.time(),
        }
        with self.writing() as connection:
            token = _key(connection.execute(sa.insert(schema.operations).values(**values)))
        return LedgerEntry(token=token, ended=None, **values)

    def done(self, token: int, result: dict[str, Any] | None = None) -> None:
        """Commit that the effect of that token has happened."""
        self._end(token, "done", result or {})

    def failed(self, token: int, error: str) -> None:
        """Commit that the effect of that token surely did not happen, or was undone."""
        self._end(token, "failed", {"error": error})

    def _end(self, token: int, status: str, result: dict[str, Any]) -> None:
        table = schema.operations
        with self.writing() as connection:
            changed = connection.execute(
                sa.update(table)
                .where(table.c.token == token, table.c.status == "intent")
                .values(status=status, result=result, ended=time.time())
            )
        if changed.rowcount != 1:
            raise open_intent(token)

    def latest(self, node: str, operation: str, desired: str = "", *, every_epoch: bool = False) -> LedgerEntry | None:
        """Return the newest entry of an operation (of one desired digest, when given), of the node's present epoch."""
        table = schema.operations
        wanted = [table.c.node == node, table.c.operation == operation]
        wanted += [] if every_epoch else [table.c.epoch == self.epoch(node)]
        wanted += [table.c.desired == desired] if desired else []
        rows = self._rows(sa.select(table).where(*wanted).order_by(table.c.token.desc()).limit(1))
        return LedgerEntry(**rows[0]) if rows else None

    def interrupted(self, operation: str) -> frozenset[str]:
        """Return the nodes on which such an effect was begun, in any epoch, and not recorded as ended."""
        table = schema.operations
        return frozenset(
            row["node"]
            for row in self._rows(
                sa.select(table.c.node).where(table.c.operation == operation, table.c.status == "intent")
            )
        )

    def entries(self, node: str | None = None) -> list[LedgerEntry]:
        """Return every entry, oldest first (of one node, when given)."""
        table = schema.operations
        query = sa.select(table).order_by(table.c.token)
        return [LedgerEntry(**row) for row in self._rows(query if node is None else query.where(table.c.node == node))]

    def last_change(self, node: str) -> LastChange:
        """Return when the node was last changed, or may have been, and the evidence of before, in its present epoch.

        A change that was begun and whose end is not known counts: evidence from before it is about another node.
        """
        table = schema.operations
        query = sa.select(table).where(
            table.c.node == node,
            table.c.operation == CHANGE,
            table.c.epoch == self.epoch(node),
            table.c.status != "failed",
        )
        changes = [LedgerEntry(**row) for row in self._rows(query)]
        return LastChange(max((entry.ended or entry.begun for entry in changes), default=0.0), newest_mark(changes))

    def change_begins(self, node: str, what: str) -> int:
        """Record that something is about to change a node, and return its token.

        A change that a killed run left open is taken as done.
        """
        before = self.latest(node, CHANGE)
        if before is not None and before.status == "intent":
            self.done(before.token, {"interrupted": True})
        with self.read() as connection:
            observed = mark(connection)
        return self.begin(node, CHANGE, what, observed).token

    # node states -------------------------------------------------------------------------------------------------

    def set_state(self, node: str, state: NodeState, reason: str = "", *, phase: str = "", campaign: str = "") -> None:
        """Record the state of a node. Every change is kept as a transition, too."""
        now, reason = time.time(), words(reason)
        table = schema.nodes
        with self.writing() as connection:
            before = connection.execute(sa.select(table).where(table.c.name == node)).mappings().first()
            moved = before is None or before["state"] != state.value
            since = now if before is None or moved else before["since"]
            values = {"state": state.value, "reason": reason, "phase": phase, "campaign": campaign, "since": since}
            if before is None:
                connection.execute(sa.insert(table).values(name=node, epoch=1, **values))
            else:
                connection.execute(sa.update(table).where(table.c.name == node).values(**values))
            if before is None or moved or before["reason"] != reason:
                connection.execute(
                    sa.insert(schema.transitions).values(
                        node=node, state=state.value, reason=reason, campaign=campaign, at=now
                    )
                )

    def states(self) -> list[NodeRow]:
        """Return the state of every node on record, by name."""
        return self._states()

    def state(self, node: str) -> NodeRow | None:
        """Return the state of one node, None when it is not on record."""
        return next(iter(self._states(schema.nodes.c.name == node)), None)

    def _states(self, *where: sa.ColumnElement[bool]) -> list[NodeRow]:
        found = schema.nodes.c
        columns = (found.name, found.state, found.reason, found.phase, found.campaign, found.epoch, found.since)
        query = sa.select(*columns).where(*where).order_by(found.name)
        with self.read() as connection:
            rows = connection.execute(query).all()
            return [NodeRow(name, NodeState(state), *rest) for name, state, *rest in rows]

    def epoch(self, node: str) -> int:
        """Return the node's epoch (1 when it is not on record)."""
        rows = self._rows(sa.select(schema.nodes.c.epoch).where(schema.nodes.c.name == node))
        return int(rows[0]["epoch"]) if rows else 1

    def raise_epoch(self, node: str, reason: str) -> int:
        """Begin a new epoch of a node (repair, drift, declared repeat) and return it. Earlier entries count no more."""
        self.set_state(node, (row.state if (row := self.state(node)) else NodeState.DECLARED), reason)
        with self.writing() as connection:
            connection.execute(
                sa.update(schema.nodes).where(schema.nodes.c.name == node).values(epoch=schema.nodes.c.epoch + 1)
            )
        return self.epoch(node)

    # progress ----------------------------------------------------------------------------------------------------

    def event(self, campaign: str, node: str, phase: str, text: str, level: str = "info") -> None:
        """Append one line of progress (level: detail, info, ok, warn, fail, error)."""
        values = {
            "campaign": campaign,
            "node": node,
            "phase": phase,
            "level": level,
            "text": words(text),
            "at": time.time(),
        }
        with self.writing() as connection:
            connection.execute(sa.insert(schema.events).values(**values))

    def events(self, campaign: str, after: int = 0) -> list[EventRow]:
        """Return the progress of a campaign after the event of that id."""
        table = schema.events
        return [
            EventRow(**row)
            for row in self._rows(
                sa.select(table).where(table.c.campaign == campaign, table.c.id > after).order_by(table.c.id)
            )
        ]

    def newest_events(self, campaign: str) -> dict[str, EventRow]:
        """Return node -> its newest line of progress in a campaign."""
        with self.read() as connection:
            return newest_events(connection, campaign)

    def last_event(self, campaign: str) -> int:
        """Return the id of the newest line of progress of a campaign, 0 when it has none."""
        table = schema.events
        with self.read() as connection:
            found = connection.execute(sa.select(sa.func.max(table.c.id)).where(table.c.campaign == campaign))
            return int(found.scalar() or 0)

    def progress(self, campaign: str) -> Iterator[EventRow]:
        """Yield the whole progress of a campaign, in order, some thousand lines at a time."""
        table, after = schema.events, 0
        while True:
            query = (
                sa.select(table)
                .where(table.c.campaign == campaign, table.c.id > after)
                .order_by(table.c.id)
                .limit(_LINES)
            )
            found = [EventRow(**row) for row in self._rows(query)]
            yield from found
            if len(found) < _LINES:
                return
            after = found[-1].id

    # campaigns and children --------------------------------------------------------------------------------------

    def put_campaign(self, campaign: str, **values: Any) -> None:
        """Insert a campaign, or update the given columns."""
        with self.writing() as connection:
            put_campaign(connection, campaign, **values)

    def campaigns(self, *, status: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Return all campaigns (of these states, when given), newest first."""
        query = sa.select(schema.campaigns).order_by(schema.campaigns.c.begun.desc())
        return self._rows(query if status is None else query.where(schema.campaigns.c.status.in_(status)))

    def campaign_heads(self) -> list[dict[str, Any]]:
        """Return the same of all, without nodes and summary: these are megabytes each where there are many nodes."""
        table = schema.campaigns
        head = [column for column in table.c if column not in {table.c.nodes, table.c.summary}]
        return self._rows(sa.select(*head).order_by(table.c.begun.desc()))

    def campaign_nodes(self, campaign: str) -> list[str]:
        """Return the nodes that a campaign was asked for; none when it is not on record."""
        table = schema.campaigns
        rows = self._rows(sa.select(table.c.nodes).where(table.c.id == campaign))
        return list(rows[0]["nodes"]) if rows else []

    def supersede(self, *nodes: str) -> list[str]:
        """Record that interrupted campaigns with any of these nodes are not resumed, and return them."""
        cut_off = [row["id"] for row in self.campaigns(status=UNFINISHED) if not set(nodes).isdisjoint(row["nodes"])]
        for campaign in cut_off:
            self.put_campaign(campaign, status="superseded", ended=time.time())
        return cut_off

    def child_begun(self, pid: int, start_ticks: int, boot_id: str, what: str) -> int:
        """Record a child process that leads a session of its own. Returns the row's id."""
        with self.writing() as connection:
            values = {"pid": pid, "start_ticks": start_ticks, "boot_id": boot_id, "what": what, "begun": time.time()}
            return _key(connection.execute(sa.insert(schema.children).values(**values)))

    def child_ended(self, row: int) -> None:
        """Record that a child is gone."""
        with self.writing() as connection:
            connection.execute(sa.update(schema.children).where(schema.children.c.id == row).values(ended=time.time()))

    def open_children(self) -> list[dict[str, Any]]:
        """Return the children without a recorded end."""
        return self._rows(sa.select(schema.children).where(schema.children.c.ended.is_(None)))


def open_intent(token: int) -> LedgerError:
    """Return the error of an effect that is to end and has ended already."""
    return LedgerError(
        "ledger",
        f"operation {token}",
        expected="an open intent",
        actual="ended already",
        next_step="Another controller acted: run `rackready status`.",
    )


def put_campaign(connection: sa.Connection, campaign: str, **values: Any) -> None:
    """Insert a campaign, or update the given columns, within a transaction."""
    table = schema.campaigns
    if connection.execute(sa.select(table.c.id).where(table.c.id == campaign)).first():
        connection.execute(sa.update(table).where(table.c.id == campaign).values(**values))
    else:
        connection.execute(sa.insert(table).values(id=campaign, **{"begun": time.time(), "summary": {}, **values}))


def _key(result: sa.CursorResult[Any]) -> int:
    return int((result.inserted_primary_key or (0,))[0])
