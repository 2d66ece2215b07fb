"""The newest line of progress of every node: one look at an index for each node, however long the campaign is."""

from __future__ import annotations

from itertools import starmap

import sqlalchemy as sa

from rackready.ledger import schema
from rackready.ledger.rows import EventRow


def newest_events(connection: sa.Connection, campaign: str) -> dict[str, EventRow]:
    """Return node -> its newest line of progress in a campaign."""
    table = schema.events
    newest = _by_scan(campaign) if schema.lacking(connection) else _by_index(campaign)
    rows = connection.execute(sa.select(*(table.c[name] for name in EventRow.__slots__)).where(table.c.id.in_(newest)))
    return {row.node: row for row in starmap(EventRow, rows.all())}


def _by_scan(campaign: str) -> sa.Select[tuple[int]]:
    """Return the ids of the newest lines, read from all of them: an older release made this database."""
    table = schema.events
    return sa.select(sa.func.max(table.c.id)).where(table.c.campaign == campaign).group_by(table.c.node)


def _by_index(campaign: str) -> sa.Select[tuple[int]]:
    """Return the same by a walk from node to node: neither database jumps in an index of its own accord."""
    table, here = schema.events, schema.events.c.campaign == campaign
    walk = sa.select(sa.func.min(table.c.node).label("node")).where(here).cte("walk", recursive=True)
    following = sa.select(sa.func.min(table.c.node)).where(here, table.c.node > walk.c.node).scalar_subquery()
    walk = walk.union_all(sa.select(following).where(walk.c.node.is_not(None)))
    newest = sa.select(sa.func.max(table.c.id)).where(here, table.c.node == walk.c.node).scalar_subquery()
    return sa.select(newest).where(walk.c.node.is_not(None))
