"""Fixtures of all tests. Tests of the simulated rack run last; without root they are skipped with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.paths import Database, EnvPaths
from tests.gates.outcomes import EveryOutcome
from tests.postgres import PostgresServer, programs


def pytest_configure(config: pytest.Config) -> None:
    """Count outcomes of gates in the one process to which all workers report."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(EveryOutcome())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put quick tests first, so that a mistake shows within seconds; leave out what root is needed for."""
    items.sort(key=lambda item: item.get_closest_marker("integration") is not None)
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("integration") is not None:
                item.add_marker(pytest.mark.skip(reason="needs root: the simulated rack makes containers and networks"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    if programs() is None:
        pytest.skip("no PostgreSQL server is installed: `make test` as root installs it (apt: postgresql)")
    server = PostgresServer.begin()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Where an environment's records are kept, on either database: nothing is there yet."""
    if request.param == "sqlite":
        return EnvPaths(tmp_path, "lab").database
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database(tmp_path)
