"""Makes the database refuse to change or remove rows, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

_REFUSAL = "evidence is append-only"
_HINT = "Measure again: what was recorded is never changed or removed."

_FUNCTION = f"""
CREATE OR REPLACE FUNCTION rackready_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{_REFUSAL}: % of % is refused', lower(TG_OP), TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', HINT = '{_HINT}';
END $$
""".replace("%", "%%")
"""``%%``: SQLAlchemy's DDL makes one ``%`` of it."""


_VERBS = {"sqlite": ("UPDATE", "DELETE"), "postgresql": ("UPDATE", "DELETE", "TRUNCATE")}

_TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')",
}


def append_only(table: sa.Table) -> None:
    """Guard a table from the moment it is made."""
    _after(table, "postgresql", _FUNCTION)
    for verb in _VERBS["sqlite"]:
        _after(
            table,
            "sqlite",
            f"CREATE TRIGGER IF NOT EXISTS {_name(table, verb)} BEFORE {verb} ON {table.name} BEGIN SELECT "
            f"RAISE(ABORT, '{_REFUSAL}'); END",
        )
    for verb in _VERBS["postgresql"]:
        guard = (
            f"CREATE TRIGGER {_name(table, verb)} BEFORE {verb} ON {table.name} FOR EACH STATEMENT EXECUTE FUNCTION "
            "rackready_append_only()"
        )
        _after(table, "postgresql", guard)


def lifted(connection: sa.Connection, tables: Iterable[sa.Table]) -> list[str]:
    """Return the names of guards that are missing or switched off."""
    dialect = connection.dialect.name
    there = set(connection.execute(sa.text(_TRIGGERS[dialect])).scalars())
    return [name for table in tables for verb in _VERBS[dialect] if (name := _name(table, verb)) not in there]


def _name(table: sa.Table, verb: str) -> str:
    return f"{table.name}_no_{verb.lower()}"


def _after(table: sa.Table, dialect: str, statement: str) -> None:
    ddl = sa.DDL(statement)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    sa.event.listen(table, "after_create", ddl.execute_if(dialect=dialect))
