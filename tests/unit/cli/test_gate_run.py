"""`rackready gate run` on nodes in production: gates that load a node are refused with exact words and a next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rackready.cli import main
from rackready.gates.engine import validate
from rackready.handover import production
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths, project_root

ROOT = Path(__file__).resolve().parents[3]
LOADS = "node/gpu/validation/dcgm-r1"
SILENT = (
    "node04: jobs on it - Expected: known from the scheduler Actual: x. Nothing was changed. Run again once it answers."
)


class World:
    """What is in production, of which nodes nobody can say it, and what was measured and asked for."""

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.unknown: set[str] = set()
        self.measured: list[str] = []
        self.asked: list[str] = []

    def in_production(self, _ctx: PhaseContext, nodes: list[str]) -> tuple[list[str], dict[str, NodeResult]]:
        self.asked += nodes
        return [node for node in nodes if node in self.busy], {
            node: NodeResult(Outcome.ERROR, SILENT) for node in nodes if node in self.unknown
        }

    def run_gates(self, _ctx: PhaseContext, nodes: list[str], *, only: list[str]) -> dict[str, NodeResult]:
        assert only
        self.measured += nodes
        return dict.fromkeys(nodes, NodeResult(Outcome.PASS))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    made = World()
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.setattr(production, "in_production", made.in_production)
    monkeypatch.setattr(validate, "run_gates", made.run_gates)
    return made


def call(*arguments: str) -> int:
    return main.run(["gate", "run", *arguments]).code


@pytest.mark.parametrize("gate", [LOADS, "pair/fabric/performance/ib-write-bw"])
def test_a_gate_that_loads_nodes_is_refused_in_production(
    world: World, capsys: pytest.CaptureFixture[str], gate: str
) -> None:
    world.busy = {"node01", "node03"}
    assert call(gate) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"gate run {gate}: it loads nodes - Expected: no node in production Actual: node01, node03. Nothing ran. "
        "Drain them, or use `rackready validate --again --limit node01,node03 --env sim`, which waits for their "
        "jobs, or name other nodes with --limit."
    )
    assert (world.asked, world.measured) == (["node01", "node02", "node03", "node04"], [])


def test_where_nobody_can_say_it_nothing_is_measured(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.unknown = {"node04"}
    assert call(LOADS) == 2
    assert capsys.readouterr().err.splitlines()[-1] == SILENT
    assert world.measured == []


def test_nodes_out_of_production_are_measured(world: World) -> None:
    world.busy = {"node01"}
    assert call(LOADS, "--node", "node02") == 0
    assert (world.asked, world.measured) == (["node02"], ["node02"])


@pytest.mark.parametrize(
    "given",
    [
        ("--limit", "node[01-02]"),
        ("--node", "node01,node02"),
        ("--node", "node01", "--node", "node02"),
        ("--limit", "node01", "--limit", "node[01-02]"),
    ],
    ids=["host list", "comma", "repeated", "twice"],
)
def test_nodes_are_named_as_every_next_step_names_them(world: World, given: tuple[str, ...]) -> None:
    """Refusals say `exclude them with --limit`."""
    assert call(LOADS, *given) == 0
    assert world.measured == ["node01", "node02"]


@pytest.mark.parametrize("given", ["node9", ""])
def test_a_node_that_is_not_of_the_site_is_refused(
    world: World, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(LOADS, "--node", given) == 2
    assert capsys.readouterr().err == (
        f"{f'--limit {given}'.rstrip()} - Expected: some of node[01-04] Actual: {given or 'nothing'}. "
        "Correct the name: `rackready status` lists the nodes.\n"
    )
    assert world.measured == []


@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_a_run_has_a_log_that_v_shows(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], verbose: tuple[str, ...]
) -> None:
    assert call(LOADS, "--node", "node02", *verbose, "--output", "json") == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["log"] == f"{tmp_path}/.rackready/sim/logs/{document['campaign']}/rackready.log"
    line = f"rackready gate run {LOADS} --env sim: begins"
    assert line in Path(document["log"]).read_text(encoding="utf-8")
    assert (f"cli: {line}" in said.err) is bool(verbose)
    assert world.measured == ["node02"]


def test_a_gate_that_only_looks_runs_everywhere(world: World) -> None:
    world.busy, world.unknown = {"node01"}, {"node02"}
    assert call("node/gpu/sanity/inventory") == 0
    assert (world.asked, len(world.measured)) == ([], 4)


@pytest.mark.parametrize(
    "command", [["gate", "run", "node/gpu/sanity/inventory"], ["plan"], ["doctor"], ["validate", "--check"], ["deploy"]]
)
def test_a_gate_of_the_site_that_does_not_exist_is_refused_before_anything_is_done(
    world: World, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    site = EnvPaths(project_root(), "sim").site_file
    document = yaml.safe_load(site.read_text(encoding="utf-8"))
    document["gates"]["also"] = [{"id": "node/gpu/x"}]
    site.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert main.run(command).code == 2
    said = capsys.readouterr()
    assert (
        "gates.also[0].id: gate node/gpu/x does not exist - Expected: an id that `rackready gate list` shows. "
        "Correct it." in " ".join((said.out + said.err).replace("\u2502", " ").split())
    )
    assert world.measured == []


@pytest.mark.usefixtures("world")
def test_a_set_shows_its_gates_and_every_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = {"node/gpu/sanity/ecc": "pass", "node/gpu/sanity/xid": "fail", "node/host/sanity/clock": "error"}
    found = ["node01 gpu3: XID 79", "node01: chronyc is not installed"]
    result = NodeResult(Outcome.FAIL, found[0], data={"gates": gates, "findings": found})
    monkeypatch.setattr(validate, "run_gates", lambda *_, **__: {"node01": result})
    assert call("node/gpu/sanity/ecc", "node/gpu/sanity/xid", "node/host/sanity/clock", "--node", "node01") == 1
    assert capsys.readouterr().out.splitlines() == [
        "node01: fail (1 pass, 1 fail, 1 error)",
        "  fail    node/gpu/sanity/xid",
        "  error   node/host/sanity/clock",
        "  node01 gpu3: XID 79",
        "  node01: chronyc is not installed",
    ]
