"""A phase on nodes in production: a dry run first, drained only when something would change, left alone with jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.campaign import drained_phase, fabric
from rackready.campaign.drained_phase import Results, run_drained
from rackready.campaign.fabric import run_fabric_drained
from rackready.design.pinned import site_of
from rackready.design.switches import switch_config
from rackready.drivers.switch.configure import PORTS
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PLAN, NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
PASS = NodeResult(Outcome.PASS)
KEPT = NodeResult(Outcome.ERROR, "jobs run on it", touched=False)
NODES = ["node01", "node02", "node03"]


class World:
    """What is in production, what would change, whose jobs do not end; and what was done."""

    def __init__(
        self,
        busy: tuple[str, ...] = (),
        would: dict[str, NodeResult] | None = None,
        keep: tuple[str, ...] = (),
        unknown: tuple[str, ...] = (),
    ) -> None:
        self.busy, self.would, self.keep, self.unknown = busy, would or {}, keep, unknown
        self.looked: list[str] = []
        self.done: list[str] = []
        self.drained: dict[str, str] = {}

    def in_production(self, _ctx: PhaseContext, nodes: list[str]) -> tuple[list[str], Results]:
        return [node for node in nodes if node in self.busy], {node: KEPT for node in nodes if node in self.unknown}

    def take_out(self, _ctx: PhaseContext, reasons: dict[str, str]) -> Results:
        self.drained |= reasons
        return {node: KEPT for node in reasons if node in self.keep}

    def run(self, ctx: PhaseContext, nodes: list[str]) -> Results:
        (self.looked if ctx.check else self.done).extend(nodes)
        return {node: self.would.get(node, PASS) for node in nodes}


def would(*tasks: str) -> NodeResult:
    return NodeResult(Outcome.PASS, changed=True, data={"changes": list(tasks)})


@pytest.fixture
def ctx(tmp_path: Path) -> PhaseContext:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    return PhaseContext("sim", tmp_path, "c1")


def play(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext, world: World) -> Results:
    monkeypatch.setattr(drained_phase, "in_production", world.in_production)
    monkeypatch.setattr(drained_phase, "take_out", world.take_out)
    return run_drained(ctx, "optimize", world.run, NODES)


def test_nodes_out_of_production_are_done_without_a_look(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = World()
    assert play(monkeypatch, ctx, world) == dict.fromkeys(NODES, PASS)
    assert (world.looked, world.done, world.drained) == ([], NODES, {})


def test_where_nothing_would_change_nothing_is_drained_and_nothing_runs_twice(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    world = World(busy=("node01", "node02", "node03"))
    assert play(monkeypatch, ctx, world) == dict.fromkeys(NODES, PASS)
    assert (world.looked, world.done, world.drained) == (NODES, [], {})


def test_only_what_would_change_is_drained_with_the_reason(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = World(busy=("node01", "node02"), would={"node02": would("gpu_tuning : configure | Set")})
    assert set(play(monkeypatch, ctx, world)) == set(NODES)
    assert world.looked == ["node01", "node02"]
    assert sorted(world.done) == ["node02", "node03"]
    assert world.drained == {"node02": "optimize is about to change: gpu_tuning : configure | Set"}


def test_the_reason_says_what_differs_and_no_task(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    found = {
        "changes": ["host_roce : service | Report in a dry run what would be applied"],
        "differs": ["enp26s0np0 MTU 1500, wanted 9000"],
    }
    world = World(busy=("node01",), would={"node01": NodeResult(Outcome.PASS, changed=True, data=found)})
    play(monkeypatch, ctx, world)
    assert world.drained == {"node01": "optimize is about to change: enp26s0np0 MTU 1500, wanted 9000"}


def test_a_node_that_keeps_its_jobs_is_not_touched(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = World(busy=("node01", "node02"), would={"node01": would("a"), "node02": would("a")}, keep=("node01",))
    assert play(monkeypatch, ctx, world)["node01"] == KEPT
    assert sorted(world.done) == ["node02", "node03"]


def test_a_node_of_which_nobody_can_say_it_is_not_touched(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = World(unknown=("node02",))
    assert play(monkeypatch, ctx, world)["node02"] == KEPT
    assert world.done == ["node01", "node03"]


def test_a_dry_run_that_fails_is_no_word_about_changes(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = World(busy=("node01",), would={"node01": NodeResult(Outcome.FAIL, "node01: optimize: broken")})
    play(monkeypatch, ctx, world)
    assert world.drained == {"node01": "optimize is about to run, its dry run failed: node01: optimize: broken"}
    assert "node01" in world.done


def test_a_node_that_cannot_be_looked_at_is_an_error_and_not_changed(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    world = World(busy=("node01",), would={"node01": NodeResult(Outcome.ERROR, "cannot log in")})
    result = play(monkeypatch, ctx, world)["node01"]
    assert (result.outcome, result.message, result.touched) == (Outcome.ERROR, "cannot log in", False)
    assert world.drained == {}


def test_a_dry_run_drains_nobody(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = World(busy=("node01",), would={"node01": would("a")})
    monkeypatch.setattr(drained_phase, "in_production", world.in_production)
    monkeypatch.setattr(drained_phase, "take_out", world.take_out)
    assert run_drained(PhaseContext("sim", ctx.root, "c1", check=True), "optimize", world.run, NODES)["node01"].changed
    assert world.drained == {}


ALL_PORTS = frozenset({"swp1", "swp2", "swp3", "swp4"})


def ports_of(diff: str, ports: Collection[str]) -> set[str]:
    """The ports that NVUE's driver sees changed by the commands of a difference."""
    driver = CumulusNvue("leaf01", None)  # type: ignore[arg-type] # it asks the switch nothing
    return driver.touched([line.lstrip("+- ") for line in diff.splitlines()], ports)


