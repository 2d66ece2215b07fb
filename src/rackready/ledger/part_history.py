"""Parts on their way to vendors and back, and gates that a neighbour's repair voids: append-only, in the ledger."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.append_only import append_only
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState

SENT, LISTED, ACCUSED, RETURNED, RETIRED = "sent", "listed", "accused", "returned", "retired"
"""Events of a part: in a node that leaves for its vendor; in a node that came back; accused by a finding; in a node
again after that; retired."""

metadata = sa.MetaData()

_parts = sa.Table(
    "part_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("case", sa.String, nullable=False),
    sa.Column("node", schema.KEY, nullable=False, index=True),
    sa.Column("event", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False, comment="gpu, nic, memory module, ..."),
    sa.Column("serial", schema.KEY, nullable=False, index=True),
    sa.Column("place", sa.String, nullable=False),
    sa.Column("number", sa.String, nullable=False, comment="part number"),
    sa.Column("why", sa.String, nullable=False),
)
_voids = sa.Table(
    "gate_voids",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("node", schema.KEY, nullable=False, index=True),
    sa.Column("gate", sa.String, nullable=False),
    sa.Column("why", sa.String, nullable=False),
)
append_only(_parts)
append_only(_voids)


@dataclass(frozen=True, slots=True)
class PartEvent:
    """One event of a part with a serial number. ``at``: s since 1970; ``place``: where it sits in the node."""

    at: float
    case: str
    node: str
    event: str
    kind: str
    serial: str
    place: str = ""
    number: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class GateVoid:
    """A gate of a node whose earlier evidence does not count, because something beside the node was changed."""

    node: str
    gate: str
    why: str
    at: float


def append(ledger: Ledger, events: Sequence[PartEvent], voids: Sequence[GateVoid] = ()) -> None:
    """Append events of parts and voids of gates, all or nothing. Raises LedgerError."""
    ledger.make(metadata)
    try:
        with ledger.write() as connection:
            for table, rows in ((_parts, events), (_voids, voids)):
                if rows:
                    connection.execute(sa.insert(table), [asdict(row) for row in rows])
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError.of([ledger.in_words("the history of parts cannot be written", error)]) from error


def events_of(ledger: Ledger, *, node: str = "", serials: Collection[str] | None = None) -> list[PartEvent]:
    """Return the events of parts, oldest first: of a node, or of these serial numbers in any node."""
    query = sa.select(_parts).order_by(_parts.c.id)
    if node:
        query = query.where(_parts.c.node == node)
    if serials is not None:
        query = query.where(_parts.c.serial.in_(list(serials)))
    return [PartEvent(**{name: row[name] for name in PartEvent.__slots__}) for row in _rows(ledger, _parts, query)]


def retired_serials(ledger: Ledger, serials: Iterable[str]) -> dict[str, list[PartEvent]]:
    """Return serial -> its events, for those of the serials that are retired."""
    out: dict[str, list[PartEvent]] = {}
    for event in events_of(ledger, serials=set(serials)):
        out.setdefault(event.serial, []).append(event)
    return {serial: events for serial, events in out.items() if any(item.event == RETIRED for item in events)}


def last_listed(ledger: Ledger, node: str) -> list[PartEvent]:
    """Return the parts in a node when it came back last; none when it never did. One return has one time."""
    listed = [event for event in events_of(ledger, node=node) if event.event == LISTED]
    return [event for event in listed if event.at == listed[-1].at] if listed else []


def void_since(ledger: Ledger, node: str) -> Mapping[str, GateVoid]:
    """Return gate -> why, and since when, its evidence does not count on a node.

    Nothing while the node is in production: a neighbour's repair alone takes no node from its jobs. Its gates are due
    as soon as it has left production for any reason, and it does not come back without them.
    """
    found = every_void(ledger, node)
    row = ledger.state(node) if found else None  # reads every node: not for each of thousands without a void
    return {} if row is not None and row.state is NodeState.READY else found


def every_void(ledger: Ledger, node: str) -> Mapping[str, GateVoid]:
    """Return the same of a node in any state."""
    rows = _rows(ledger, _voids, sa.select(_voids).where(_voids.c.node == node).order_by(_voids.c.id))
    return {row["gate"]: GateVoid(row["node"], row["gate"], row["why"], row["at"]) for row in rows}


def now() -> float:
    """Return the time of an event, s since 1970."""
    return time.time()


def _rows(ledger: Ledger, table: sa.Table, query: sa.Select[Any]) -> list[Mapping[str, Any]]:
    with ledger.read() as connection:
        if not sa.inspect(connection).has_table(table.name):
            return []
        return [dict(row) for row in connection.execute(query).mappings()]
