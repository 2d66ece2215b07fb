"""A real PostgreSQL server for tests: an ordinary process in a temporary folder, with a new database for each test."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rackready.design.database import read_server
from rackready.drivers.marked_processes import stat_fields
from rackready.paths import Database, EnvPaths

PASSWORD = "a-password-that-is-shown-nowhere"
_INSTALLED = Path("/usr/lib/postgresql")
"""Where Debian and Ubuntu put each version's programs."""
_HOWTO = Path(__file__).resolve().parents[1] / "docs/howto/postgresql.md"
_NEVER = datetime(2100, 1, 1, tzinfo=UTC)
_HBA = "local all postgres trust\nlocal all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n"
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "ssl": "on",
}


def programs() -> Path | None:
    """Return the folder of the newest server's programs, None when no server is installed."""
    found = shutil.which("initdb")
    folders = [path.parent for path in _INSTALLED.glob("*/bin/initdb")] + ([Path(found).parent] if found else [])
    return max(folders, key=lambda folder: [int(part) for part in folder.parts if part.isdigit()], default=None)


class PostgresServer:
    """One server. As root it runs as user postgres, since it refuses root."""

    def __init__(self, folder: Path, bin_: Path, inside: Sequence[str], address: str) -> None:
        self.folder, self._bin, self.address = folder, bin_, address
        self.port = _free_port()
        self._numbers = itertools.count(1)
        ours = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        self._as = [*inside, *(ours if os.geteuid() == 0 else ())]
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        self._run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "postgres",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        )
        make_certificate(self.ca, self.data / "server.key", address)
        shutil.copy(self.ca, self.data / "server.crt")
        if os.geteuid() == 0:
            shutil.chown(self.data / "server.key", "postgres", "postgres")
            shutil.chown(self.data / "server.crt", "postgres", "postgres")
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as conf:
            settings = _SETTINGS | {
                "port": str(self.port),
                "listen_addresses": f"'{address}'",
                "unix_socket_directories": f"'{folder}'",
                "logging_collector": "off",
            }
            conf.writelines(f"{key} = {value}\n" for key, value in settings.items())
        others = "" if address == "127.0.0.1" else "host all all samenet scram-sha-256\n"
        (self.data / "pg_hba.conf").write_text(f"{_HBA}{others}", encoding="utf-8")
        self.start()
        self.sql(f"CREATE ROLE rackready LOGIN PASSWORD '{PASSWORD}'")

    @classmethod
    def begin(cls, inside: Sequence[str] = (), address: str = "127.0.0.1") -> PostgresServer:
        """Make and start a server. Its folder must be one that user postgres can reach, which pytest's are not.

        ``inside``: begins the commands of its programs, as `ip netns exec NAME` does; ``address``: where it listens
        there. Its Unix socket is reached from everywhere.
        """
        folder = programs()
        assert folder is not None
        return cls(Path(tempfile.mkdtemp(prefix="rr-pg-")), folder, inside, address)

    @property
    def ca(self) -> Path:
        """The certificate that signed the server's: itself. It is for the address, and for no name."""
        return self.folder / "ca.pem"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-l", str(self.folder / "log"), "-w", "start")

    def stop(self) -> None:
        """Stop at once, as a crash does."""
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def kill(self) -> None:
        """SIGKILL of all its processes, as when the kernel ends them for want of memory."""
        pid = self._postmaster()
        os.kill(pid, signal.SIGSTOP)  # else it could start another one meanwhile
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for one in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        while any(_lives(one) for one in (pid, *map(int, children))):
            time.sleep(0.05)
        for lock in (self.data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            lock.unlink()  # a zombie that nobody has reaped yet would count as another server

    def close(self) -> None:
        if _lives(self._postmaster()):
            self.stop()
        shutil.rmtree(self.folder)

    def over_tcp(self) -> dict[str, str]:
        """Return the settings of machines that reach it over the network: with TLS, verified."""
        return {"host": self.address, "ca": str(self.ca)}

    def _postmaster(self) -> int:
        path = self.data / "postmaster.pid"
        return int(path.read_text(encoding="ascii").split()[0]) if path.exists() else 0

    def _run(self, program: str, *arguments: str) -> None:
        argv = [*self._as, str(self._bin / program), *arguments]
        done = subprocess.run(
            argv,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        said = (self.folder / "log").read_text(encoding="utf-8")[-2000:] if (self.folder / "log").exists() else ""
        assert done.returncode == 0, f"{done.stdout}{said}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the server's superuser."""
        with psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname=database, autocommit=True
        ) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]  # a statement of a test, not a literal
            return cursor.fetchall() if cursor.description else []

    def database(self, root: Path, env: str = "lab", **settings: Any) -> Database:
        """Make an empty database and write an environment's settings that name it below ``root``.

        ``settings`` override the plain ones.
        """
        name = f"test{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} OWNER rackready")
        return self.settings(root, env, name=name, **settings)

    def granted(self, root: Path, env: str, name: str) -> Database:
        """Make a role with the rights of docs/howto/postgresql.md on a database, and write the settings of its use."""
        (rights,) = re.findall(
            r"```sql\n(CREATE ROLE controller .*?)```", _HOWTO.read_text(encoding="utf-8"), re.DOTALL
        )
        role = f"controller_of_{name}"
        for statement in rights.replace("controller", role).replace("...", PASSWORD).split(";\n"):
            if statement:
                self.sql(statement, name)
        return self.settings(root, env, name=name, user=role)

    def settings(self, root: Path, env: str = "lab", **settings: Any) -> Database:
        """Write the settings alone."""
        paths = EnvPaths(root, env)
        paths.inventory.mkdir(parents=True, exist_ok=True)
        secret = paths.inventory / "secrets/database"  # Ansible reads no inventory there
        secret.parent.mkdir(mode=0o700, exist_ok=True)
        secret.write_text(PASSWORD, encoding="utf-8")
        secret.chmod(0o600)
        plain = {
            "schema": "rackready/database/v1",
            "host": str(self.folder),
            "port": self.port,
            "password": {"file": str(secret)},
        }
        document = {key: value for key, value in (plain | settings).items() if value is not None}
        (paths.inventory / "database.yml").write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML, too
        return paths.database


def make_certificate(path: Path, key_path: Path, address: str = "127.0.0.1") -> None:
    """Write a self-signed certificate for an address and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test's server")])
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), datetime(2020, 1, 1, tzinfo=UTC), _NEVER
    )
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = made.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False
    )
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    key_path.touch(mode=0o600)
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def name_of(database: Database) -> str:
    """Return which database of the server the settings name."""
    return read_server(database.settings).name


def _lives(pid: int) -> bool:
    fields = stat_fields(pid) if pid else None
    return fields is not None and fields[0] != "Z"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
