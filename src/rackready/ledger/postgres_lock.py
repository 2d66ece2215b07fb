"""Decides who may write to a ledger that controllers of several machines share.

The controller holds a session's advisory lock on a connection of its own, and has the highest number in
``controllers``. Every transaction that writes takes a second lock, so that there is one writer at a time as in a SQLite
file, and then checks both: a controller that lost them records nothing more, and so begins nothing more.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from rackready.design.names import listed
from rackready.ledger import work_tables
from rackready.ledger.error import ControllerBusyError, LedgerError, client_error

LEASE = "RACKREADY_LEASE"
"""Environment variable: the number under which this process, or the controller that started it, took the lock."""

metadata = sa.MetaData()

_controllers = sa.Table(
    "controllers",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True, comment="the highest is the controller"),
    sa.Column("host", sa.String, nullable=False),
    sa.Column("boot_id", sa.String, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("backend", sa.Integer, nullable=False, comment="process of the server that holds its lock"),
    sa.Column("what", sa.String, nullable=False),
    sa.Column("begun", sa.Float, nullable=False),
)

_KEYS = {"key": 0x7261636B, "controller": 1, "writer": 2}
"""The two numbers of our advisory locks: "rack" in ASCII, and which. Each database of a server has its own locks."""
_TAKE = sa.text("SELECT pg_try_advisory_lock(:key, :controller)")
_GIVE = sa.text("SELECT pg_advisory_unlock(:key, :controller)")
_ALONE = sa.text("SELECT pg_advisory_xact_lock(:key, :writer)")
_HOLDS = sa.text(
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = :key AND objid = :controller "
    "AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)

_TRIED_S = 1.0
"""How long we try to take the lock: the server needs a moment to see that a killed holder is gone."""
_SETTLE_S = 0.2
"""How often a new controller looks whether workers have let go, s."""
_LOOK_EVERY_S = 5.0
"""How often the holder checks its connection.

