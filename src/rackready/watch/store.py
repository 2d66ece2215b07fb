"""What watch remembers (``watch_tables``): places in journals, faults and how far each one came.

Only the one watch of an environment writes here (``lease``), so its transactions need no controller lock. A line of a
journal and the place after it are committed together: a restart neither loses a fault nor repeats one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger
from rackready.ledger.watch_tables import faults, marks, metadata, nodes

BEAT, OUTBOX = "beat", "outbox"
"""Marks: the watch's own sign of life; the number of tickets that the webhook has not taken."""

STORM = "storm"
"""The mark of a storm: ``active``, ``since``, ``limit``, ``fleet``; after its end ``cleared_at`` and ``reason``."""

_OPENED = "opened"
"""The mark by which tables of a watch are told from those that a deploy made for it."""

LEFT_AT = "left_at"
"""In the detail of a fault: when its node was left to the drain of somebody else."""
GOES_WITH = "goes_with"
"""In the detail of a recorded fault: the earlier one of the same part, whose drain and ticket count for both."""
_AGAIN_S = 60.0
"""A node that was left to somebody else's drain is looked at again when its fault comes again after so long, s."""


class Step(StrEnum):
    """How far a fault came."""

    SEEN = "seen"
    DRAINING = "draining"
    DRAINED = "drained"
    """Jobs are kept off its node, by us or by somebody else; or nothing is to be drained."""
    PROVEN = "proven"
    """Outputs are kept."""
    TICKETED = "ticketed"
    RECORDED = "recorded"
    """It asks for nothing more."""
    HELD = "held"
    """A storm: the node is not drained."""
    OVERTAKEN = "overtaken"
    """Somebody took the node out of production, or measured it, before watch acted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of ``watch_faults``."""

    id: int
    node: str
    epoch: int
    condition: str
    part: str
    slot: str
    actual: str
    act: str
    step: str
    why: str
    first_at: float
    last_at: float
    count: int
    boot_id: str
    cursor: str
    drained_at: float | None
    quarantined: bool
    ticket: str
    posted: str
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Return the reason of its drain: the condition's id comes first, as in the alert and in the ticket."""
        return f"{self.condition}: {self.node} {self.part}: {self.actual}"