@pytest.mark.parametrize(
    ("diff", "ports"),
    [
        ("", set()),
        ("+ nv set interface swp2 link mtu 9216", {"swp2"}),
        ("+ nv set interface swp1-3 link state up", {"swp1", "swp2", "swp3"}),
        ("+ nv set interface swp1,swp4 link state up", {"swp1", "swp4"}),
        ("+ nv set interface swp2 link mtu 9216\n+ nv set interface swp3 type swp", {"swp2", "swp3"}),
        ("+ nv set qos roce mode lossless", ALL_PORTS),
        ("+ nv set bridge domain br_default vlan 901", ALL_PORTS),
        ("+ nv set interface swp60 type swp", ALL_PORTS),
        ("- nv unset interface swp13", set()),
        ("- nv unset interface swp2 bridge", {"swp2"}),
        ("- nv unset qos roce", ALL_PORTS),
    ],
)
def test_which_ports_a_difference_is_about(diff: str, ports: set[str]) -> None:
    assert ports_of(diff, ALL_PORTS) == ports


class Fabric(World):
    """A fabric with a difference per switch."""

    diffs: dict[str, str]

    def switches(self, ctx: PhaseContext, names: list[str]) -> Results:
        if not ctx.check:
            self.done += names
        return {name: self._preview(name, self.diffs.get(name, ""), site_of(ctx)) for name in names}

    @staticmethod
    def _preview(name: str, diff: str, site: Site) -> NodeResult:
        ports = ports_of(diff, {port.name for port in switch_config(site, name).ports})
        return NodeResult(Outcome.PASS, changed=bool(diff), data={"diff": "in any words", PORTS: sorted(ports)})

    def playbook(
        self,
        ctx: PhaseContext,
        _playbook: str,
        nodes: list[str],
        _more: dict[str, list[str]] | None = None,
        tags: list[str] | None = None,
    ) -> Results:
        return dict.fromkeys(nodes, PASS) if tags == ["rails"] else self.run(ctx, nodes)


def fabric_of(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext, world: Fabric, nodes: list[str], **diffs: str
) -> Results:
    world.diffs = diffs
    for name, stand_in in {
        "in_production": world.in_production,
        "take_out": world.take_out,
        "run_switches": world.switches,
        "run_playbook": world.playbook,
        "wrong_cables": lambda _ctx, _names: {},
        "verify_fabric": lambda _ctx, names: dict.fromkeys(names, PASS),
    }.items():
        monkeypatch.setattr(fabric, name, stand_in)
    return run_fabric_drained(ctx, nodes)


ALL = ("node01", "node02", "node03", "node04")


