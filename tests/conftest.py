"""Fixtures of all tests. Tests of the simulated rack run last; without root they are skipped with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rackready.paths import Database, EnvPaths
from tests.dead_worker import DeadWorker
from tests.gates.outcomes import EveryOutcome
from tests.postgres import PostgresServer, programs

LONGEST_FIRST = (
    "tests/integration/test_main_job.py",
    "tests/integration/test_kill.py",
    "tests/integration/test_provision_killed.py",
    "tests/integration/test_provision.py",
    "tests/integration/test_fabric_switches.py",
    "tests/integration/test_production.py",
    "tests/integration/test_molecule.py",
    "tests/integration/test_sim_rack.py",
    "tests/integration/test_systems.py",
    "tests/integration/test_trouble.py",
    "tests/unit/campaign/test_campaign.py",
    "tests/unit/campaign/test_workers.py",
    "tests/unit/cli/test_commands.py",
    "tests/unit/campaign/upgrade/test_killed.py",
    "tests/unit/campaign/test_workers_cut_off.py",
    "tests/unit/ethtwin/test_ethernet_twin.py",
    "tests/gates/test_torch_real.py",
    "tests/unit/cli/test_inventory.py",
    "tests/unit/mirror/test_apt_mirror.py",
    "tests/unit/mirror/test_rpm_mirror.py",
    "tests/unit/netbox/test_netbox.py",
    "tests/integration/test_worker_chaos.py",
    "tests/unit/campaign/test_shared_ledger.py",
    "tests/unit/design/test_plan.py",
    "tests/golden/test_packages.py",
    "tests/unit/cli/test_plan.py",
    "tests/gates/test_validate.py",
    "tests/plugins/test_inventory.py",
    "tests/unit/sim/programs/test_programs_perftest.py",
    "tests/unit/evidence/test_report_browser_racks.py",
    "tests/unit/evidence/test_report_stream.py",
    "tests/gates/test_rejudge.py",
    "tests/gates/host/test_mutations.py",
    "tests/stacks/test_machine.py",
    "tests/gates/power/test_bmc_mains.py",
)
"""Files that take long, the longest first: a worker takes a whole file, and one that began last would run alone."""


settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""A busy machine is no defect: no test of this project fails for its time."""


def pytest_configure(config: pytest.Config) -> None:
    """Count outcomes of gates, and dead workers, in the one process to which all workers report."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(EveryOutcome())
        config.pluginmanager.register(DeadWorker())


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long bytes by their argument: archives hold the time at which they were written, and workers must agree."""
    return argname if isinstance(val, bytes) and len(val) > 20 else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests without a rack first, then files that take long; skip what needs root where there is none."""
    items.sort(key=lambda item: (item.get_closest_marker("integration") is not None, _turn(item)))
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("integration") is not None:
                item.add_marker(pytest.mark.skip(reason="needs root: the simulated rack makes containers and networks"))


def _turn(item: pytest.Item) -> int:
    name = item.nodeid.partition("::")[0]
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Put back what programs of nodes set for themselves: tests call their main() in this process."""
    before = {name: os.environ.get(name) for name in ("LC_ALL", "PATH")}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a PostgreSQL server."""
    if programs() is None:
        pytest.skip("no PostgreSQL server is installed: `make test` as root installs it (apt: postgresql)")
    server = PostgresServer.begin()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return the place of an environment's records, on either database: empty."""
    if request.param == "sqlite":
        return EnvPaths(tmp_path, "lab").database
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database(tmp_path)
