"""Commands that only read make no file and no folder in the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.cli import main
from rackready.paths import EnvPaths, private_dir
from tests.unit.cli.conftest import ROOT
from tests.unit.cli.keys import put_key


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--no-scheduler"),
        ("plan",),
        ("doctor",),
        ("gate", "list"),
        ("gate", "show", "node/gpu/sanity/ecc"),
        ("report",),
        ("report", "c1"),
        ("hostkey", "accept", "no-such-node"),
        ("evidence", "set-aside"),
        ("repair", "node01", "--reason", "test"),
        ("retire", "node01", "--reason", "test"),
    ],
    ids=" ".join,
)
def test_a_command_that_reads_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "inventories/lab").mkdir(parents=True)
    (tmp_path / "playbooks").mkdir()
    site = (ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8").replace(".rackready/sim/keys", "keys")
    (tmp_path / "inventories/lab/site.yml").write_text(site, encoding="utf-8")
    put_key(tmp_path / "keys/id_ed25519")
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.setenv("ENV", "lab")
    before = sorted(tmp_path.rglob("*"))
    main.run(list(arguments))
    assert sorted(tmp_path.rglob("*")) == before


def test_paths_of_an_environment_make_nothing(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "lab")
    names = [name for name, value in vars(EnvPaths).items() if isinstance(value, property)]
    assert {name for name in names if getattr(paths, name) is None} == set()
    assert list(tmp_path.iterdir()) == []


def test_a_private_folder_and_all_that_it_needs_are_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / ".rackready").mkdir(mode=0o755)
    made = private_dir(tmp_path / ".rackready/lab/logs")
    assert [folder.stat().st_mode & 0o777 for folder in (made, *made.parents[:2])] == [0o700] * 3
