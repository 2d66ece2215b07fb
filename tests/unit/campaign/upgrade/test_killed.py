"""Upgrades as whole processes, killed with SIGKILL in every phase of every wave: real campaigns, fake phases."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.request import UPGRADE
from rackready.design.node_sets import read
from rackready.paths import EnvPaths
from tests import forked
from tests.unit.campaign.upgrade.upgrade_sites import OLD, ROOT
from tests.unit.cli.keys import put_key

PROGRAM = Path(__file__).with_name("fake_fleet.py")
NEW = "hgx-r580-later"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with the simulated rack's site, a newer set, and a key."""
    folder = tmp_path / "inventories/sim/profiles/software"
    folder.mkdir(parents=True)
    for name in ("playbooks", "roles", "plugins", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/sim/site.yml")
    text = (ROOT / f"src/rackready/profiles/software/{OLD}.yml").read_text(encoding="utf-8")
    text = text.replace("580.173.02", "580.178.01").replace(f"id: {OLD}", f"id: {NEW}")
    (folder / f"{NEW}.yml").write_text(text, encoding="utf-8")
    put_key(tmp_path / ".rackready/sim/keys/id_ed25519")
    return tmp_path


def run(root: Path, mode: str, *arguments: str) -> tuple[int, Any]:
    errors = root / "errors.log"
    with errors.open("w", encoding="utf-8") as err:
        child = forked.start([PROGRAM, root, mode, *(arguments or ("--to", NEW)), "--output", "json"], err=err)
    text, _ = child.communicate(timeout=120)
    return child.wait(), json.loads(text) if text else errors.read_text(encoding="utf-8")


def did(root: Path) -> list[str]:
    return (root / "did.log").read_text(encoding="utf-8").splitlines()


def steps(document: Any) -> dict[str, str]:  # noqa: ANN401 - a JSON document
    return {row["name"]: row["step"] for row in document["nodes"]}


def phases_of(lines: Iterable[str], node: str) -> list[str]:
    return [line.split()[0] for line in lines if line.split()[1] == node]


def test_every_wave_goes_through_all_phases_with_the_new_set(root: Path) -> None:
    code, document = run(root, "run")
    assert code == 0, document
    assert set(steps(document).values()) == {"ready"}
    lines = did(root)
    assert all(phases_of(lines, node) == list(UPGRADE) for node in steps(document))
    assert {line.split()[2] for line in lines} == {NEW}
    assert {node: found.now.set for node, found in read(EnvPaths(root, "sim").node_sets).items()} == dict.fromkeys(
        steps(document), NEW
    )


@pytest.mark.parametrize(
    ("phase", "node"),
    [
        ("take-out", "node01"),
        ("install", "node02"),
        ("handover", "node03"),
        ("fabric", "node04"),
    ],
)
def test_killed_in_a_wave_it_goes_on_there(root: Path, phase: str, node: str) -> None:
    code, _ = run(root, f"die:{phase}:{node}")
    assert code == -signal.SIGKILL
    before = did(root)
    code, document = run(root, "run")
    assert code == 0, document
    assert set(steps(document).values()) == {"ready"}
    again = did(root)[len(before) :]
    assert again[0].startswith(f"{phase} "), "it goes on in the phase that was cut off"
    for name in steps(document):
        assert phases_of([*before, *again], name).count("install") <= (2 if phase == "install" else 1)


def test_killed_on_the_way_back_it_goes_on_there(root: Path) -> None:
    code, document = run(root, "fail:install:node02")
    assert (code, steps(document)["node02"], document["state"]) == (1, "rolled-back", "stopped"), document
    assert [line for line in did(root) if line.startswith("install node02")] == [
        f"install node02 {NEW}",
        f"install node02 {OLD}",
    ]
    assert set(read(EnvPaths(root, "sim").node_sets)) == {"node01", "node03"}
    code, document = run(root, "run", "--resume")
    assert (code, steps(document)["node04"]) == (1, "ready"), document


def test_a_node_that_fails_validation_keeps_the_new_set_and_its_quarantine(root: Path) -> None:
    code, document = run(root, "fail:validate:node04")
    assert (code, steps(document)["node04"], document["state"]) == (1, "failed", "finished"), document
    assert f"certify node04 {NEW}" not in did(root)
    code, plan = run(root, "run", "--to", NEW, "--failed-only")
    assert (code, plan["left_out"]["node04"].partition(":")[0]) == (0, "is quarantined")
