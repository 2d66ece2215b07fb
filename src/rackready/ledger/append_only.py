"""Makes the database itself refuse that a row is changed or removed, in SQLite and in PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa

_REFUSAL = "evidence is append-only"

_FUNCTION = f"""
CREATE OR REPLACE FUNCTION rackready_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{_REFUSAL}: % of % is refused', lower(TG_OP), TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', HINT = 'Measure again: what was recorded is never changed or removed.';
END $$
""".replace("%", "%%")
"""``%%``: SQLAlchemy's DDL takes it for one ``%``."""


def append_only(table: sa.Table) -> None:
    """Guard a table from the moment in which it is made."""
    for verb in ("UPDATE", "DELETE"):
        name = f"{table.name}_no_{verb.lower()}"
        _after(table, "sqlite", f"CREATE TRIGGER IF NOT EXISTS {name} BEFORE {verb} ON {table.name} BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END")
    _after(table, "postgresql", _FUNCTION)
    for verb in ("UPDATE", "DELETE", "TRUNCATE"):
        name = f"{table.name}_no_{verb.lower()}"
        trigger = f"CREATE TRIGGER {name} BEFORE {verb} ON {table.name} FOR EACH STATEMENT EXECUTE FUNCTION rackready_append_only()"
        _after(table, "postgresql", trigger)


def _after(table: sa.Table, dialect: str, statement: str) -> None:
    ddl = sa.DDL(statement)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    sa.event.listen(table, "after_create", ddl.execute_if(dialect=dialect))
