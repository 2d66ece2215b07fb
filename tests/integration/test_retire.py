"""`rackready retire` on the real Pulumi engine, against BMCs and hosts of the test: no root, no containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rackready.model.outcome import Outcome
from rackready.model.state import NodeState
from tests.integration.provisioning import ENV, ROOT, Bench, engine_missing

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(bool(engine_missing()), reason=engine_missing()),
]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "clone", net=94)
    site = yaml.safe_load(made.paths.site_file.read_text(encoding="utf-8"))
    site["handover"] = {"kind": "file", "path": "ready.txt"}
    made.paths.site_file.write_text(yaml.safe_dump(site), encoding="utf-8")
    yield made
    made.rack.stop()


def rackready(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{ROOT}/.rackready/tools/bin:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "RACKREADY_ROOT": str(bench.root),
        "ENV": ENV,
        "PATH": path,
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "200",
    }
    argv = [sys.executable, "-m", "rackready", *words]
    return subprocess.run(
        argv, capture_output=True, text=True, env=environment, cwd=bench.root, timeout=300, check=False
    )


def test_a_node_leaves_for_good_and_the_others_stay(bench: Bench) -> None:
    bench.rack.set_power(bench.rack.node("node04"), "On")  # by somebody else, before us
    assert {result.outcome for result in bench.provision().values()} == {Outcome.PASS}
    ledger = bench.ledger()
    for node in bench.rack.nodes:
        ledger.set_state(node.name, NodeState.PROVISIONED)

    shown = rackready(bench, "retire", "node02", "--reason", "sold", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["steps"] == [
        "node02: provisioned",
        "would be drained in the scheduler: rackready: retired: sold",
        "would be powered off, and its resources removed from the rack's stack",
        "would be retired: sold",
    ]
    assert bench.rack.node("node02").power == "On"

    done = rackready(bench, "retire", "node02", "--reason", "sold", "--yes", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert Path(said.pop("log")).is_file()
    assert said == {
        "name": "node02",
        "done": True,
        "changed": True,
        "message": "node02: retired: powered off",
    }
    assert [node.power for node in bench.rack.nodes] == ["On", "Off", "On", "On"]
    assert "# node02: rackready: retired: sold" in (bench.root / "ready.txt").read_text(encoding="utf-8")
    assert set(bench.state()) == {"node01", "node03", "node04"}
    row = ledger.state("node02")
    assert row is not None
    assert (row.state, row.reason) == (NodeState.RETIRED, "sold")

    again = rackready(bench, "retire", "node02", "--reason", "sold", "--yes", "--output", "json")
    assert (again.returncode, json.loads(again.stdout)["message"]) == (0, "node02: is retired already (sold)")

    foreign = rackready(bench, "retire", "node04", "--reason", "lease ended", "--yes", "--output", "json")
    assert json.loads(foreign.stdout)["message"] == "node04: retired: was on before us, left on"
    assert bench.rack.node("node04").power == "On"

    check = rackready(bench, "provision", "--check")
    assert "node02 is retired (sold) and left out." in check.stderr
    assert [node.boots() for node in bench.rack.nodes] == [1, 1, 1, 0]
    ledger.close()
