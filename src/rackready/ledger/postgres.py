"""The ledger on a PostgreSQL server, for controllers on several machines; one works at a time (``postgres_lock``)."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rackready.design.secrets import reveal
from rackready.ledger import postgres_lock as lock
from rackready.ledger import schema
from rackready.ledger.error import LedgerError, client_error
from rackready.model.database import Server, WorkerUse
from rackready.model.object_store import SharedOutputs
from rackready.paths import Database

_metadata = sa.MetaData()

_about = sa.Table(
    "about",
    _metadata,
    sa.Column("version", sa.Integer, primary_key=True, comment="schema.VERSION of the code that made the tables"),
    sa.Column("env", sa.String, nullable=False, comment="environment whose records these are"),
    sa.Column(
        "id", sa.String, nullable=False, comment="name of this ledger: fencing tokens of another are not comparable"
    ),
)

_CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,  # ms
    "application_name": "rackready",
}
"""How long we wait for the server, s: a broken connection is known within 20 s. Judgement."""

_OPTIONS = (
    "-c lock_timeout=30s -c synchronous_commit=on -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c "
    "tcp_keepalives_count=3 -c tcp_user_timeout=20s"
)
"""Options of our sessions: a commit is on disk, and the lock of a lost machine is free after 25 s. Judgement.

Linux sends no keepalives while data wait for an acknowledgement. Without tcp_user_timeout, a machine that is cut off
while the server answers it would keep its locks for 15 minutes, longer than lock_timeout lets the others wait.
"""

_SYSTEM_CAS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Files of Debian's and Fedora's ca-certificates, in the order of Go's crypto/x509/root_linux.go.

libpq's "system" is OpenSSL's own folder, and that of the OpenSSL in psycopg's wheels exists on no machine.
"""

_READING = f"{_OPTIONS} -c default_transaction_read_only=on"

_ABSENT = "Make it as in docs/howto/postgresql.md, or correct name and user in {settings}."
_NO_RIGHT = "Grant the role what docs/howto/postgresql.md lists, then run again."
_STANDBY = "Name the primary, not a standby, as host in {settings}."
_CROWDED = "Raise max_connections of the server, or end other sessions, then run again."
_CUT_OFF = (
    "Nothing was half written. Run the same command again once the server answers: it goes on from what is recorded."
)
_BY_CODE = {
    "3D000": _ABSENT,  # invalid_catalog_name
    "42P01": _ABSENT,  # undefined_table
    "42501": _NO_RIGHT,  # insufficient_privilege
    "25006": _STANDBY,  # read_only_sql_transaction
    "55P03": "Find the other writer that does not end (pg_stat_activity), then run again.",  # lock_not_available
    "53300": _CROWDED,  # too_many_connections
    "53100": "Free disk space on the database's server, then run again.",  # disk_full
    "57P01": _CUT_OFF,  # admin_shutdown
    "57P02": _CUT_OFF,  # crash_shutdown
}
"""SQLSTATE of an error in a session -> the next step (PostgreSQL 15, appendix A)."""

_WITHOUT_CODE = {
    (
        "password authentication failed",
        "no password supplied",
        "certificate authentication failed",
        "peer authentication failed",
    ): ("Correct user, or the password in {secret}, then run again."),
    ("root certificate", "server certificate", "certificate verify", "SSL"): (
        "Correct tls, ca, certificate and private_key in {settings}, or the server's own certificate."
    ),
    ("does not exist",): _ABSENT,
    (
        "no pg_hba.conf entry",
    ): "Allow this machine, user and database in the server's pg_hba.conf, as in docs/howto/postgresql.md.",
    ("permission denied",): _NO_RIGHT,
    ("in recovery",): _STANDBY,
    ("too many clients", "remaining connection slots"): _CROWDED,
    (
        "refused",
        "could not translate",
        "Name or service",
        "No such file",
        "timeout",
        "timed out",
        "unreachable",
        "No route",
    ): ("Start the server, or correct host and port in {settings}, then run again."),
    (
        "server closed",
        "terminating connection",
        "connection is lost",
        "connection is closed",
        "could not receive",
        "could not send",
        "connection pointer",
    ): _CUT_OFF,
}
"""Words of libpq -> the next step: it gives no SQLSTATE where a connection cannot be made or breaks."""


