"""Proofs in the ledger's database: what a play of each node recorded, sealed, and every proof that was tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.append_only import append_only
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger

metadata = sa.MetaData()

_records = sa.Table(
    "proof_records",
    metadata,
    sa.Column("node", schema.KEY, primary_key=True),
    sa.Column("phase", schema.KEY, primary_key=True),
    sa.Column("mode", schema.KEY, primary_key=True, comment="play, or dry for a dry run"),
    sa.Column("release", sa.String, nullable=False, comment="keyed digest of everything that the play came from"),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False, comment="end of the play, seconds since the epoch"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="its steps, encrypted with this machine's key"),
)
_proofs = sa.Table(
    "proofs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("campaign", schema.KEY, nullable=False, index=True),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("phase", sa.String, nullable=False),
    sa.Column("mode", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("release", sa.String, nullable=False),
    sa.Column("same", sa.Boolean, nullable=False),
    sa.Column("reason", sa.String, nullable=False, comment="why the node was played, empty when it was as released"),
    sa.Column("raw", sa.String, nullable=False, comment="hash of the stored answer of the node, empty without one"),
)
append_only(_proofs)


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """What a play that changed nothing left behind, sealed."""

    node: str
    phase: str
    mode: str
    release: str
    epoch: int
    at: float
    sealed: bytes


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One proof that was tried."""

    campaign: str
    node: str
    phase: str
    mode: str
    at: float
    release: str
    same: bool
    reason: str
    raw: str


def keep_record(ledger: Ledger, record: ProofRecord) -> None:
    """Write a record in the place of the node's last one. Raises LedgerError."""
    values = {name: getattr(record, name) for name in ProofRecord.__slots__}
    same = [_records.c[name] == values[name] for name in ("node", "phase", "mode")]
    with _writing(ledger) as connection:  # no delete: a role that does not own the tables may not
        if connection.execute(sa.update(_records).where(*same).values(**values)).rowcount == 0:
            connection.execute(sa.insert(_records).values(**values))


def record_of(ledger: Ledger, node: str, phase: str, mode: str) -> ProofRecord | None:
    """Return the node's record, None when there is none. Raises LedgerError."""
    table = _records
    query = sa.select(table).where(table.c.node == node, table.c.phase == phase, table.c.mode == mode)
    rows = _read(ledger, table, query)
    return ProofRecord(**rows[0]) if rows else None


def append_proof(ledger: Ledger, row: ProofRow) -> None:
    """Append a proof. Raises LedgerError."""
    with _writing(ledger) as connection:
        connection.execute(sa.insert(_proofs).values(**{name: getattr(row, name) for name in ProofRow.__slots__}))


def proofs_of(ledger: Ledger, node: str) -> list[ProofRow]:
    """Return every proof that was tried on a node, newest first. Raises LedgerError."""
    query = sa.select(_proofs).where(_proofs.c.node == node).order_by(_proofs.c.id.desc())
    return [
        ProofRow(**{key: value for key, value in row.items() if key != "id"}) for row in _read(ledger, _proofs, query)
    ]


def _read(ledger: Ledger, table: sa.Table, query: sa.Select[Any]) -> list[dict[str, Any]]:
    try:
        with ledger.read() as connection:
            if not sa.inspect(connection).has_table(table.name):
                return []
            return [dict(row) for row in connection.execute(query).mappings()]
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError.of([ledger.in_words("proofs cannot be read", error, reading=True)]) from error


@contextmanager
def _writing(ledger: Ledger) -> Iterator[sa.Connection]:
    ledger.make(metadata)
    try:
        with ledger.write() as connection:
            yield connection
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError.of([ledger.in_words("a proof cannot be recorded", error)]) from error
