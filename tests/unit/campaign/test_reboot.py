"""The reboot at the end of install: for a reason, once, observed first after a kill, refused where it may not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.campaign import reboot
from rackready.campaign.reboot import REBOOT, BootReading, Nodes, Reason, Results, parsed, run_with_reboot
from rackready.drivers.process import Interrupted
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
PASS = NodeResult(Outcome.PASS)
KEPT = NodeResult(Outcome.ERROR, "jobs run on it", touched=False)
PT = Reason("kernel-option", "iommu=pt on the kernel command line", "not there")
NOUVEAU = Reason("module-loaded", "kernel module nouveau not loaded", "loaded")
NAMES = ["node01", "node02"]


class Rack(Nodes):
    """Nodes with a boot id each; a reboot takes away the reasons, unless told otherwise."""

    def __init__(self, reasons: dict[str, tuple[Reason, ...]] | None = None) -> None:
        self.reasons = dict(reasons or {})
        self.boots = dict.fromkeys(NAMES, 1)
        self.done: list[str] = []
        self.down: set[str] = set()
        self.in_vain = False
        self.on_reboot: Callable[[str], None] = self.boot

    def boot(self, node: str) -> None:
        self.boots[node] += 1
        if not self.in_vain:
            self.reasons.pop(node, None)

    def look(self, node: str) -> BootReading:
        if node in self.down:
            return BootReading(failure="no answer")
        return BootReading(f"boot-{self.boots[node]}", self.reasons.get(node, ()))

    def reboot(self, node: str) -> None:
        self.done.append(node)
        self.on_reboot(node)

    def wait_until_up(self, node: str, timeout_s: float) -> None:
        assert timeout_s > 0, node


class World:
    """The site's setting, what is in production, and what was drained."""

    def __init__(self, ctx: PhaseContext, patch: pytest.MonkeyPatch) -> None:
        self.ctx = ctx
        self.busy: tuple[str, ...] = ()
        self.keep: tuple[str, ...] = ()
        self.drained: dict[str, str] = {}
        self.ran: list[str] = []
        patch.setattr(reboot, "in_production", lambda _ctx, nodes: ([node for node in nodes if node in self.busy], {}))
        patch.setattr(reboot, "take_out", self.take_out)
        patch.setattr(reboot, "_POLL_S", 0.01)

    def take_out(self, _ctx: PhaseContext, reasons: dict[str, str]) -> Results:
        self.drained |= reasons
        return {node: KEPT for node in reasons if node in self.keep}

    def allow(self, word: str) -> None:
        path = self.ctx.root / "inventories/sim/site.yml"
        path.write_text(path.read_text().replace("software:\n", f"software:\n  allow_reboot: {word}\n"))

    def limit(self, seconds: int) -> None:
        path = self.ctx.root / "inventories/sim/site.yml"
        path.write_text(path.read_text() + f"campaign: {{provision_timeout_s: {seconds}}}\n")

    def install(self, rack: Rack, ctx: PhaseContext | None = None) -> Results:
        def run(_ctx: PhaseContext, nodes: list[str]) -> Results:
            self.ran += nodes
            return dict.fromkeys(nodes, PASS)

        return run_with_reboot(ctx or self.ctx, run, NAMES, rack)

    def entries(self, node: str) -> list[str]:
        with Ledger.open(EnvPaths(self.ctx.root, "sim").database) as ledger:
            return [entry.status for entry in ledger.entries(node) if entry.operation == REBOOT]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    return World(PhaseContext("sim", tmp_path, "c1"), monkeypatch)


def test_without_a_reason_nothing_is_rebooted(world: World) -> None:
    rack = Rack()
    assert world.install(rack) == dict.fromkeys(NAMES, PASS)
    assert (rack.done, world.entries("node01")) == ([], [])


def test_a_node_with_reasons_reboots_once_and_the_others_do_not(world: World) -> None:
    rack = Rack({"node01": (PT, NOUVEAU)})
    results = world.install(rack)
    assert results["node01"] == NodeResult(
        Outcome.PASS,
        changed=True,
        data={"changes": [f"reboot: {PT.expected}; {NOUVEAU.expected}"]},
    )
    assert results["node02"] == PASS
    assert (rack.done, world.entries("node01")) == (["node01"], ["done"])
    assert world.install(rack) == dict.fromkeys(NAMES, PASS)
    assert rack.done == ["node01"]


def test_a_dry_run_shows_the_reboot_and_does_nothing(world: World) -> None:
    rack = Rack({"node01": (PT,)})
    result = world.install(rack, replace(world.ctx, check=True))["node01"]
    assert (result.changed, result.data) == (True, {"changes": [f"reboot: {PT.expected}"]})
    assert (rack.done, world.entries("node01")) == ([], [])


def test_a_dry_run_shows_that_the_site_refuses(world: World) -> None:
    world.allow("false")
    result = world.install(Rack({"node01": (PT,)}), replace(world.ctx, check=True))["node01"]
    assert result.data == {"changes": [f"reboot, refused by software.allow_reboot: false: {PT.expected}"]}


