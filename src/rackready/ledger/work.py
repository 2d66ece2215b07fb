"""The work queue on the server: a controller offers batches of a phase, workers claim them, each under a lease.

A claim has a fencing token. Every transaction in which a worker records anything checks it (``postgres_lock.guard``):
a worker that lost its lease begins nothing more. Whoever changes the state of a batch holds the writers' lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from rackready.ledger import postgres_lock, schema, work_tables
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger
from rackready.ledger.work_tables import DONE, OFFERED, OPEN, RUNNING, STOPPING, WITHDRAWN, claims, leases, work
from rackready.model.database import WorkerUse


class Pulse(StrEnum):
    """What a worker is told at a sign of life about its batch."""

    GO_ON = "go on"
    STOP = "stop"
    """The campaign stops: end what runs, and give the batch back."""
    ORPHANED = "orphaned"
    """The controller is gone, and the lease is not renewed any more: do the same before it ends."""
    LOST = "lost"
    """The claim is over. What runs is ended at once."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch as a controller offers it."""

    campaign: str
    phase: str
    nodes: tuple[str, ...]
    racks: tuple[str, ...]
    labels: Mapping[str, str]
    request: Mapping[str, Any]
    pins: Mapping[str, str]
    version: str
    abi: str

    @property
    def site(self) -> str:
        """Return the digest of the site that it needs."""
        return str(self.request["site_digest"])


@dataclass(frozen=True, slots=True)
class Claim:
    """A batch that a worker has. ``token``: its fencing token. ``controller``: the number of who offered it."""

    token: int
    work: int
    controller: int
    attempt: int
    offer: Offer


