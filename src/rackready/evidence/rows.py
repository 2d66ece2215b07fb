"""Reads rows of evidence: all at once, and one by one if that fails, so that a damaged row affects only itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import sqlalchemy as sa

from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger

_AT_ONCE = 256


def rows(
    ledger: Ledger, query: sa.Select[Any], id_: sa.Column[str], parameters: Mapping[str, Any] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a query with columns ``id`` and ``record``, in its order.

    A row whose record cannot be read has the readable rest, and the reason in ``unreadable``. Raises LedgerError when
    the whole table cannot be read.
    """
    given: set[str] = set()
    try:
        with ledger.read() as connection:
            for row in connection.execution_options(yield_per=_AT_ONCE).execute(query, parameters or {}).mappings():
                given.add(row["id"])
                yield cast("Mapping[str, Any]", row)
            return
    except LedgerError:
        yield from _one_by_one(ledger, query, id_, parameters or {}, given)


def _one_by_one(
    ledger: Ledger, query: sa.Select[Any], id_: sa.Column[str], parameters: Mapping[str, Any], given: Collection[str]
) -> Iterator[Mapping[str, Any]]:
    with ledger.read() as connection:
        ids = connection.execute(query.with_only_columns(id_, maintain_column_froms=True), parameters).scalars().all()
    for one in ids:
        if one not in given:
            yield _one(ledger, query.where(id_ == one), parameters)


def _one(ledger: Ledger, query: sa.Select[Any], parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return one row: as it is, or with the bytes of its record, or without them."""
    try:
        return _first(ledger, query, parameters)
    except LedgerError as error:
        why = str(error.__cause__.orig if isinstance(error.__cause__, sa.exc.DBAPIError) else error.__cause__)
    columns = list(query.selected_columns)
    for instead in (lambda column: sa.cast(column, sa.LargeBinary), lambda _column: sa.literal("")):
        try:
            changed = [instead(column).label("record") if column.name == "record" else column for column in columns]
            return {
                **_first(ledger, query.with_only_columns(*changed, maintain_column_froms=True), parameters),
                "unreadable": " ".join(why.split()),
            }
        except LedgerError:
            continue
    raise LedgerError(
        "a record of evidence cannot be read", expected="its columns", actual=why, next_step="Run `rackready doctor`."
    )


def _first(ledger: Ledger, query: sa.Select[Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    with ledger.read() as connection:
        return dict(connection.execute(query, parameters).mappings().one())