Judgement: it reacts to a broken one before the server gives the lock to another machine.
"""


def alone(connection: sa.Connection) -> None:
    """Wait for other writers to end, and keep them out until this transaction ends."""
    connection.execute(_ALONE, _KEYS)


def guard(connection: sa.Connection, where: str) -> None:
    """Be the only writer until this transaction ends.

    Raises LedgerError when another controller works on these records, or we lost the lock.
    """
    alone(connection)
    holds = connection.execute(_HOLDS, _KEYS).scalar()
    lease = os.environ.get(LEASE)
    if lease is None and holds is None:
        return
    last = _last(connection)
    if lease is not None and last is not None and (last.backend, last.number) == (holds, int(lease)):
        work_tables.require_claim(connection, where)
        return
    holder = "" if holds is None else _who(last)
    if lease is None:
        raise LedgerError(
            where,
            "another controller works on this site",
            expected="none",
            actual=holder,
            next_step="Nothing was recorded: wait for it (`rackready status`).",
        )
    raise LedgerError(
        where,
        "this controller has lost its lock",
        expected=f"lock number {lease}",
        actual=f"it is {holder}" if holder else "the connection that held it ended",
        next_step="Nothing more is started. Run the same command again: it continues from what is recorded.",
    )


def current(connection: sa.Connection) -> int | None:
    """Return the number of the controller that works now, None when there is none."""
    holds, last = connection.execute(_HOLDS, _KEYS).scalar(), _last(connection)
    return int(last.number) if last is not None and last.backend == holds else None


def settle(connection: sa.Connection, number: int) -> None:
    """Wait until workers have let go of the nodes that an earlier controller gave them; its batches end.

    A worker lets go as soon as it sees that its controller is gone, and one that does not answer loses its lease.
    """
    if not work_tables.there(connection):
        connection.commit()
        return
    told = False
    while rows := [row for row in work_tables.held(connection) if row.controller < number]:
        if not told:
            nodes = sorted({node for row in rows for node in row.nodes})
            names = ", ".join(sorted({row.worker for row in rows}))
            wait = max(row.until for row in rows) - work_tables.clock(connection)
            with suppress(OSError):
                sys.stderr.write(f"waits until workers ({names}) let go of {listed(nodes)}, at most {wait:.0f} s\n")
            told = True
        connection.commit()
        time.sleep(_SETTLE_S)
    alone(connection)
    work_tables.lose(connection, number)
    connection.commit()


def holder(connection: sa.Connection) -> str:
    """Return the present controller, "" when there is none."""
    return _who(_last(connection)) if connection.execute(_HOLDS, _KEYS).scalar() is not None else ""


def machine_of(connection: sa.Connection, boot_id: str) -> str:
    """Return another machine whose controller ran in that boot, "" when it was this one or is not known."""
    query = sa.select(_controllers.c.host).where(
        _controllers.c.boot_id == boot_id, _controllers.c.host != socket.gethostname()
    )
    return str(connection.execute(query.limit(1)).scalar() or "")


def take(connection: sa.Connection, where: str, what: str) -> int:
    """Become the controller while this connection lives, and return our number.

    Transactions under an earlier number are committed by then, or will be refused. Raises ControllerBusyError with the
    present controller.
    """
    deadline = time.monotonic() + _TRIED_S
    while not connection.execute(_TAKE, _KEYS).scalar_one():
        if time.monotonic() > deadline:
            raise ControllerBusyError(
                where,
                "another controller works on this site",
                expected="none",
                actual=holder(connection) or "one that just begins",
                next_step="Wait for it (`rackready status`), or stop it with Ctrl-C where it runs.",
            )
        time.sleep(_TRIED_S / 10)
    alone(connection)
    values = {
        "host": socket.gethostname(),
        "boot_id": _boot_id(),
        "pid": os.getpid(),
        "what": what,
        "begun": time.time(),
    }
    backend = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
    number = connection.execute(
        sa.insert(_controllers).values(backend=backend, **values).returning(_controllers.c.number)
    ).scalar_one()
    connection.commit()
    return int(number)


def interrupt(reason: str) -> None:
    """Stop this process as Ctrl-C does: children are ended, nothing new is begun.

    A process that ignores SIGINT (a shell's background job) gets SIGTERM.
    """
    with suppress(OSError):
        sys.stderr.write(f"{reason}\n")
    os.kill(os.getpid(), signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT)


class Hold:
    """The lock while it is held: watches the connection, and passes its number to children of this process."""

    def __init__(
        self, connection: sa.Connection, where: str, number: int, lost: Callable[[str], None] = interrupt
    ) -> None:
        self._connection, self._where, self._number, self._lost = connection, where, number, lost
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True, name="controller lock")

    def __enter__(self) -> Self:
        os.environ[LEASE] = str(self._number)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock. One that was lost belongs to another controller by now, or to none."""
        self._over.set()
        self._watch.join()
        os.environ.pop(LEASE, None)
        with suppress(sa.exc.SQLAlchemyError):
            self._connection.execute(_GIVE, _KEYS)
            self._connection.commit()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            try:
                self._connection.execute(sa.text("SELECT 1"))
                self._connection.commit()
            except sa.exc.SQLAlchemyError as error:
                if self._over.is_set():
                    return  # the work has ended, perhaps of the same cause: there is nothing to interrupt
                text = (
                    f"this controller has lost its lock - Expected: a connection that stays Actual: {error_text(error)}"
                )
                self._lost(
                    f"{self._where}: {text}. What runs is ended; run the same command again once the database answers."
                )
                return


def error_text(error: BaseException) -> str:
    """Return the message of a database error, on one line."""
    return " ".join(str(client_error(error)).split()).removesuffix(".")


def _last(connection: sa.Connection) -> Any:  # noqa: ANN401 - a row of controllers, or None
    return connection.execute(sa.select(_controllers).order_by(_controllers.c.number.desc()).limit(1)).first()


def _who(row: Any) -> str:  # noqa: ANN401 - the same
    if row is None:
        return "an unknown process"
    minutes = max(0.0, time.time() - row.begun) / 60
    return f"pid {row.pid} on {row.host} (`{row.what}`, for {minutes:.0f} min)"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
