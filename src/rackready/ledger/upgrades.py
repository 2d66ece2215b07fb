"""Upgrades in the ledger's database: one row each, replaced as a whole at every step."""

from __future__ import annotations

import time

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger
from rackready.model.upgrade import UpgradeRecord

metadata = sa.MetaData()

_upgrades = sa.Table(
    "upgrades",
    metadata,
    sa.Column("id", schema.KEY, primary_key=True),
    sa.Column("begun", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("written", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("record", sa.JSON, nullable=False),
)


def save(ledger: Ledger, record: UpgradeRecord) -> None:
    """Write an upgrade's record. Raises LedgerError."""
    ledger.make(metadata)
    values = {"written": time.time(), "record": record.model_dump(mode="json")}
    table = _upgrades
    try:
        with ledger.write() as connection:
            changed = connection.execute(sa.update(table).where(table.c.id == record.id).values(**values))
            if changed.rowcount == 0:
                connection.execute(sa.insert(table).values(id=record.id, begun=record.begun, **values))
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError.of([ledger.in_words(f"upgrade {record.id} cannot be recorded", error)]) from error


def upgrades(ledger: Ledger) -> list[UpgradeRecord]:
    """Return all upgrades, newest first. Raises LedgerError."""
    query = sa.select(_upgrades.c.record).order_by(_upgrades.c.begun.desc())
    with ledger.read() as connection:
        if not sa.inspect(connection).has_table(_upgrades.name):
            return []
        return [UpgradeRecord.model_validate(row.record) for row in connection.execute(query)]


def last(ledger: Ledger) -> UpgradeRecord | None:
    """Return the newest upgrade, None when there was none. Raises LedgerError."""
    return next(iter(upgrades(ledger)), None)
