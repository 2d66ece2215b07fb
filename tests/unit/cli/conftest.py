"""Calling the command line in a checkout that has the site file of the simulated rack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.cli import main
from tests.unit.cli.keys import put_key

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401
    """Call the command line in this process; returns (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(list(arguments)).code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:  # noqa: ANN401
    """Call it in a checkout that has the site file of the simulated rack."""
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    put_key(tmp_path / ".rackready/sim/keys/id_ed25519")
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")
    return command
