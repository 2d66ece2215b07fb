"""Nodes that are out and still on offer: found within a time limit, drained with our reason; others' drains stay."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from rackready.campaign import controller
from rackready.campaign.request import new_request
from rackready.design.site import load_site
from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode
from rackready.handover import offer
from rackready.handover.offer import Kept, alarm, keep_off, not_asked, offers
from rackready.handover.run import DRAIN
from rackready.ledger.error import ControllerBusyError
from rackready.ledger.lock import ControllerLock
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.test_production import DOWN, DRAINED, IDLE, THEIRS, Scene, scene

__all__ = ["scene"]

FINDING = "node03 gpu2: NVLink down - Expected: 18 links active Actual: 17. Read docs/runbooks/nvlink-down.md."
OURS = f"rackready: quarantined: {FINDING}"
SAID = (
    "node03 is quarantined, and the scheduler offered it to jobs (IDLE): drained. "
    "If it was repaired: `rackready repair node03 --reason '...'`"
)
SILENT = "node03: unknown whether it is on offer in the scheduler: no answer."


def quarantined(scene: Scene, now: SchedulerNode = IDLE) -> None:
    scene.ledger.set_state("node03", NodeState.QUARANTINED, FINDING)
    scene.cluster.nodes["node03"] = now


def test_a_quarantined_node_on_offer_is_drained_with_its_finding_and_that_is_recorded(scene: Scene) -> None:
    quarantined(scene)
    assert keep_off(scene.ctx) == Kept(("node03",), (SAID,))
    now = scene.cluster.nodes["node03"]
    assert (now.drained, now.reason) == (True, OURS)
    assert [(entry.operation, entry.status, entry.observed["state"]) for entry in scene.ledger.entries("node03")] == [
        (DRAIN, "done", "IDLE")
    ]
    assert scene.told() == [("node03", "drain", SAID)]
    assert keep_off(scene.ctx) == Kept(), "it is drained now"
    scene.cluster.nodes["node03"] = IDLE
    assert keep_off(scene.ctx).drained == ("node03",), (
        "resumed by hand once more: the drain that is on record does not count"
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [(NodeState.RETIRED, "rackready: retired: sold"), (NodeState.QUARANTINED, "rackready: quarantined: sold")],
)
def test_a_node_that_is_down_and_not_drained_may_come_back_by_itself(
    scene: Scene, state: NodeState, reason: str
) -> None:
    scene.ledger.set_state("node03", state, "sold")
    scene.cluster.nodes["node03"] = DOWN
    assert keep_off(scene.ctx).drained == ("node03",)
    assert scene.cluster.nodes["node03"].reason == reason


@pytest.mark.parametrize("now", [DRAINED, THEIRS])
def test_what_is_drained_keeps_its_reason_whoever_drained_it(scene: Scene, now: SchedulerNode) -> None:
    quarantined(scene, now)
    assert keep_off(scene.ctx) == Kept()
    assert scene.cluster.nodes["node03"] is now


def test_nodes_that_are_not_out_are_none_of_its_business(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def untouched(*_: object) -> SchedulerAdapter:
        raise AssertionError

    monkeypatch.setitem(registry.ADAPTERS, "slurm", untouched)
    scene.ledger.set_state("node01", NodeState.READY)
    scene.ledger.set_state("node02", NodeState.CONNECTED, "install failed")
    scene.ledger.set_state("gone", NodeState.QUARANTINED, "left the site file")
    assert keep_off(scene.ctx) == Kept()


def test_a_scheduler_that_does_not_have_it_gives_it_no_jobs(scene: Scene) -> None:
    quarantined(scene)
    scene.cluster.strange = {"node03"}
    assert keep_off(scene.ctx) == Kept()


def test_a_scheduler_that_cannot_be_asked_is_said_and_stops_nobody(scene: Scene) -> None:
    quarantined(scene)
    scene.ledger.set_state("node04", NodeState.RETIRED, "sold")
    scene.cluster.silent = {"node03", "node04"}
    text = "node03, node04: unknown whether they are on offer in the scheduler: no answer."
    assert keep_off(scene.ctx) == Kept((), (text,))
    assert scene.told() == [("node03, node04", "drain", text)]


def test_one_that_cannot_be_drained_is_said(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_node: str, _reason: str) -> bool:
        raise SchedulerError(
            "node03: `scontrol update` - Expected: accepted Actual: Access/permission denied. "
            "It needs a Slurm operator's rights."
        )

    quarantined(scene)
    monkeypatch.setattr(scene.cluster, "drain", refused)
    text = (
        "node03 is quarantined, and the scheduler offered it to jobs (IDLE): it could not be drained: node03: "
        "`scontrol update` - Expected: accepted "
        "Actual: Access/permission denied. It needs a Slurm operator's rights. Drain it by hand."
    )
    assert keep_off(scene.ctx) == Kept((), (text,))


def test_a_dry_run_and_the_node_that_the_caller_drains_itself_are_left_alone(scene: Scene) -> None:
    quarantined(scene)
    assert keep_off(replace(scene.ctx, check=True)) == Kept()
    assert keep_off(scene.ctx, but="node03") == Kept()
    assert scene.cluster.nodes["node03"] is IDLE


def test_a_scheduler_that_hangs_is_waited_for_no_longer_than_the_limit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantined(scene)
    over = threading.Event()
    monkeypatch.setitem(registry.ADAPTERS, "slurm", lambda *_: over.wait(120))
    monkeypatch.setattr(offer, "ASK_S", 0.05)
    lines = keep_off(scene.ctx).lines
    over.set()
    text = (
        "node03: unknown whether it is on offer in the scheduler: the scheduler - "
        "Expected: an answer within 0.05 s Actual: none."
    )
    assert lines == (f"{text} Check that its controller runs and can be reached.",)


def test_a_defect_of_an_adapter_is_not_taken_for_silence(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    quarantined(scene)
    monkeypatch.setitem(registry.ADAPTERS, "slurm", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        keep_off(scene.ctx)


def test_a_look_writes_nothing_and_a_controller_without_a_pinned_key_is_not_asked(scene: Scene) -> None:
    """`rackready status` pins no key; a first contact is left to commands that may write."""
    quarantined(scene)
    paths = EnvPaths(scene.ctx.root, "sim")
    site = load_site("sim", root=scene.ctx.root)
    found = offers(site, paths, ["node03"], limit_s=5, reads=True)
    assert (found.asked, found.offered) == (frozenset(), {})
    where = f"{site.handover.controller}:{site.handover.port}" if site.handover.kind == "slurm" else ""
    text = (
        f"node03: unknown whether it is on offer in the scheduler: Slurm controller {where}: SSH host key not "
        f"pinned, no login was tried - Expected: its key in {paths.known_hosts} "
        "Actual: none, and this command writes none. "
        "If rackready never logged in there, or its pin was lost, `rackready hostkey accept scheduler` shows its key "
        "and pins it: compare the key with the host's own."
    )
    assert list(not_asked(found.unknown)) == [text]
    assert not paths.known_hosts.exists()


def test_the_alarm_names_node_state_and_next_step(scene: Scene) -> None:
    quarantined(scene)
    row = scene.ledger.state("node03")
    assert row is not None
    assert alarm(row, IDLE) == (
        "node03: quarantined, and the scheduler offers it to jobs - Expected: drained Actual: IDLE. "
        "`rackready deploy` drains it before anything else. "
        "If it was repaired: `rackready repair node03 --reason '...'`."
    )


def test_a_command_drains_it_also_when_no_node_can_be_taken_up(scene: Scene) -> None:
    quarantined(scene)
    paths = EnvPaths(scene.ctx.root, "sim")
    site = load_site("sim", root=scene.ctx.root)
    said: list[str] = []
    request = new_request(site, env="sim", root=scene.ctx.root, kind="deploy", phases=(), nodes=(), check=True)
    reporter = controller.Reporter(said.append, lambda *_: None, stopped=said.append)
    assert controller.keep_off_alone(paths, request, command="rackready deploy", reporter=reporter).drained == ()
    request = replace(request, check=False)
    with ControllerLock(paths.lock, "rackready deploy", paths.database), pytest.raises(ControllerBusyError):
        controller.keep_off_alone(paths, request, command="rackready deploy", reporter=reporter)
    assert scene.cluster.nodes["node03"] is IDLE
    kept = controller.keep_off_alone(paths, request, command="rackready deploy", reporter=reporter)
    assert kept.drained == ("node03",)
    assert said == [SAID]
