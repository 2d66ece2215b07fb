"""Damaged evidence, set aside as proof with place, time and digest. Append-only like evidence itself."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from rackready.evidence.damage import Damaged
from rackready.evidence.output_place import OutputPlace
from rackready.ledger.append_only import append_only
from rackready.ledger.schema import KEY
from rackready.ledger.store import Ledger

metadata = sa.MetaData()

_aside = sa.Table(
    "evidence_set_aside",
    metadata,
    sa.Column("id", KEY, primary_key=True),
    sa.Column("kind", sa.String, nullable=False, comment="record or raw output"),
    sa.Column(
        "name",
        sa.String,
        nullable=False,
        index=True,
        comment="id of the record, or SHA-256 of the raw output, as it should be",
    ),
    sa.Column("campaign", sa.String, nullable=False, comment="in which it was found"),
    sa.Column("gate", sa.String, nullable=False),
    sa.Column("target", sa.String, nullable=False),
    sa.Column("at", sa.String, nullable=False, comment="when it was found"),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("sha256", sa.String, nullable=False, comment="of what was found; empty when nothing could be read"),
    sa.Column("found", sa.LargeBinary, nullable=False, comment="what was found in the place of a record"),
    sa.Column("file", sa.String, nullable=False, comment="where what was found in the place of a raw output lies now"),
)
append_only(_aside)


@dataclass(frozen=True, slots=True)
class DamagedOutput:
    """A raw output that is gone or damaged.

    ``place``: where it should be; ``gate`` and ``target``: of the record that was judged from it, when known.
    """

    digest: str
    place: OutputPlace
    actual: str
    gate: str = ""
    target: str = ""

    def text(self) -> str:
        """Return the fault, without a next step."""
        begins = f"{self.target}: evidence of {self.gate} lost" if self.target else "evidence lost"
        return (
            f"{begins} raw output {self.digest[:12]} - Expected: the output that it was judged from "
            f"Actual: {self.actual}."
        )


def put_aside(
    ledger: Ledger, damaged: Sequence[Damaged | DamagedOutput], campaign: str
) -> list[Damaged | DamagedOutput]:
    """Keep damaged evidence, and return the items that were not set aside before. Raises LedgerError.

    The bytes of a record go into the database. A file or an object is moved out of the way, so that a new measurement
    can store the output again. Its row is written first: after a kill in between it is still in its place, and the next
    run sets it aside.
    """
    if not damaged:
        return []
    ledger.make(metadata)
    with ledger.read() as connection:
        known = {(row.name, row.why) for row in connection.execute(sa.select(_aside.c.name, _aside.c.why))}
    fresh = [
        item
        for item in damaged
        if (_name(item), item.text()) not in known or (isinstance(item, DamagedOutput) and item.place.there())
    ]
    for item in fresh:
        now = time.time_ns()
        row = _row(item, campaign, now)
        with ledger.write() as connection:
            connection.execute(sa.insert(_aside).values(**row))
        if isinstance(item, DamagedOutput) and row["file"]:
            item.place.move(now)
    return fresh


def set_aside(ledger: Ledger) -> list[dict[str, Any]]:
    """Return everything that was set aside, oldest first, without the bytes."""
    with ledger.read() as connection:
        if not sa.inspect(connection).has_table(_aside.name):
            return []
        columns = [column for column in _aside.c if column.name != "found"]
        return [dict(row) for row in connection.execute(sa.select(*columns).order_by(_aside.c.id)).mappings()]


def proof(ledger: Ledger, id_: str) -> bytes | None:
    """Return the bytes that were found in the place of a record, None when that id was not set aside."""
    with ledger.read() as connection:
        if not sa.inspect(connection).has_table(_aside.name):
            return None
        found = connection.execute(sa.select(_aside.c.found).where(_aside.c.id == id_)).scalar()
    return None if found is None else bytes(found)


def _name(item: Damaged | DamagedOutput) -> str:
    return item.id if isinstance(item, Damaged) else item.digest


def _row(item: Damaged | DamagedOutput, campaign: str, now: int) -> dict[str, Any]:
    found, file = (item.found, "") if isinstance(item, Damaged) else (item.place.content(), _aside_to(item, now))
    return {
        "id": f"{now:020d}-{secrets.token_hex(4)}",
        "kind": "record" if isinstance(item, Damaged) else "raw output",
        "name": _name(item),
        "campaign": campaign,
        "gate": item.gate,
        "target": item.target,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "why": item.text(),
        "sha256": hashlib.sha256(found).hexdigest() if found else "",
        "found": found if isinstance(item, Damaged) else b"",
        "file": file,
    }


def _aside_to(item: DamagedOutput, now: int) -> str:
    return item.place.aside(now) if item.place.there() else ""