_engines: dict[tuple[int, Server, str], sa.Engine] = {}
_engines_lock = threading.Lock()
_ENGINES_KEPT = 4
"""A process needs two, for writing and for reading; each has at most 10 connections."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """One database of a server, for one environment."""

    server: Server
    database: Database
    alone: bool = False
    writable: str = "a database that can be reached and takes writes"
    readable: str = "a database that can be reached"

    @property
    def place(self) -> str:
        """Return name, host and port of the database."""
        return str(self.server)

    @property
    def home(self) -> Path:
        """Return the path that the SQLite file would have."""
        return self.database.file

    @property
    def raw_outputs(self) -> SharedOutputs | None:
        """Return the place of raw outputs that all machines share, None when each keeps its own."""
        return self.server.raw_outputs

    @property
    def workers(self) -> WorkerUse | None:
        """Return what workers are used for, None when there are none."""
        return self.server.workers

    def engine(self) -> sa.Engine:
        """Connect, make the tables when they are absent, and check that they are ours. Raises LedgerError."""
        engine = self._pooled(_OPTIONS)
        with self._reported("cannot be opened"), engine.begin() as connection:
            if not _made(connection):
                lock.alone(connection)
                self._make_all(connection)
            self._is_ours(connection)
            if schema.lacking(connection) and _owned(connection):
                lock.alone(connection)
                for index in schema.lacking(connection):
                    index.create(connection)
        return engine

    def reader(self) -> sa.Engine:
        """Connect read-only. Raises LedgerError when nothing was recorded yet."""
        engine = self._pooled(_READING)
        with self._reported("cannot be read"), engine.connect() as connection:
            if not _made(connection):
                raise LedgerError(
                    self.server,
                    "no ledger",
                    expected="one made by a run",
                    actual="none",
                    next_step="Nothing was deployed yet: run `rackready deploy`.",
                )
            self._is_ours(connection)
        return engine

    def close(self, engine: sa.Engine) -> None:
        """Do nothing: the process shares the engine."""

    def exists(self) -> bool:
        """Return whether the ledger's tables exist."""
        with self._looking() as connection:
            return _made(connection)

    def make(self, engine: sa.Engine, metadata: sa.MetaData) -> None:
        """Make tables that are absent, all or none. Of two processes at once, the second finds them made."""
        with engine.begin() as connection:
            there = sa.inspect(connection)
            if not all(there.has_table(name) for name in metadata.tables):
                lock.alone(connection)
                metadata.create_all(connection)

    def make_owned(self, engine: sa.Engine, wanted: Sequence[sa.MetaData]) -> None:
        """Make these tables as well, where this role owns the ledger's: others get rights on those that are there."""
        with engine.connect() as connection:
            owned = _owned(connection)
        for metadata in wanted if owned else ():
            self.make(engine, metadata)

    def guard(self, connection: sa.Connection) -> None:
        """Check that no other controller works on these records, and keep other writers out in this transaction."""
        lock.guard(connection, str(self.server))

    def identity(self, engine: sa.Engine) -> str:
        """Return the random name that the ledger got when it was made: the same on every machine."""
        with self._reported("cannot be read"), engine.connect() as connection:
            return str(connection.execute(sa.select(_about.c.id)).scalar_one())

    def machine_of(self, engine: sa.Engine, boot_id: str) -> str:
        """Return the other machine that ran in that boot."""
        with self._reported("cannot be read"), engine.connect() as connection:
            return lock.machine_of(connection, boot_id)

    def step(self, cause: BaseException, *, reading: bool = False) -> str:  # noqa: ARG002 - it is the same for both
        """Return the next step after that error."""
        places = {
            "settings": self.database.settings,
            "secret": self.server.password or f"{self.database.settings} (it names no password)",
        }
        return _step(cause).format(**places)

    @contextmanager
    def controller(self, what: str) -> Iterator[None]:
        """Be the only controller while the connection lives. Its early end interrupts this process as Ctrl-C does."""
        self.engine()  # makes what is absent
        engine = self._connect(_OPTIONS)
        try:
            with self._reported("cannot be locked"):
                connection = engine.connect()
            with closing(connection):
                with self._reported("cannot be locked"):
                    number = lock.take(connection, str(self.server), what)
                    lock.settle(connection, number)
                with lock.Hold(connection, str(self.server), number):
                    yield
        finally:
            engine.dispose()

    def holder(self) -> str:
        """Return the present controller, "" when there is none."""
        with self._looking() as connection:
            return lock.holder(connection) if _made(connection) else ""

    def _make_all(self, connection: sa.Connection) -> None:
        if not _made(connection):  # else another process was quicker
            for metadata in (schema.metadata, lock.metadata, _metadata):
                metadata.create_all(connection)
            connection.execute(
                sa.insert(_about).values(version=schema.VERSION, env=self.database.env, id=secrets.token_hex(8))
            )

    def _is_ours(self, connection: sa.Connection) -> None:
        about = connection.execute(sa.select(_about)).one()
        if about.env != self.database.env:
            raise LedgerError(
                self.server,
                expected=f"the records of environment {self.database.env}",
                actual=f"those of {about.env}",
                next_step=f"Give each environment a database of its own: correct name in {self.database.settings}.",
            )
        if about.version != schema.VERSION:
            older = about.version < schema.VERSION
            way = (
                "Name an empty database, or keep using that rackready."
                if older
                else "Use that rackready on this machine, too."
            )
            raise LedgerError(
                self.server,
                expected=f"tables of version {schema.VERSION}",
                actual=f"version {about.version}, made by {'an older' if older else 'a newer'} rackready",
                next_step=way,
            )

    def _pooled(self, options: str) -> sa.Engine:
        """Return the engine that this process shares: a hundred nodes that wait for their boot need few connections."""
        key = (os.getpid(), self.server, options)
        with _engines_lock:
            engine = _engines.pop(key, None) or self._connect(options)
            _engines[key] = engine
            while len(_engines) > _ENGINES_KEPT:
                _engines.pop(next(iter(_engines))).dispose()
        return engine

    def _connect(self, options: str) -> sa.Engine:
        """Return an engine that connects on use. The password goes to the client library only and is in no URL."""
        server = self.server
        query = {"host": server.host, "port": str(server.port)}
        url = sa.URL.create("postgresql+psycopg", username=server.user, database=server.name, query=query)
        password = {} if server.password is None else {"password": reveal(server.password)}
        return sa.create_engine(
            url,
            connect_args={**_CONNECT, **_tls(server), **password, "options": options},
            pool_pre_ping=True,
            pool_size=5,
            max_overflow=5,
            pool_timeout=60,
        )

    @contextmanager
    def _looking(self) -> Iterator[sa.Connection]:
        with self._reported("cannot be read"), self._pooled(_READING).connect() as connection:
            yield connection

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError(
                self.server,
                f"the ledger {what}",
                expected=self.writable,
                actual=lock.error_text(error),
                next_step=self.step(client_error(error)),
            ) from error


