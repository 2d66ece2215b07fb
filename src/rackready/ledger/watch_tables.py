"""Tables of `rackready watch` beside the ledger's: places in journals, faults, marks."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

nodes = sa.Table(
    "watch_nodes",
    metadata,
    sa.Column("node", sa.String, primary_key=True),
    sa.Column("cursor", sa.String, nullable=False, default="", comment="place in its journal"),
    sa.Column("boot_id", sa.String, nullable=False, default=""),
    sa.Column("watched", sa.Boolean, nullable=False, default=False),
    sa.Column("why", sa.String, nullable=False, default="", comment="why it is not watched"),
    sa.Column("since", sa.Float, nullable=False, comment="since when it is watched, or not"),
)

faults = sa.Table(
    "watch_faults",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("node", sa.String, nullable=False, index=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("condition", sa.String, nullable=False),
    sa.Column("part", sa.String, nullable=False),
    sa.Column("slot", sa.String, nullable=False),
    sa.Column("actual", sa.String, nullable=False),
    sa.Column("act", sa.String, nullable=False),
    sa.Column("step", sa.String, nullable=False),
    sa.Column("why", sa.String, nullable=False, comment="why it went no further, or whose drain it is"),
    sa.Column("first_at", sa.Float, nullable=False),
    sa.Column("last_at", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("boot_id", sa.String, nullable=False),
    sa.Column("cursor", sa.String, nullable=False),
    sa.Column("drained_at", sa.Float, comment="when watch drained the node for it"),
    sa.Column("quarantined", sa.Boolean, nullable=False, default=False, comment="the ledger has its node as such"),
    sa.Column("detail", sa.JSON, nullable=False, comment="jobs, evidence, history, end"),
    sa.Column("ticket", sa.String, nullable=False, default="", comment="open, repaired or closed"),
    sa.Column("posted", sa.String, nullable=False, default="", comment="hash of the ticket that was posted last"),
    sqlite_autoincrement=True,
)

marks = sa.Table(
    "watch_marks",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)
