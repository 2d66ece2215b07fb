"""The tables, as a database that outlives this version of the code has them."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from rackready.evidence import store
from rackready.ledger import postgres, postgres_lock, schema

OF_VERSION = (1, "f41bf225001ab68d")


def test_changed_tables_have_another_version() -> None:
    """A database of earlier tables is refused by its version alone: raise schema.VERSION with the change, and note both here."""
    made = [
        table
        for metadata in (schema.metadata, store._metadata, postgres._metadata, postgres_lock.metadata)
        for table in metadata.sorted_tables
    ]
    text = "".join(str(CreateTable(table).compile(dialect=postgresql.dialect())) for table in made)
    text += "".join(
        f"{index.name} {[column.name for column in index.columns]}"
        for table in made
        for index in sorted(table.indexes, key=index_name)
    )
    assert (schema.VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == OF_VERSION


def index_name(index: sa.Index) -> str:
    return str(index.name)