def test_a_fabric_as_wanted_is_verified_and_nobody_is_drained(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    world = Fabric(busy=ALL)
    out = fabric_of(monkeypatch, ctx, world, list(ALL))
    assert {node: (result.outcome, result.changed) for node, result in out.items()} == dict.fromkeys(
        ALL, (Outcome.PASS, False)
    )
    assert world.drained == {}
    assert world.done == ["leaf01", "leaf02"], "switches are verified; the hosts' dry run stands"


def test_ports_of_a_new_node_touch_nobody_in_production(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = Fabric(busy=("node01", "node02", "node03"))
    out = fabric_of(monkeypatch, ctx, world, list(ALL), leaf01="+ nv set interface swp13-16 link mtu 9216")
    assert world.drained == {}
    assert [node for node, result in sorted(out.items()) if result.changed] == ["node04"]


def test_a_change_of_all_ports_drains_everybody_behind_the_switch(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    world = Fabric(busy=("node01", "node02"))
    fabric_of(monkeypatch, ctx, world, list(ALL), leaf01="+ nv set qos roce mode lossless")
    assert world.drained == dict.fromkeys(("node01", "node02"), "fabric is about to change: its ports on leaf01")
    assert {"leaf01", "leaf02", *ALL} == set(world.done)


def test_a_switch_waits_while_jobs_run_behind_the_ports_that_change(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    world = Fabric(busy=("node01", "node02"), keep=("node01",))
    out = fabric_of(monkeypatch, ctx, world, list(ALL), leaf01="+ nv set qos roce mode lossless")
    assert out["node01"] == KEPT
    assert out["node03"].message == (
        "leaf01: its ports would change - Expected: all nodes in production behind it drained "
        "Actual: not drained: node01. "
        "Nothing was changed. Run again when their jobs have ended."
    )
    assert not out["node03"].touched
    assert world.done == []


def test_a_node_in_production_that_was_not_asked_for_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    world = Fabric(busy=("node01", "node02"))
    out = fabric_of(monkeypatch, ctx, world, ["node03"], leaf02="+ nv set qos roce mode lossless")
    assert out["node03"].message == (
        "leaf02: its ports would change - Expected: all nodes in production behind it drained "
        "Actual: not drained: node01, node02. "
        "Nothing was changed. Run it for them, too (--limit), or for the whole site."
    )
    assert (world.done, world.drained) == ([], {})


def test_a_node_of_a_later_wave_is_drained_and_its_evidence_voided(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    ledger = Ledger.open(EnvPaths(ctx.root, "sim").database)
    ledger.put_campaign("c1", env="sim", kind="deploy", nodes=list(ALL), site_digest="d", abi="1", status="running")
    world = Fabric(busy=("node02",))
    fabric_of(monkeypatch, ctx, world, ["node01"], leaf01="+ nv set qos roce mode lossless")
    assert list(world.drained) == ["node02"]
    assert ledger.last_change("node02").at > 0
    assert ledger.last_change("node03").at == 0


def test_a_change_that_a_killed_run_left_open_counts_for_every_port(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext
) -> None:
    ledger = Ledger.open(EnvPaths(ctx.root, "sim").database)
    ledger.begin("leaf02", "switch-commit", "digest", {})
    world = Fabric(busy=("node02",))
    fabric_of(monkeypatch, ctx, world, list(ALL))
    assert world.drained == {"node02": "fabric is about to change: its ports on leaf02"}


def test_a_host_that_would_change_is_drained_for_that(monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext) -> None:
    world = Fabric(busy=("node01", "node02"), would={"node01": would("host_roce : service | Apply")})
    fabric_of(monkeypatch, ctx, world, list(ALL))
    assert world.drained == {"node01": "fabric is about to change: host_roce : service | Apply"}
    assert "node02" not in world.done


@pytest.mark.parametrize("busy", [(), ("node01", "node02", "node03")])
def test_a_dry_run_has_a_row_for_every_node_and_asks_the_switches_once(
    monkeypatch: pytest.MonkeyPatch, ctx: PhaseContext, busy: tuple[str, ...]
) -> None:
    world = Fabric(busy=busy)
    asked: list[list[str]] = []
    switches = world.switches
    monkeypatch.setattr(world, "switches", lambda ctx, names: asked.append(names) or switches(ctx, names))
    dry = replace(ctx, check=True)
    out = fabric_of(monkeypatch, dry, world, list(ALL), leaf01="+ nv set interface swp13-16 link mtu 9216")
    assert (world.drained, world.done, asked) == ({}, [], [["leaf01", "leaf02"]])
    assert {node: (row.data[PLAN]["step"], row.data[PLAN]["switches"]) for node, row in out.items()} == {
        **dict.fromkeys(ALL, ("run", [])),
        "node04": ("run", ["leaf01"]),
    }
