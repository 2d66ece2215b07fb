"""Tables of the ledger, in SQLAlchemy Core: the same in a SQLite file and on a PostgreSQL server."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 1
"""Version of these tables and of the evidence store's, raised with every change. A server's database records it.

A new index needs none: it is made in an older database as soon as that is opened for writing (``add_indexes``), and
older code does not mind it.
"""

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
"""Type of sort keys: compared byte by byte, as in SQLite, and not by the server's language."""

metadata = sa.MetaData()

operations = sa.Table(
    "operations",
    metadata,
    sa.Column(
        "token", sa.Integer, primary_key=True, autoincrement=True, comment="fencing token: grows with every intent"
    ),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("operation", sa.String, nullable=False, comment="power-on, install:install.yml, switch-commit, ..."),
    sa.Column("desired", sa.String, nullable=False, comment="digest of what is desired"),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("status", sa.String, nullable=False, comment="intent, done or failed"),
    sa.Column("observed", sa.JSON, nullable=False, comment="what was observed before the effect"),
    sa.Column("result", sa.JSON, nullable=False),
    sa.Column("begun", sa.Float, nullable=False, comment="seconds since the epoch"),
    sa.Column("ended", sa.Float),
    sa.Index("operations_key", "node", "operation", "desired", "epoch"),
    sqlite_autoincrement=True,
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", KEY, primary_key=True),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False, default=""),
    sa.Column("phase", sa.String, nullable=False, default="", comment="phase that runs on it now, or ran last"),
    sa.Column("campaign", sa.String, nullable=False, default=""),
    sa.Column("epoch", sa.Integer, nullable=False, default=1),
    sa.Column("since", sa.Float, nullable=False),
)

transitions = sa.Table(
    "transitions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("campaign", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("campaign", sa.String, nullable=False, index=True),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("phase", sa.String, nullable=False),
    sa.Column("level", sa.String, nullable=False),
    sa.Column("text", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Index("events_newest", "campaign", "node", "id"),
)

children = sa.Table(
    "children",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("pid", sa.Integer, nullable=False, comment="also its session and process group"),
    sa.Column(
        "start_ticks", sa.BigInteger, nullable=False, comment="field 22 of /proc/PID/stat: tells a reused pid apart"
    ),
    sa.Column("boot_id", sa.String, nullable=False),
    sa.Column("what", sa.String, nullable=False),
    sa.Column("begun", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
)

campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", KEY, primary_key=True),
    sa.Column("env", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False, comment="deploy, install, validate, ..."),
    sa.Column("nodes", sa.JSON, nullable=False),
    sa.Column("site_digest", sa.String, nullable=False),
    sa.Column("abi", sa.String, nullable=False),
    sa.Column("status", sa.String, nullable=False, comment="running, interrupted, superseded, finished"),
    sa.Column("begun", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    sa.Column("summary", sa.JSON, nullable=False),
)

LATER = (next(index for index in events.indexes if index.name == "events_newest"),)
"""Indexes that databases of earlier releases lack."""


def lacking(connection: sa.Connection) -> list[sa.Index]:
    """Return the later indexes that this database does not have yet."""
    there = sa.inspect(connection)
    return [index for index in LATER if not there.has_index(str(index.table), str(index.name))]