class WorkQueue:
    """The batches of one database. Safe to use from several threads and processes. Raises LedgerError."""

    def __init__(self, ledger: Ledger, use: WorkerUse) -> None:
        self._ledger, self.use = ledger, use

    @classmethod
    def open(cls, ledger: Ledger, use: WorkerUse) -> WorkQueue:
        """Open the queue, and make its tables when they are absent."""
        ledger.make(work_tables.metadata)
        return cls(ledger, use)

    # the controller ----------------------------------------------------------------------------------------------

    def offer(self, offer: Offer) -> int:
        """Offer a batch and return its number. One that this campaign has finished already is not offered again."""
        with self._writing("a batch cannot be offered") as connection:
            known = sa.select(work.c.id, work.c.nodes).where(work.c.campaign == offer.campaign, work.c.state == DONE)
            for row in connection.execute(known.where(work.c.phase == offer.phase)):
                if tuple(row.nodes) == offer.nodes:
                    return int(row.id)
            values = {
                "controller": int(os.environ[postgres_lock.LEASE]),
                "campaign": offer.campaign,
                "phase": offer.phase,
                "nodes": list(offer.nodes),
                "racks": list(offer.racks),
                "labels": dict(offer.labels),
                "request": dict(offer.request),
                "pins": dict(offer.pins),
                "version": offer.version,
                "abi": offer.abi,
                "state": OFFERED,
                "attempt": 0,
                "offered": work_tables.clock(connection),
                "result": {},
            }
            return int(connection.execute(sa.insert(work).values(**values).returning(work.c.id)).scalar_one())

    def look(self, number: int) -> Any:  # noqa: ANN401 - a row
        """Return a batch: its state, attempt and result."""
        with self._ledger.read() as connection:
            return connection.execute(sa.select(work).where(work.c.id == number)).one()

    def was_claimed(self, offer: Offer) -> bool:
        """Return whether a worker ever had this batch, also as an earlier controller of the campaign offered it."""
        query = sa.select(work.c.nodes).join(claims, claims.c.work == work.c.id)
        query = query.where(work.c.campaign == offer.campaign, work.c.phase == offer.phase)
        with self._ledger.read() as connection:
            return any(set(nodes) & set(offer.nodes) for nodes in connection.execute(query).scalars())

    def withdraw(self, numbers: Sequence[int], *, stop: bool = False) -> None:
        """Take back batches that nobody has; ``stop``: ask the workers of the others to let go of them."""
        with self._writing("a batch cannot be taken back") as connection:
            now = work_tables.clock(connection)
            ours = work.c.id.in_(numbers)
            taken = sa.update(work).where(ours, work.c.state == OFFERED)
            connection.execute(taken.values(state=WITHDRAWN, ended=now))
            if stop:
                connection.execute(sa.update(work).where(ours, work.c.state == RUNNING).values(state=STOPPING))

    def sweep(self) -> None:
        """Offer again what was claimed by workers that are not heard of any more, if there is any."""
        with self._ledger.read() as connection:
            found = work_tables.overdue(connection, self.use.lease_s)
        if found:
            with self._alone() as connection:
                work_tables.expire(connection, self.use.attempts, self.use.lease_s)

    # workers -----------------------------------------------------------------------------------------------------

    def offers(self) -> list[Offer]:
        """Return the batches that are offered now by the present controller, oldest first."""
        with self._ledger.read() as connection:
            number = postgres_lock.current(connection)
            query = sa.select(work).where(work.c.state == OFFERED, work.c.controller == number).order_by(work.c.id)
            return [] if number is None else [_offer(row) for row in connection.execute(query)]

    def claim(
        self, worker: str, labels: Mapping[str, str], sites: frozenset[str], version: str, abi: str
    ) -> Claim | None:
        """Take the oldest batch that this worker can have, None when there is none. ``sites``: digests it has."""
        with self._alone() as connection:
            work_tables.expire(connection, self.use.attempts, self.use.lease_s)
            number = postgres_lock.current(connection)
            busy = work_tables.held(connection)
            query = sa.select(work).where(work.c.state == OFFERED, work.c.controller == number).order_by(work.c.id)
            for row in connection.execute(query).all() if number is not None else ():
                offer = _offer(row)
                able = offer.site in sites and (offer.version, offer.abi) == (version, abi)
                if able and fits(offer, labels) and not self._full(offer, busy):
                    return self._take(connection, row, offer, worker)
        return None

    def _full(self, offer: Offer, busy: Sequence[Any]) -> bool:
        """Whether nodes are leased already, or a limit over all workers is reached."""
        use = self.use
        if any(set(offer.nodes) & set(row.nodes) for row in busy):
            return True
        if use.per_phase is not None and sum(row.phase == offer.phase for row in busy) >= use.per_phase:
            return True
        at_work = [rack for row in busy for rack in set(row.racks)]
        return use.per_rack is not None and any(at_work.count(rack) >= use.per_rack for rack in offer.racks)

    def _take(self, connection: sa.Connection, row: Any, offer: Offer, worker: str) -> Claim:  # noqa: ANN401 - a row
        now = work_tables.clock(connection)
        values = {"work": row.id, "worker": worker, "begun": now, "until": now + self.use.lease_s, "how": ""}
        token = connection.execute(sa.insert(claims).values(**values).returning(claims.c.token)).scalar_one()
        rows = [{"node": node, "token": token} for node in offer.nodes]
        upsert = insert(leases).values(rows)
        connection.execute(upsert.on_conflict_do_update(index_elements=["node"], set_={"token": token}))
        connection.execute(sa.update(work).where(work.c.id == row.id).values(state=RUNNING))
        return Claim(int(token), int(row.id), int(row.controller), int(row.attempt), offer)

    def renew(self, token: int) -> Pulse:
        """Give a sign of life about a claim: its lease begins anew while its controller lives."""
        with self._reported("a lease cannot be renewed"), self._ledger.engine.begin() as connection:
            query = sa.select(work.c.state, work.c.controller).join(claims, claims.c.work == work.c.id)
            row = connection.execute(query.where(claims.c.token == token)).one()
            now = work_tables.clock(connection)
            open_ = sa.and_(claims.c.token == token, claims.c.ended.is_(None), claims.c.until > now)
            if postgres_lock.current(connection) != row.controller:
                still = connection.execute(sa.select(claims.c.token).where(open_)).first()
                return Pulse.LOST if still is None else Pulse.ORPHANED
            renewed = connection.execute(sa.update(claims).where(open_).values(until=now + self.use.lease_s))
            if renewed.rowcount != 1:
                return Pulse.LOST
            return Pulse.STOP if row.state == STOPPING else Pulse.GO_ON

    def holds(self, token: int) -> bool:
        """Return whether a claim is held."""
        with self._ledger.read() as connection:
            return any(row.token == token for row in work_tables.held(connection))

    def end_of(self, token: int) -> str:
        """Return how a claim ended, "" while it is held."""
        with self._ledger.read() as connection:
            return str(connection.execute(sa.select(claims.c.how).where(claims.c.token == token)).scalar_one())

    def finish(self, token: int, result: Mapping[str, Any]) -> None:
        """Record the result of a batch, with the end of its claim. Raises LedgerError when the claim is over."""
        with self._writing("the result of a batch cannot be recorded") as connection:
            number = connection.execute(sa.select(claims.c.work).where(claims.c.token == token)).scalar_one()
            work_tables.end(connection, token, "done")
            values = {"state": DONE, "result": dict(result), "ended": work_tables.clock(connection)}
            connection.execute(sa.update(work).where(work.c.id == number).values(**values))

    def release(self, token: int, how: str, *, blame: bool) -> bool:
        """Let go of a batch that is not finished, and return whether it was still held.

        It is offered again. ``blame``: the batch may be the reason, and counts an attempt.
        """
        with self._alone() as connection:
            number = connection.execute(sa.select(claims.c.work).where(claims.c.token == token)).scalar_one()
            if not work_tables.end(connection, token, how):
                return False
            work_tables.put_back(connection, number, self.use.attempts, blame=blame)
            return True

    def open_children(self) -> list[dict[str, Any]]:
        """Return the child processes without a recorded end, of all machines."""
        return self._ledger.open_children()

    def children_ended(self, rows: Sequence[int]) -> None:
        """Record the end of children whose claim is over, so that nobody is left who could: they are gone."""
        if rows:
            table = schema.children
            with self._alone() as connection:
                now = work_tables.clock(connection)
                ours = sa.and_(table.c.id.in_(rows), table.c.ended.is_(None))
                connection.execute(sa.update(table).where(ours).values(ended=now))

    @contextmanager
    def _alone(self) -> Iterator[sa.Connection]:
        """Yield a transaction beside no other writer. It needs no controller's lock: it records no effect."""
        with self._reported("the work queue cannot be written"), self._ledger.engine.begin() as connection:
            postgres_lock.alone(connection)
            yield connection

    @contextmanager
    def _writing(self, what: str) -> Iterator[sa.Connection]:
        with self._reported(what), self._ledger.write() as connection:
            yield connection

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self._ledger.in_words(what, error)]) from error


def fits(offer: Offer, labels: Mapping[str, str]) -> bool:
    """Whether a worker with these labels may have a batch."""
    return all(labels.get(key) == value for key, value in offer.labels.items())


def open_batches(ledger: Ledger) -> list[Any]:
    """Return the batches that are offered or at work, with the claim and worker of each (None: nobody has it)."""
    with ledger.read() as connection:
        if not work_tables.there(connection):
            return []
        at_work = sa.and_(claims.c.work == work.c.id, claims.c.ended.is_(None))
        query = sa.select(work, claims.c.token, claims.c.worker, claims.c.until).outerjoin(claims, at_work)
        return list(connection.execute(query.where(work.c.state.in_(OPEN)).order_by(work.c.id)))


def _offer(row: Any) -> Offer:  # noqa: ANN401 - a row
    return Offer(
        row.campaign,
        row.phase,
        tuple(row.nodes),
        tuple(row.racks),
        row.labels,
        row.request,
        row.pins,
        row.version,
        row.abi,
    )
