"""Calling the command line in a checkout that has the site file of the simulated rack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.cli import main
from rackready.cli.output import console
from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError
from rackready.model.site import SlurmHandover
from rackready.paths import EnvPaths
from tests.unit.cli.keys import put_key

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to the Slurm controller at once.

    The site file has an example address (RFC 5737) for it. Nobody answers there, and a real connection waits for that.
    """

    def refuse(handover: SlurmHandover, paths: EnvPaths) -> SchedulerAdapter:
        del paths
        raise SchedulerError(
            f"the Slurm controller ({handover.controller}:{handover.port}): no SSH service - Expected: an answer "
            "Actual: connection refused. Check its power, network and address."
        )

    monkeypatch.setitem(registry.ADAPTERS, "slurm", refuse)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401
    """Return a function that calls the command line here: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(list(arguments)).code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any, no_controller: None) -> Any:  # noqa: ANN401
    """Return the same for a checkout that has the site file of the simulated rack; its controller refuses."""
    _ = no_controller
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    put_key(tmp_path / ".rackready/sim/keys/id_ed25519")
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")
    return command


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:  # noqa: ANN401
    """Return a function that calls `rackready size` here: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(console, "width", 240)  # COLUMNS is read once, at the first import in this process
        return command("size", *arguments)  # type: ignore[no-any-return]

    return run
