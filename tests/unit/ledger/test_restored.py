"""A ledger restored as docs/howto/ledger-backup.md says: nodes take its orders, and refuse a stale controller."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.ledger.store import Ledger
from rackready.ondevice.command import NodeProblem
from rackready.ondevice.fence import fence
from tests.postgres import PostgresServer

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs/howto/ledger-backup.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)


def shell(script: str, ledger: Path, backup: Path) -> None:
    script = script.replace("/backup/", f"{backup}/")
    subprocess.run(["bash", "-e", "-c", script], cwd=ledger.parent, check=True, timeout=60)


def act(ledger: Ledger, node: Path) -> int:
    """Act once on a node behind its fence."""
    token = ledger.begin("node01", "install", "d", {}).token
    with fence("install", token, ledger.identity(), folder=node):
        pass
    ledger.done(token)
    return token


def test_sqlite(tmp_path: Path) -> None:
    save, restore, raise_ = blocks("sh")
    file, backup, node = tmp_path / "state/state.sqlite", tmp_path / "backup", tmp_path / "node"
    backup.mkdir()
    with closing(Ledger.open(file)) as ledger:
        first, identity = act(ledger, node), ledger.identity()
        shell(save, file, backup)
        last = [act(ledger, node) for _ in range(5)][-1]
    shell(restore, file, backup)
    with closing(Ledger.open(file)) as ledger:
        assert ledger.identity() == identity, "nodes go on comparing"
        assert [entry.token for entry in ledger.entries()] == [first]
        with pytest.raises(NodeProblem, match="If none does and the ledger was restored from a backup"):
            act(ledger, node)
    shell(raise_, file, backup)
    with closing(Ledger.open(file)) as ledger:
        assert act(ledger, node) > last + 9_999_000
        stale(node, last + 1, identity)


def stale(node: Path, token: int, identity: str) -> None:
    """See that a controller of the ledger before the restore is refused."""
    with pytest.raises(NodeProblem, match="A newer controller acts"), fence("install", token, identity, folder=node):
        pass


def test_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    database, node = postgres.database(tmp_path, "x"), tmp_path / "node"
    (raise_,) = blocks("sql")
    with closing(Ledger.open(database)) as ledger:
        last, identity = [act(ledger, node) for _ in range(3)][-1], ledger.identity()
        rewind(ledger)
        with pytest.raises(NodeProblem):
            act(ledger, node)
        with ledger.write() as connection:
            connection.execute(sa.text(raise_))
        assert act(ledger, node) > last + 9_999_000
        stale(node, last + 1, identity)


def rewind(ledger: Ledger) -> None:
    """Set tables and numbers back, as a restore does."""
    with ledger.write() as connection:
        connection.execute(sa.text("DELETE FROM operations"))
        connection.execute(sa.text("SELECT setval(pg_get_serial_sequence('operations', 'token'), 1, false)"))
