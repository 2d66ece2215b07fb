"""Drift runs in the ledger's database: append-only, one row per run and node or switch; and when phases passed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.append_only import append_only
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger

metadata = sa.MetaData()

_runs = sa.Table(
    "drift",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run", schema.KEY, nullable=False, index=True),
    sa.Column("target", sa.String, nullable=False, index=True, comment="node or switch"),
    sa.Column("at", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("site_digest", sa.String, nullable=False),
    sa.Column("report", sa.JSON, nullable=False),
)
append_only(_runs)


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One node or switch in one drift run. ``report``: as JSON types."""

    run: str
    at: float
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PhasePass:
    """The last campaign in which a phase passed on a node."""

    campaign: str
    at: float


def append_runs(ledger: Ledger, run: str, at: float, site_digest: str, reports: Sequence[Mapping[str, Any]]) -> None:
    """Append what a drift run found, all or nothing. Raises LedgerError."""
    if not reports:
        return
    ledger.make(metadata)
    rows = [
        {"run": run, "target": str(report["name"]), "at": at, "site_digest": site_digest, "report": dict(report)}
        for report in reports
    ]
    try:
        with ledger.write() as connection:
            connection.execute(sa.insert(_runs), rows)
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError.of([ledger.in_words(f"drift run {run} cannot be recorded", error)]) from error


def runs_of(ledger: Ledger, target: str) -> Iterator[DriftRow]:
    """Yield the drift runs of a node or switch, newest first; none when none was ever recorded."""
    query = sa.select(_runs.c.run, _runs.c.at, _runs.c.report).where(_runs.c.target == target)
    with ledger.read() as connection:
        if not sa.inspect(connection).has_table(_runs.name):
            return
        for row in connection.execute(query.order_by(_runs.c.id.desc())):
            yield DriftRow(row.run, row.at, row.report)


def last_passes(ledger: Ledger, nodes: Collection[str], phases: Collection[str]) -> dict[str, dict[str, PhasePass]]:
    """Return node -> phase -> the last campaign in which the phase passed. A dry run is no campaign."""
    events, campaigns = schema.events, schema.campaigns
    newest = (
        sa.select(sa.func.max(events.c.id))
        .join(campaigns, campaigns.c.id == events.c.campaign)
        .where(events.c.level == "ok", events.c.phase.in_(phases))
        .group_by(events.c.node, events.c.phase)
    )
    out: dict[str, dict[str, PhasePass]] = {}
    with ledger.read() as connection:
        for row in connection.execute(sa.select(events).where(events.c.id.in_(newest))):
            if row.node in nodes:
                out.setdefault(row.node, {})[row.phase] = PhasePass(row.campaign, row.at)
    return out
