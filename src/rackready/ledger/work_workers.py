"""The workers that are known to a database: who they are, what they have, when they were last heard of."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from rackready.ledger import work_tables
from rackready.ledger.error import ControllerBusyError, LedgerError
from rackready.ledger.store import Ledger
from rackready.ledger.work_tables import workers


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker. ``silent_s``: seconds since its last sign of life. ``refuses``: why it takes nothing at present."""

    name: str
    host: str
    pid: int
    version: str
    abi: str
    labels: dict[str, str]
    refuses: str
    silent_s: float
    ended: bool

    def alive(self, lease_s: float) -> bool:
        """Whether it was heard of within a lease's time."""
        return not self.ended and self.silent_s <= lease_s


class Roll:
    """One worker's own row."""

    def __init__(self, ledger: Ledger, name: str, lease_s: float) -> None:
        self._ledger, self._name, self._lease_s = ledger, name, lease_s
        self._instance = f"{socket.gethostname()} {_boot_id()} {os.getpid()} {_began()}"

    def sign_on(self, version: str, abi: str, labels: Mapping[str, str]) -> None:
        """Enter the row. Raises ControllerBusyError when a live worker has the name."""
        values = {
            "instance": self._instance,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version,
            "abi": abi,
            "labels": dict(labels),
            "refuses": "",
        }
        with self._writing() as connection:
            now = work_tables.clock(connection)
            before = connection.execute(
                sa.select(workers).where(workers.c.name == self._name).with_for_update()
            ).first()
            if before is not None and before.instance != self._instance and self._lives(before, now):
                raise ControllerBusyError(
                    f"worker {self._name}",
                    "another worker has this name",
                    expected="a name of its own",
                    actual=f"pid {before.pid} on {before.host}, heard of {now - before.seen:.0f} s ago",
                    next_step="Give another --name, or stop that one. "
                    f"A killed one on another machine is forgotten after {self._lease_s:.0f} s.",
                )
            values |= {"begun": now, "seen": now, "ended": None}
            entry = insert(workers).values(name=self._name, **values)
            connection.execute(entry.on_conflict_do_update(index_elements=["name"], set_=values))

    def _lives(self, row: sa.Row[tuple[object, ...]], now: float) -> bool:
        if row.ended is not None or now - row.seen > self._lease_s:
            return False
        here = row.host == socket.gethostname() and row.instance.split()[1] == _boot_id()
        return not here or _began(row.pid) == row.instance.split()[3]

    def beat(self, refuses: str) -> None:
        """Give a sign of life. Raises LedgerError when another worker took the name meanwhile."""
        ours = sa.and_(workers.c.name == self._name, workers.c.instance == self._instance)
        with self._writing() as connection:
            values = {"seen": work_tables.clock(connection), "refuses": refuses}
            changed = connection.execute(sa.update(workers).where(ours).values(**values))
            if changed.rowcount != 1:
                raise ControllerBusyError(
                    f"worker {self._name}",
                    "another worker took this name",
                    expected="a name of its own",
                    actual="it signed on while this one was silent",
                    next_step="Start one of them with another --name.",
                )

    def sign_off(self) -> None:
        """Record an orderly end."""
        ours = sa.and_(workers.c.name == self._name, workers.c.instance == self._instance)
        with self._writing() as connection:
            connection.execute(sa.update(workers).where(ours).values(ended=work_tables.clock(connection)))

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        try:
            with self._ledger.engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError.of([self._ledger.in_words("the worker cannot be recorded", error)]) from error


def known_workers(ledger: Ledger) -> list[WorkerRow]:
    """Return the workers that signed on since workers were first used, by name."""
    with ledger.read() as connection:
        if not work_tables.there(connection):
            return []
        now = work_tables.clock(connection)
        return [
            WorkerRow(
                row.name,
                row.host,
                row.pid,
                row.version,
                row.abi,
                dict(row.labels),
                row.refuses,
                max(0.0, now - row.seen),
                row.ended is not None,
            )
            for row in connection.execute(sa.select(workers).order_by(workers.c.name))
        ]


def _began(pid: int | None = None) -> str:
    """Return when a process began, in clock ticks since boot; "" when it is gone."""
    try:
        text = Path(f"/proc/{pid or os.getpid()}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text[text.rfind(")") + 2 :].split()[19]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
