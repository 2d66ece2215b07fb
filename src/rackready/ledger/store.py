"""The ledger: intents and their ends, node states, progress events, child processes, campaigns. One SQLite file (or PostgreSQL)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState

CHANGE = "changed"
"""Operation under which every touch of a node is recorded: evidence from before it counts no longer."""

_LINES = 4096
"""Lines of progress that are read at once."""

UNFINISHED = frozenset({"running", "interrupted"})
"""States of a campaign that a later run may go on with."""


class LedgerError(RackreadyError):
    """The ledger cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One effect: ``status`` is intent (begun, its end unknown), done or failed."""

    token: int
    node: str
    operation: str
    desired: str
    epoch: int
    status: str
    observed: dict[str, Any]
    result: dict[str, Any]
    begun: float
    ended: float | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The state of one node."""

    name: str
    state: NodeState
    reason: str
    phase: str
    campaign: str
    epoch: int
    since: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One line of progress."""

    id: int
    campaign: str
    node: str
    phase: str
    level: str
    text: str
    at: float


class Ledger:
    """Reads and writes the record. Safe to use from several threads and processes."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @property
    def engine(self) -> sa.Engine:
        """The database, for the evidence store, which lives in the same file."""
        return self._engine

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open (and make when absent) the ledger in a SQLite file, readable by its owner alone.

        Raises LedgerError when the file cannot be made or written, e.g. because the disk is full.
        """
        try:
            if not path.exists():
                _make(path)
            engine = sa.create_engine(_url(path), connect_args={"timeout": 30, "check_same_thread": False})
            sa.event.listen(engine, "connect", _pragmas)
            schema.metadata.create_all(engine)
        except (OSError, sa.exc.SQLAlchemyError) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            message = f"{path}: the ledger cannot be written - Expected: a writable file Actual: {cause}. {_step(cause)}"
            raise LedgerError(message) from error
        return cls(engine)

    @classmethod
    def read_only(cls, path: Path) -> Ledger:
        """Open an existing ledger for reading. Raises LedgerError when there is none: nothing was ever deployed."""
        if not path.exists():
            message = f"{path}: no ledger - Expected: one made by a run Actual: none. Nothing was deployed from this checkout yet: run `rackready deploy`."
            raise LedgerError(message)
        url = sa.URL.create("sqlite", database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})
        return cls(sa.create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}))

    # effects -----------------------------------------------------------------------------------------------------

    def begin(self, node: str, operation: str, desired: str, observed: dict[str, Any]) -> Entry:
        """Commit the intent to do something, with what was observed before. Returns the entry with its fencing token."""
        epoch = self.epoch(node)
        values: dict[str, Any] = {
            "node": node,
            "operation": operation,
            "desired": desired,
            "epoch": epoch,
            "status": "intent",
            "observed": observed,
            "result": {},
            "begun": time.time(),
        }
        with self._write() as connection:
            token = _key(connection.execute(sa.insert(schema.operations).values(**values)))
        return Entry(token=token, ended=None, **values)

    def done(self, token: int, result: dict[str, Any] | None = None) -> None:
        """Commit that the effect of that token has happened."""
        self._end(token, "done", result or {})

    def failed(self, token: int, error: str) -> None:
        """Commit that the effect of that token surely did not happen or was undone."""
        self._end(token, "failed", {"error": error})

    def _end(self, token: int, status: str, result: dict[str, Any]) -> None:
        table = schema.operations
        with self._write() as connection:
            changed = connection.execute(
                sa.update(table).where(table.c.token == token, table.c.status == "intent").values(status=status, result=result, ended=time.time())
            )
        if changed.rowcount != 1:
            message = f"ledger: operation {token} - Expected: an open intent Actual: ended already. Another controller acted: run `rackready status`."
            raise LedgerError(message)

    def latest(self, node: str, operation: str, desired: str | None = None) -> Entry | None:
        """Return the newest entry of the node's present epoch for that operation (and desired digest, when given)."""
        table = schema.operations
        query = sa.select(table).where(table.c.node == node, table.c.operation == operation, table.c.epoch == self.epoch(node))
        if desired is not None:
            query = query.where(table.c.desired == desired)
        rows = self._rows(query.order_by(table.c.token.desc()).limit(1))
        return Entry(**rows[0]) if rows else None

    def entries(self, node: str | None = None) -> list[Entry]:
        """Return every entry, oldest first (of one node, when given)."""
        table = schema.operations
        query = sa.select(table).order_by(table.c.token)
        return [Entry(**row) for row in self._rows(query if node is None else query.where(table.c.node == node))]

    def last_change(self, node: str) -> float:
        """Return when the node was last changed, or may have been (seconds since 1970; 0.0: never in this epoch).

        A change that was begun and whose end is not known counts: what was measured before it is about another node.
        """
        changes = [entry for entry in self.entries(node) if entry.operation == CHANGE and entry.epoch == self.epoch(node) and entry.status != "failed"]
        return max((entry.ended or entry.begun for entry in changes), default=0.0)

    def change_begins(self, node: str, what: str) -> int:
        """Record that something is about to touch a node. One that was left open by a killed run is taken as having changed it."""
        before = self.latest(node, CHANGE)
        if before is not None and before.status == "intent":
            self.done(before.token, {"interrupted": True})
        return self.begin(node, CHANGE, what, {}).token

    # node states -------------------------------------------------------------------------------------------------

    def set_state(self, node: str, state: NodeState, reason: str = "", *, phase: str = "", campaign: str = "") -> None:
        """Record that a node is now in a state. Every change is also kept as a transition."""
        now = time.time()
        table = schema.nodes
        with self._write() as connection:
            before = connection.execute(sa.select(table).where(table.c.name == node)).mappings().first()
            moved = before is None or before["state"] != state.value
            since = now if before is None or moved else before["since"]
            values = {"state": state.value, "reason": reason, "phase": phase, "campaign": campaign, "since": since}
            if before is None:
                connection.execute(sa.insert(table).values(name=node, epoch=1, **values))
            else:
                connection.execute(sa.update(table).where(table.c.name == node).values(**values))
            if before is None or moved or before["reason"] != reason:
                connection.execute(sa.insert(schema.transitions).values(node=node, state=state.value, reason=reason, campaign=campaign, at=now))

    def states(self) -> list[NodeRow]:
        """Return the state of every node that was ever recorded, by name."""
        rows = self._rows(sa.select(schema.nodes).order_by(schema.nodes.c.name))
        return [
            NodeRow(name=row["name"], state=NodeState(row["state"]), **{key: row[key] for key in ("reason", "phase", "campaign", "epoch", "since")})
            for row in rows
        ]

    def state(self, node: str) -> NodeRow | None:
        """Return the state of one node, None when it was never recorded."""
        return next((row for row in self.states() if row.name == node), None)

    def epoch(self, node: str) -> int:
        """Return the node's epoch (1 when nothing was recorded yet)."""
        rows = self._rows(sa.select(schema.nodes.c.epoch).where(schema.nodes.c.name == node))
        return int(rows[0]["epoch"]) if rows else 1

    def raise_epoch(self, node: str, reason: str) -> int:
        """Begin a new epoch of a node (repair, drift, declared repeat): earlier entries count no longer. Returns it."""
        self.set_state(node, (row.state if (row := self.state(node)) else NodeState.DECLARED), reason)
        with self._write() as connection:
            connection.execute(sa.update(schema.nodes).where(schema.nodes.c.name == node).values(epoch=schema.nodes.c.epoch + 1))
        return self.epoch(node)

    # progress ----------------------------------------------------------------------------------------------------

    def event(self, campaign: str, node: str, phase: str, text: str, level: str = "info") -> None:
        """Append one line of progress (level: info, ok, warn, error)."""
        with self._write() as connection:
            connection.execute(sa.insert(schema.events).values(campaign=campaign, node=node, phase=phase, level=level, text=text, at=time.time()))

    def events(self, campaign: str, after: int = 0) -> list[EventRow]:
        """Return the progress of a campaign that came after the event of that id."""
        table = schema.events
        return [EventRow(**row) for row in self._rows(sa.select(table).where(table.c.campaign == campaign, table.c.id > after).order_by(table.c.id))]

    def progress(self, campaign: str) -> Iterator[EventRow]:
        """Yield the whole progress of a campaign, in order, some thousand lines at a time."""
        table, after = schema.events, 0
        while True:
            query = sa.select(table).where(table.c.campaign == campaign, table.c.id > after).order_by(table.c.id).limit(_LINES)
            found = [EventRow(**row) for row in self._rows(query)]
            yield from found
            if len(found) < _LINES:
                return
            after = found[-1].id

    # campaigns and children --------------------------------------------------------------------------------------

    def put_campaign(self, campaign: str, **values: Any) -> None:
        """Insert a campaign, or update the columns given."""
        table = schema.campaigns
        with self._write() as connection:
            if connection.execute(sa.select(table.c.id).where(table.c.id == campaign)).first():
                connection.execute(sa.update(table).where(table.c.id == campaign).values(**values))
            else:
                connection.execute(sa.insert(table).values(id=campaign, **{"begun": time.time(), "summary": {}, **values}))

    def campaigns(self) -> list[dict[str, Any]]:
        """Return all campaigns, newest first."""
        return self._rows(sa.select(schema.campaigns).order_by(schema.campaigns.c.begun.desc()))

    def supersede(self, node: str) -> list[str]:
        """Record that no campaign that was cut off with this node in it is gone on with. Returns them."""
        cut_off = [row["id"] for row in self.campaigns() if row["status"] in UNFINISHED and node in row["nodes"]]
        for campaign in cut_off:
            self.put_campaign(campaign, status="superseded", ended=time.time())
        return cut_off

    def child_begun(self, pid: int, start_ticks: int, boot_id: str, what: str) -> int:
        """Record a child process that leads a session of its own. Returns the row's id."""
        with self._write() as connection:
            values = {"pid": pid, "start_ticks": start_ticks, "boot_id": boot_id, "what": what, "begun": time.time()}
            return _key(connection.execute(sa.insert(schema.children).values(**values)))

    def child_ended(self, row: int) -> None:
        """Record that a child is gone."""
        with self._write() as connection:
            connection.execute(sa.update(schema.children).where(schema.children.c.id == row).values(ended=time.time()))

    def open_children(self) -> list[dict[str, Any]]:
        """Return the children whose end was never recorded."""
        return self._rows(sa.select(schema.children).where(schema.children.c.ended.is_(None)))

    def close(self) -> None:
        """Give back the connections."""
        with suppress(sa.exc.SQLAlchemyError):
            self._engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            message = f"the ledger cannot be written - Expected: a writable file Actual: {error.orig}. {_step(error.orig)}"
            raise LedgerError(message) from error

    def _rows(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        try:
            with self._engine.connect() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]
        except sa.exc.SQLAlchemyError as error:
            message = f"the ledger cannot be read - Expected: a ledger of this version Actual: {error.__cause__ or error}. Run `rackready doctor`."
            raise LedgerError(message) from error


def _make(path: Path) -> None:
    """Make the file whole or not at all: `rackready status` may look at any moment, and a kill must leave no half-made ledger."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        fresh.touch(mode=0o600)
        engine = sa.create_engine(_url(fresh))
        schema.metadata.create_all(engine)
        engine.dispose()
        with suppress(FileExistsError):  # another process was quicker
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _url(path: Path) -> sa.URL:
    """Return the address of a file of any name: a `?` in it begins no options."""
    return sa.URL.create("sqlite", database=str(path))


def _step(cause: object) -> str:
    """Return the next step: room does not mend a file that is damaged."""
    damaged = any(words in str(cause) for words in ("not a database", "malformed"))
    return "Run `rackready doctor`, which says what to do." if damaged else "Free disk space or correct its owner, then run again."


def _key(result: sa.CursorResult[Any]) -> int:
    return int((result.inserted_primary_key or (0,))[0])


def _pragmas(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DB-API connection
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
