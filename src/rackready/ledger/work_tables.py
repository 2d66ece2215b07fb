"""Tables of the work that a controller offers to workers: workers, batches, claims of batches, leases of nodes.

They are made beside the ledger's on the server when workers are first used. All times are the server's clock.
"""

from __future__ import annotations

import os
from typing import Any

import sqlalchemy as sa

from rackready.ledger.error import LedgerError

CLAIM = "RACKREADY_CLAIM"
"""Environment variable: the fencing token of the claim under which this process works on a batch."""

OFFERED, RUNNING, STOPPING = "offered", "running", "stopping"
DONE, FAILED, WITHDRAWN, LOST = "done", "failed", "withdrawn", "lost"
"""States of a batch. Failed: it outlived too many workers. Withdrawn: nobody took it. Lost: its controller is gone."""
OPEN = (OFFERED, RUNNING, STOPPING)

metadata = sa.MetaData()

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("instance", sa.String, nullable=False, comment="host, boot id, pid and start time of the process"),
    sa.Column("host", sa.String, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.String, nullable=False, comment="of rackready"),
    sa.Column("abi", sa.String, nullable=False, comment="CAMPAIGN_ABI of its code"),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("refuses", sa.String, nullable=False, comment="why it takes no batch of the present campaign"),
    sa.Column("begun", sa.Float, nullable=False),
    sa.Column("seen", sa.Float, nullable=False, comment="last sign of life"),
    sa.Column("ended", sa.Float, comment="when it was stopped in order"),
)

work = sa.Table(
    "work",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("controller", sa.Integer, nullable=False, comment="number of the controller that offers it"),
    sa.Column("campaign", sa.String, nullable=False),
    sa.Column("phase", sa.String, nullable=False),
    sa.Column("nodes", sa.JSON, nullable=False),
    sa.Column("racks", sa.JSON, nullable=False),
    sa.Column("labels", sa.JSON, nullable=False, comment="labels that a worker needs"),
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("version", sa.String, nullable=False, comment="of the controller's rackready"),
    sa.Column("abi", sa.String, nullable=False, comment="CAMPAIGN_ABI of its code"),
    sa.Column("pins", sa.JSON, nullable=False, comment="host in known_hosts -> its key, as the controller has it"),
    sa.Column("state", sa.String, nullable=False, index=True),
    sa.Column("attempt", sa.Integer, nullable=False, comment="claims so far that did not end in order"),
    sa.Column("offered", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    sa.Column("result", sa.JSON, nullable=False),
)

claims = sa.Table(
    "claims",
    metadata,
    sa.Column("token", sa.Integer, primary_key=True, autoincrement=True, comment="fencing token: grows"),
    sa.Column("work", sa.Integer, nullable=False, index=True),
    sa.Column("worker", sa.String, nullable=False),
    sa.Column("begun", sa.Float, nullable=False),
    sa.Column("until", sa.Float, nullable=False, comment="end of the lease, moved on by each sign of life"),
    sa.Column("ended", sa.Float),
    sa.Column("how", sa.String, nullable=False, comment="done, given back, died or expired"),
)

leases = sa.Table(
    "node_leases",
    metadata,
    sa.Column("node", sa.String, primary_key=True),
    sa.Column("token", sa.Integer, nullable=False, comment="the claim that has the node, or had it last"),
)

_CLOCK = sa.text("SELECT extract(epoch FROM clock_timestamp())")


def clock(connection: sa.Connection) -> float:
    """Return the server's time, seconds since 1970."""
    return float(connection.execute(_CLOCK).scalar_one())


def there(connection: sa.Connection) -> bool:
    """Return whether workers were ever used with this database."""
    return sa.inspect(connection).has_table(work.name)


def held(connection: sa.Connection) -> list[Any]:
    """Return the claims that hold nodes now, with their batch."""
    columns = (work.c.nodes, work.c.phase, work.c.racks, work.c.campaign, work.c.controller)
    query = sa.select(claims, *columns).join(work, work.c.id == claims.c.work)
    return list(connection.execute(query.where(claims.c.ended.is_(None), claims.c.until > clock(connection))))


def require_claim(connection: sa.Connection, where: str) -> None:
    """Raise LedgerError when this process works under a claim that is over: another worker may have its batch."""
    token = os.environ.get(CLAIM)
    if token is None:
        return
    row = connection.execute(sa.select(claims).where(claims.c.token == int(token))).first()
    if row is not None and row.ended is None and row.until > clock(connection):
        return
    actual = "no such claim" if row is None else row.how or "expired"
    raise LedgerError(
        where,
        "this worker has lost its batch",
        expected=f"claim {token}, held",
        actual=actual,
        next_step="Nothing more is started here. Another worker takes the batch and observes first.",
    )


def end(connection: sa.Connection, token: int, how: str) -> bool:
    """Record the end of a claim, and return whether it was open. The writers' lock is held."""
    query = sa.update(claims).where(claims.c.token == token, claims.c.ended.is_(None))
    return connection.execute(query.values(ended=clock(connection), how=how)).rowcount == 1


def overdue(connection: sa.Connection, lease_s: float) -> bool:
    """Return whether a claim's lease is over, or ends later than any lease can: the server's clock was set back."""
    now = clock(connection)
    odd = sa.or_(claims.c.until <= now, claims.c.until > now + lease_s)
    return (
        connection.execute(sa.select(claims.c.token).where(claims.c.ended.is_(None), odd).limit(1)).first() is not None
    )


def expire(connection: sa.Connection, attempts: int, lease_s: float) -> None:
    """Offer again what was claimed by workers that are not heard of any more. The writers' lock is held.

    A lease that ends too late ends as if it began now: no lease that is still good ends later.
    """
    now = clock(connection)
    far = sa.and_(claims.c.ended.is_(None), claims.c.until > now + lease_s)
    connection.execute(sa.update(claims).where(far).values(until=now + lease_s))
    late = sa.and_(claims.c.ended.is_(None), claims.c.until <= now)
    over = sa.update(claims).where(late).values(ended=now, how="expired").returning(claims.c.work)
    for number in connection.execute(over).scalars().all():
        put_back(connection, number, attempts, blame=True)


def put_back(connection: sa.Connection, number: int, attempts: int, *, blame: bool) -> None:
    """Offer a batch again, or end it: its controller stops, or it outlived too many workers."""
    row = connection.execute(sa.select(work).where(work.c.id == number)).one()
    attempt = row.attempt + (1 if blame else 0)
    state = WITHDRAWN if row.state == STOPPING else FAILED if attempt >= attempts else OFFERED
    values: dict[str, Any] = {"state": state, "attempt": attempt}
    query = sa.update(work).where(work.c.id == number, work.c.state.in_((RUNNING, STOPPING)))
    connection.execute(query.values(values if state == OFFERED else values | {"ended": clock(connection)}))


def lose(connection: sa.Connection, number: int) -> None:
    """End the batches of controllers before that number. The writers' lock is held, and nobody works on them."""
    gone = sa.and_(work.c.controller < number, work.c.state.in_(OPEN))
    for token in connection.execute(
        sa.select(claims.c.token).join(work, work.c.id == claims.c.work).where(gone, claims.c.ended.is_(None))
    ).scalars():
        end(connection, token, "expired")
    connection.execute(sa.update(work).where(gone).values(state=LOST, ended=clock(connection)))