def test_a_site_that_allows_no_reboot_is_told_the_reasons(world: World) -> None:
    world.allow("false")
    rack = Rack({"node01": (PT, NOUVEAU)})
    result = world.install(rack)["node01"]
    assert result.outcome is Outcome.FAIL
    assert result.message == (
        "node01: a reboot is needed: iommu=pt on the kernel command line; kernel module nouveau not loaded - "
        "Expected: software.allow_reboot: true Actual: false. Nothing was rebooted. "
        "Reboot the node when it suits, or set software.allow_reboot: true; then run again."
    )
    assert rack.done == []


def test_a_node_in_production_is_not_rebooted_without_a_word_of_the_site(world: World) -> None:
    world.busy = ("node01",)
    rack = Rack({"node01": (PT,), "node02": (PT,)})
    result = world.install(rack)["node01"]
    assert result.outcome is Outcome.FAIL
    assert result.message == (
        "node01: a reboot is needed: iommu=pt on the kernel command line - "
        "Expected: software.allow_reboot: true Actual: not set, and the node is in production. Nothing was rebooted. "
        "Reboot the node when it suits, or set software.allow_reboot: true; then run again."
    )
    assert result.data == {"untouched": True}
    assert (rack.done, world.drained) == (["node02"], {})


def test_a_node_in_production_is_drained_first_and_kept_by_its_jobs(world: World) -> None:
    world.allow("true")
    world.busy, world.keep = ("node01", "node02"), ("node02",)
    rack = Rack({"node01": (PT,), "node02": (PT,)})
    results = world.install(rack)
    assert world.drained == dict.fromkeys(NAMES, f"reboot: {PT.expected}")
    assert results["node02"] == KEPT
    assert rack.done == ["node01"]


def test_a_reboot_in_vain_is_reported_and_not_repeated_in_the_same_campaign(world: World) -> None:
    rack = Rack({"node01": (PT, NOUVEAU)})
    rack.in_vain = True
    text = (
        "node01: after its reboot - Expected: iommu=pt on the kernel command line Actual: not there and 1 more. "
        "It is not rebooted again in this run. "
        "Check the node's boot menu (/boot/grub/grub.cfg) and boot order, then run again."
    )
    for _ in range(2):
        result = world.install(rack)["node01"]
        assert (result.outcome, result.message) == (Outcome.FAIL, text)
    assert rack.done == ["node01"]


@pytest.mark.parametrize(
    ("happens", "actual"),
    [(lambda rack, node: rack.down.add(node), "no answer"), (lambda _rack, _node: None, "still boot boot-1")],
)
def test_a_node_that_does_not_come_back_is_named_and_its_intent_stays_open(
    world: World, happens: Callable[[Rack, str], None], actual: str
) -> None:
    world.limit(5)
    rack = Rack({"node01": (PT,)})
    rack.on_reboot = lambda node: happens(rack, node)
    result = world.install(rack)["node01"]
    assert (result.outcome, result.message) == (
        Outcome.ERROR,
        (
            f"node01: reboot - Expected: SSH answers from another boot within 5 s Actual: {actual}. "
            "Look at the node's console through its BMC, then run again: the reboot is observed first, not repeated."
        ),
    )
    assert world.entries("node01") == ["intent"]


def cut_off(world: World, rack: Rack) -> None:
    """Let a reboot be cut off right after the node was asked for it."""

    def stop(_node: str) -> None:
        raise Interrupted

    rack.on_reboot = stop
    with pytest.raises(Interrupted):
        world.install(rack)
    assert world.entries("node01") == ["intent"]
    world.ran.clear()
    rack.on_reboot = rack.boot


def test_after_a_kill_a_reboot_that_happened_is_observed_and_not_repeated(world: World) -> None:
    rack = Rack({"node01": (PT,)})
    cut_off(world, rack)
    rack.boot("node01")
    result = world.install(rack)["node01"]
    assert (result.changed, result.data) == (True, {"changes": [f"reboot: {PT.expected}"]})
    assert (rack.done, world.entries("node01")) == (["node01"], ["done"])


def test_after_a_kill_a_reboot_that_never_began_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rack = Rack({"node01": (PT,)})
    cut_off(world, rack)
    monkeypatch.setattr(reboot, "_SHUTDOWN_S", 0.0)
    assert world.install(rack)["node01"].changed
    assert (rack.done, world.entries("node01")) == (["node01", "node01"], ["failed", "done"])


def test_after_a_kill_a_node_that_does_not_answer_is_not_installed(world: World) -> None:
    world.limit(5)
    rack = Rack({"node01": (PT,)})
    cut_off(world, rack)
    rack.down.add("node01")
    result = world.install(rack)["node01"]
    assert (result.outcome, result.touched) == (Outcome.ERROR, False)
    assert result.message.startswith("node01: reboot - Expected: SSH answers from another boot within 5 s")
    assert (world.ran, world.entries("node01")) == (["node02"], ["intent"])


def test_an_unread_node_is_an_error(world: World) -> None:
    rack = Rack()
    rack.down.add("node02")
    result = world.install(rack)["node02"]
    assert (result.outcome, result.message) == (
        Outcome.ERROR,
        (
            "node02: reasons for a reboot - Expected: read from the node Actual: no answer. "
            "Check the node's console and SSH, then run again."
        ),
    )


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other"}', '{"format": "rackready/reboot-reasons/v1"}'])
def test_something_else_than_the_document_is_no_answer(text: str) -> None:
    assert parsed(text) == BootReading(failure="no document about its boot")
