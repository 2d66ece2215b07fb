"""The databases that benchmarks put records in: a SQLite file, and a PostgreSQL server where one is installed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready.paths import EnvPaths
from tests.postgres import PostgresServer, name_of, programs


def kinds() -> list[str]:
    """Return the kinds to measure: all that are here, or the one that $BENCH_DATABASE names."""
    wanted = os.environ.get("BENCH_DATABASE", "")
    here = ["sqlite", *(["postgresql"] if programs() is not None else [])]
    return [kind for kind in here if wanted in {"", kind}]


@contextmanager
def records_in(kind: str, env: str) -> Iterator[tuple[Path, Callable[[], int]]]:
    """Yield an empty site repository whose records are in this kind of database, and a function of its size, bytes."""
    with tempfile.TemporaryDirectory(prefix="rackready-bench-") as folder:
        root = Path(folder)
        if kind == "sqlite":
            file = EnvPaths(root, env).database.file
            yield root, lambda: sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))
            return
        server = PostgresServer.begin()
        try:
            name = name_of(server.database(root, env))
            yield root, lambda: int(server.sql(f"SELECT pg_database_size('{name}')")[0][0])
        finally:
            server.close()