@dataclass(frozen=True, slots=True)
class NodeWatch:
    """A row of ``watch_nodes``."""

    node: str
    cursor: str
    boot_id: str
    watched: bool
    why: str
    since: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A fault as it is recorded: where, what, and the place in the journal behind it ("" for what was polled)."""

    node: str
    condition: str
    part: str
    actual: str
    act: str
    slot: str = ""
    at: float = 0.0
    boot_id: str = ""
    cursor: str = ""


class WatchStore:
    """Reads and writes what watch remembers."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @classmethod
    def open(cls, ledger: Ledger) -> WatchStore:
        """Open it in the ledger's database, and make it when it is absent. Raises LedgerError."""
        ledger.make(metadata)
        store = cls(ledger)
        store.put_mark(_OPENED, {"at": time.time()})
        return store

    @classmethod
    def exists(cls, ledger: Ledger) -> bool:
        """Return whether watch ever ran here. A deploy on a server makes its tables, too, and leaves them empty."""
        with ledger.read() as connection:
            if not sa.inspect(connection).has_table(nodes.name):
                return False
            return connection.execute(sa.select(marks.c.name).limit(1)).first() is not None

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        try:
            with self.ledger.engine.begin() as connection:
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self.ledger.in_words("what watch saw cannot be written", error)]) from error

    def _rows(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        with self.ledger.read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    # nodes -------------------------------------------------------------------------------------------------------

    def node(self, node: str) -> NodeWatch | None:
        """Return what is known of a node's stream."""
        rows = self._rows(sa.select(nodes).where(nodes.c.node == node))
        return NodeWatch(**rows[0]) if rows else None

    def nodes(self) -> dict[str, NodeWatch]:
        """Return the streams of all nodes that are to be watched."""
        return {row["node"]: NodeWatch(**row) for row in self._rows(sa.select(nodes).order_by(nodes.c.node))}

    def put_node(self, node: str, **values: Any) -> None:
        """Record the state of a node's stream, or its place in the journal."""
        with self._write() as connection:
            _put_node(connection, node, values)

    def put_cursors(self, cursors: Mapping[str, str]) -> None:
        """Record how far journals were read, in one transaction."""
        with self._write() as connection:
            for node, cursor in cursors.items():
                _put_node(connection, node, {"cursor": cursor})

    def forget(self, gone: Sequence[str]) -> None:
        """Forget nodes that are not to be watched any more; their next watch begins anew."""
        with self._write() as connection:
            connection.execute(sa.delete(nodes).where(nodes.c.node.in_(list(gone))))

    # faults ------------------------------------------------------------------------------------------------------

    def record(
        self, seen: Sequence[Seen], epochs: Mapping[str, int], ready: Mapping[str, float] | None = None
    ) -> list[int]:
        """Record faults with the places in the journals behind them. Return the ids of those that are new.

        One that is open already is counted, and acted on again when it was overtaken before, or when its drain does not
        keep jobs off any more. ``ready``: since when nodes are in production.
        """
        new = []
        with self._write() as connection:
            for item in seen:
                if item.cursor:
                    _put_node(connection, item.node, {"cursor": item.cursor})
                if item.condition:
                    new += _record(connection, item, epochs.get(item.node, 1), (ready or {}).get(item.node))
        return new

    def put(self, fault: int, **values: Any) -> None:
        """Change columns of a fault."""
        with self._write() as connection:
            connection.execute(sa.update(faults).where(faults.c.id == fault).values(**values))

    def put_all(self, ids: Sequence[int], **values: Any) -> None:
        """Change columns of several faults together."""
        with self._write() as connection:
            connection.execute(sa.update(faults).where(faults.c.id.in_(list(ids))).values(**values))

    def fault(self, fault: int) -> Fault | None:
        """Return one fault."""
        return next(iter(self.faults(faults.c.id == fault)), None)

    def faults(self, *where: Any) -> list[Fault]:
        """Return faults, oldest first."""
        return [Fault(**row) for row in self._rows(sa.select(faults).where(*where).order_by(faults.c.id))]

    def at_step(self, *steps: Step) -> list[Fault]:
        """Return the faults at these steps, oldest first."""
        return self.faults(faults.c.step.in_([step.value for step in steps]))

    def drained_since(self, at: float) -> set[str]:
        """Return the nodes that watch drained, or was about to drain, since then."""
        rows = self._rows(sa.select(faults.c.node).where(faults.c.drained_at >= at))
        return {row["node"] for row in rows}

    # marks -------------------------------------------------------------------------------------------------------

    def mark(self, name: str) -> dict[str, Any]:
        """Return a mark, empty when there is none."""
        rows = self._rows(sa.select(marks.c.value).where(marks.c.name == name))
        return dict(rows[0]["value"]) if rows else {}

    def put_mark(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a mark."""
        with self._write() as connection:
            done = connection.execute(sa.update(marks).where(marks.c.name == name).values(value=dict(value)))
            if done.rowcount == 0:
                connection.execute(sa.insert(marks).values(name=name, value=dict(value)))

    def drop_marks(self, names: Sequence[str]) -> None:
        """Forget marks."""
        if names:
            with self._write() as connection:
                connection.execute(sa.delete(marks).where(marks.c.name.in_(list(names))))


def _put_node(connection: sa.Connection, node: str, values: Mapping[str, Any]) -> None:
    done = connection.execute(sa.update(nodes).where(nodes.c.node == node).values(**values))
    if done.rowcount == 0:
        new = {"cursor": "", "boot_id": "", "watched": False, "why": "", "since": time.time(), **values}
        connection.execute(sa.insert(nodes).values(node=node, **new))


def _record(connection: sa.Connection, item: Seen, epoch: int, ready: float | None) -> list[int]:
    """Count a fault that is open, or insert it; return its id when there is something to do about it."""
    same = [faults.c.node == item.node, faults.c.condition == item.condition, faults.c.part == item.part]
    query = sa.select(faults).where(*same, faults.c.epoch == epoch, faults.c.ticket != "closed")
    open_ = connection.execute(query.order_by(faults.c.id.desc()).limit(1)).mappings().first()
    if open_ is None:
        done = connection.execute(sa.insert(faults).values(**_new(item, epoch)))
        return [int((done.inserted_primary_key or (0,))[0])]
    again = open_["step"] == Step.OVERTAKEN or _lapsed(_leading(connection, dict(open_)), item, ready)
    values: dict[str, Any] = {"count": open_["count"] + 1, "last_at": max(open_["last_at"], item.at)}
    if again:
        values |= {"step": _first(item.act), "act": item.act, "why": "", "first_at": item.at}
        values |= {"drained_at": None, "quarantined": False}
    connection.execute(sa.update(faults).where(faults.c.id == open_["id"]).values(**values))
    return [int(open_["id"])] if again else []


def _leading(connection: sa.Connection, row: dict[str, Any]) -> dict[str, Any]:
    """Return the fault whose drain counts for one: its own row, or that of the earlier one that it goes with."""
    if row["act"] != "drain" or row["step"] != Step.RECORDED:
        return row
    query = sa.select(faults).where(faults.c.id == row["detail"].get(GOES_WITH))
    return dict(connection.execute(query).mappings().first() or {**row, "step": Step.OVERTAKEN.value})


def _lapsed(row: Mapping[str, Any], item: Seen, ready: float | None) -> bool:
    """Return whether a fault that was dealt with comes again on a node in production, which nothing of ours drains."""
    if ready is None or row["act"] != "drain":
        return False
    if row["step"] not in {Step.DRAINED, Step.PROVEN, Step.TICKETED}:
        return bool(row["step"] == Step.OVERTAKEN)
    if row["drained_at"] is not None:
        return bool(ready > row["drained_at"])
    return abs(item.at - float(row["detail"].get(LEFT_AT, 0.0))) >= _AGAIN_S


def _first(act: str) -> Step:
    return {"drain": Step.SEEN, "ticket": Step.DRAINED}.get(act, Step.RECORDED)


def _new(item: Seen, epoch: int) -> dict[str, Any]:
    return {
        "node": item.node,
        "epoch": epoch,
        "condition": item.condition,
        "part": item.part,
        "slot": item.slot,
        "actual": item.actual,
        "act": item.act,
        "step": _first(item.act),
        "why": "",
        "first_at": item.at,
        "last_at": item.at,
        "count": 1,
        "boot_id": item.boot_id,
        "cursor": item.cursor,
        "drained_at": None,
        "quarantined": False,
        "detail": {},
        "ticket": "",
        "posted": "",
    }
