"""The tables, as a database that outlives this version of the code has them."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from rackready.evidence import store
from rackready.ledger import postgres, postgres_lock, schema

TABLES = Path(__file__).with_name(f"tables_{schema.VERSION}.sql")


def test_changed_tables_have_another_version() -> None:
    """Databases of earlier tables are refused by their version alone."""
    raised = "the tables changed: raise schema.VERSION, and keep the new tables beside this test as tables_VERSION.sql"
    assert statements() == TABLES.read_text(encoding="utf-8"), raised


def statements() -> str:
    """Return the SQL statements that make the tables and indexes on PostgreSQL."""
    made = [
        table
        for metadata in (schema.metadata, store.metadata, postgres._metadata, postgres_lock.metadata)
        for table in metadata.sorted_tables
    ]
    found: list[CreateTable | CreateIndex] = []
    for table in made:
        found += [CreateTable(table), *(CreateIndex(index) for index in sorted(table.indexes, key=index_name))]
    text = ";\n".join(str(one.compile(dialect=postgresql.dialect())).strip() for one in found)
    return "\n".join(line.rstrip() for line in f"{text};\n".splitlines()) + "\n"


def index_name(index: sa.Index) -> str:
    return str(index.name)