def _step(cause: BaseException) -> str:
    code = getattr(cause, "sqlstate", None)
    other = "Run `rackready doctor`, and look at the server's log."
    if code is not None:
        return _BY_CODE.get(code, other)
    said = str(cause)
    return next((text for words, text in _WITHOUT_CODE.items() if any(word in said for word in words)), other)


def _made(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table(_about.name)


def _owned(connection: sa.Connection) -> bool:
    """Return whether this role may make indexes: one that does not own the tables works without them."""
    query = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = CAST('events' AS regclass)"
    return bool(connection.execute(sa.text(query)).scalar())


def _tls(server: Server) -> dict[str, str]:
    """Return libpq's options for TLS. A Unix socket needs none."""
    if server.host.startswith("/") or server.tls == "disable":
        return {"sslmode": "disable"}
    own = (
        {"sslcert": str(server.certificate), "sslkey": str(server.private_key)}
        if server.certificate is not None
        else {}
    )
    return {"sslmode": server.tls, "sslrootcert": str(server.ca or _system_cas(server)), **own}


def _system_cas(server: Server) -> str:
    """Return the file of the system's CAs. Raises LedgerError."""
    for path in filter(None, (os.environ.get("SSL_CERT_FILE"), *_SYSTEM_CAS)):
        if Path(path).is_file():
            return path
    raise LedgerError(
        server,
        "the server's certificate cannot be verified",
        expected=f"the system's CAs in {' or '.join(_SYSTEM_CAS)}",
        actual="neither is there",
        next_step="Install ca-certificates on this machine, or name the CA of the server as ca in database.yml.",
    )
