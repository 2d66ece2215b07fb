"""Faults that come again: after a drain that others lifted, after a kill, after the node was in production again."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from rackready.ledger.lock import ControllerLock
from rackready.model.state import NodeState
from rackready.model.watch import Watch
from rackready.watch import drain_faulty, storm
from rackready.watch.node_view import NodeView
from rackready.watch.store import Seen, Step
from tests.unit.watch.test_bmc_logs import LEAK, OLD, Bmc, gathered
from tests.unit.watch.test_engine import DEVICE, FALLEN, begin, port
from tests.unit.watch.test_kernel import FACTS
from tests.unit.watch.world import Script, World, down
from tests.waiting import until

REASON = "rackready: GpuXidRestartBm: node03 gpu4: Xid 79"


def ready_since(world: World) -> dict[str, float]:
    return {row.name: row.since for row in world.ledger.states() if row.state is NodeState.READY}


def again(world: World, condition: str = "GpuXidRestartBm") -> None:
    """Record a fault as the engine does."""
    seen = Seen("node03", condition, "gpu4", "Xid 79", "drain", at=world.now)
    world.store.record([seen], {"node03": 1}, ready_since(world))


def test_a_fault_that_comes_again_after_somebody_lifted_his_own_drain_drains(world: World) -> None:
    world.scheduler.reasons["node03"] = "bob: disk swap"
    again(world)
    actor = world.actor()
    actor.act()
    world.store.put(1, step=Step.TICKETED.value, ticket="open")
    world.now += 30
    again(world)
    actor.act()
    assert (world.steps(), world.kinds()) == ({"node03 gpu4": "ticketed"}, ["left"]), "not asked at every line"
    world.scheduler.reasons.clear()
    world.now += 61
    again(world)
    actor.act()
    assert world.scheduler.drains == [("node03", REASON)]
    assert [(one.step, one.count, one.ticket) for one in world.store.faults()] == [("drained", 3, "open")]


def test_another_finding_on_a_part_that_was_left_to_others_drains(world: World) -> None:
    world.scheduler.reasons["node03"] = "bob: disk swap"
    again(world)
    world.actor().act()
    world.scheduler.reasons.clear()
    again(world, "GpuXid154")
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]


def test_the_second_finding_of_a_part_drains_when_the_first_was_left_to_others(world: World) -> None:
    """Both come together, and only the second one again, after somebody lifted his drain."""
    world.scheduler.reasons["node03"] = "bob: disk swap"
    again(world)
    again(world, "GpuXid154")
    actor = world.actor()
    actor.act()
    world.scheduler.reasons.clear()
    world.now += 30
    again(world, "GpuXid154")
    actor.act()
    assert [one.step for one in world.store.faults()] == ["drained", "recorded"], "not asked at every line"
    world.now += 61
    again(world, "GpuXid154")
    actor.act()
    assert world.scheduler.drains == [("node03", "rackready: GpuXid154: node03 gpu4: Xid 79")]
    assert [one.step for one in world.store.faults()] == ["drained", "drained"]


def test_the_second_finding_of_a_part_drains_when_the_first_was_overtaken(world: World) -> None:
    again(world)
    again(world, "GpuXid154")
    world.scheduler.fails.append(down())
    world.actor().act()
    world.store.put(1, step=Step.OVERTAKEN.value)
    again(world, "GpuXid154")
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]


def test_the_second_finding_of_a_part_stays_with_the_first_that_drains(world: World) -> None:
    again(world)
    again(world, "GpuXid154")
    world.actor().act()
    world.now += 61
    again(world, "GpuXid154")
    assert [one.step for one in world.store.faults()] == ["drained", "recorded"]


def test_a_fault_that_comes_again_in_production_after_its_drain_drains(world: World) -> None:
    again(world)
    world.actor().act()
    world.store.put(1, step=Step.TICKETED.value, ticket="open", drained_at=world.now - 60)
    world.scheduler.reasons.clear()
    world.ready("node03")
    again(world)
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03", "node03"]
    row = world.ledger.state("node03")
    assert row is not None
    assert row.state is NodeState.QUARANTINED


def test_a_fault_that_is_held_by_a_kill_while_no_storm_is_on_goes_on(world: World) -> None:
    world.see("node03")
    world.store.put(1, step=Step.HELD.value, why="storm")
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]


def test_a_fault_that_is_held_by_a_storm_stays(world: World) -> None:
    world.store.put_mark(storm.STORM, {"active": True})
    world.see("node03")
    world.store.put(1, step=Step.HELD.value, why="storm")
    world.actor().act()
    assert (world.scheduler.drains, world.steps()) == ([], {"node03 gpu4": "held"})


def _controller(root: Path, held: Any, over: Any) -> None:  # noqa: ANN401 - events of multiprocessing
    world = World(root)
    with ControllerLock(world.paths.lock, "rackready validate --env sim", world.paths.database):
        held.set()
        over.wait(120)


def test_a_drain_that_another_command_lifted_before_it_was_recorded_is_made_again(world: World) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, over = spawn.Event(), spawn.Event()
    child = spawn.Process(target=_controller, args=(world.root, held, over))
    child.start()
    try:
        assert held.wait(120)
        world.see("node03")
        actor = world.actor()
        actor.act()
        world.scheduler.release("node03")  # as the command gives back a partner that it had borrowed
        world.now += 60
        actor.act()
        assert len(world.scheduler.drains) == 1, "not while the command has the lock"
    finally:
        over.set()
        child.join()
    actor.act()
    assert world.scheduler.drains == [("node03", REASON)] * 2
    row = world.ledger.state("node03")
    assert row is not None
    assert row.state is NodeState.QUARANTINED
    assert ("drained", "node03", "node03: was released meanwhile: drained again") in world.events


def test_many_nodes_are_recorded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(drain_faulty.time, "sleep", pauses.append)
    world = World(tmp_path, {"storm_share": 1.0})
    monkeypatch.setattr(drain_faulty, "_AT_ONCE", 2)
    world.ready()
    for node in ("node01", "node02", "node03", "node04"):
        world.see(node)
    world.actor().act()
    assert pauses == [drain_faulty._BREATH_S]
    assert {row.state for row in world.ledger.states()} == {NodeState.QUARANTINED}


def test_nodes_of_a_campaign_that_was_killed_do_not_wait_for_another_command(world: World) -> None:
    world.ledger.put_campaign(
        "20260101-1", env="sim", kind="deploy", nodes=["node03"], site_digest="", abi="", status="running"
    )
    spawn = multiprocessing.get_context("spawn")
    held, over = spawn.Event(), spawn.Event()
    child = spawn.Process(target=_controller, args=(world.root, held, over))
    child.start()
    try:
        assert held.wait(120)
        world.see("node03")
        assert drain_faulty.working(world.store, world.paths) == {}
        world.actor().act()
        assert [node for node, _ in world.scheduler.drains] == ["node03"]
        world.ledger.event("20260101-1", "node03", "install", "goes on")
        assert drain_faulty.working(world.store, world.paths) == {"node03": "20260101-1"}, "resumed under the same lock"
    finally:
        over.set()
        child.join()


# clocks ----------------------------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_hides_no_fault(world: World) -> None:
    world.now -= 3600
    world.see("node03")
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]


def test_a_storm_that_ends_in_the_future_does_not_switch_the_limit_off(world: World) -> None:
    world.store.put_mark(storm.STORM, {"active": False, "cleared_at": world.now + 3600, "reason": "x"})
    actor = world.actor()
    for node in ("node01", "node02", "node03"):
        world.see(node)
        world.now += 1
        actor.act()
    assert [node for node, _ in world.scheduler.drains] == ["node01"]


@pytest.mark.parametrize(("share", "fleet", "limit"), [(0.29, 100, 29), (0.1, 4, 1), (0.1, 19, 1), (1.0, 4, 4)])
def test_the_limit_is_rounded_down_to_whole_nodes_and_is_one_at_least(
    world: World, share: float, fleet: int, limit: int
) -> None:
    ready = {f"n{number}" for number in range(fleet)}
    assert storm.allowance(world.store, Watch(storm_share=share), ready, world.now).limit == limit


def viewed(**settings: Any) -> NodeView:
    return NodeView(FACTS, Watch(**settings))


def test_a_jump_of_the_controllers_clock_makes_no_link_down_for_a_minute() -> None:
    view = viewed()
    assert view.line(port(state="1: DOWN"), 100.0, 10.0) == []
    assert view.line({"beat": {"cursor": ""}}, 4000.0, 20.0) == []
    (seen,) = view.line({"beat": {"cursor": ""}}, 4050.0, 70.0)
    assert seen.condition == "RailDown"


def test_a_node_whose_clock_is_set_is_brought_to_the_controllers_by_the_next_beat() -> None:
    view = viewed()
    view.line({"begin": "x", "boot": "b1", "at": 5000.0}, 6000.0)
    view.line({"beat": {"cursor": ""}, "at": 1010.0}, 6010.0)
    (seen,) = view.line({"log": {"cursor": "c", "boot": "b1", "at": 1011.0, "text": FALLEN}}, 6012.0)
    assert seen.at == 6011.0
    (late,) = view.line({"log": {"cursor": "d", "boot": "b1", "at": 9000.0, "text": FALLEN}}, 6013.0)
    assert late.at == 6013.0, "never in the future"


def test_a_state_that_asks_for_a_drain_and_stays_is_told_again() -> None:
    view = viewed()
    view.line(port(state="1: DOWN"), 100.0)
    beat: dict[str, Any] = {"beat": {"cursor": ""}}
    told = [at for at in range(110, 800, 10) if view.line(beat, float(at))]
    assert told == [160, 460, 760]
    view = viewed(never_drain=["RailDown"])
    view.line(port(state="1: DOWN"), 100.0)
    assert [at for at in range(110, 800, 10) if view.line(beat, float(at))] == [160], "a ticket is written once"


def off() -> dict[str, Any]:
    return {"links": {"code": 0, "text": HEALTHY_LINKS.replace("26.562 GB/s", "<inactive>", 1)}}


@pytest.mark.parametrize(("every_s", "at_s"), [(30, 160), (300, 700)])
def test_nvlinks_that_are_trained_again_drain_nothing_and_a_second_look_is_waited_for(every_s: int, at_s: int) -> None:
    view = viewed(gpu_poll_s=every_s)
    beat: dict[str, Any] = {"beat": {"cursor": ""}}
    assert view.line(off(), 100.0) == []
    assert view.line({"links": {"code": 0, "text": HEALTHY_LINKS}}, 100.0 + every_s) == []
    assert not [at for at in range(100 + every_s, 1100, 10) if view.line(beat, float(at))]
    view.line(off(), 100.0)
    (at, *_) = [at for at in range(110, 1100, 10) if view.line(beat, float(at))]
    assert at == at_s


# BMCs ------------------------------------------------------------------------------------------------------------


def test_entries_of_a_bmc_are_recorded_before_they_count_as_known(world: World) -> None:
    engine = world.engine(Script())
    engine.refresh()
    seen = Seen("node03", "BmcLeak", "leak-event", "leak", "drain", at=world.now)
    engine.bmc("node03", [seen], "")
    assert world.steps() == {"node03 leak-event": "seen"}, "a stop now loses nothing"
    engine.bmc("node99", [Seen("node99", "BmcLeak", "x", "leak", "drain", at=world.now)], "")
    assert len(world.store.faults()) == 1


def test_what_a_bmc_logged_while_its_node_was_out_of_production_drains_nothing(world: World) -> None:
    bmc = Bmc(world)
    bmc.look()
    bmc.now = gathered(OLD, LEAK)
    engine = world.engine(Script())
    world.ledger.set_state("node01", NodeState.REPAIR, "rma: leak")
    engine.refresh()
    world.ready("node01")
    engine.refresh()
    assert bmc.look() == []
    bmc.now = gathered(OLD, LEAK, ("Critical", "Power supply 1 input lost"))
    assert bmc.look() == [("BmcEventCritical", "power-event", "ticket")]


def test_a_node_that_came_into_production_while_no_watch_ran_is_read_from_then_on(world: World) -> None:
    world.store.put_node("node03", cursor="c1")
    world.store.put_node("node02", cursor="c2")
    world.store.put_mark("beat", {"at": world.now + 1})
    world.ledger.set_state("node03", NodeState.REPAIR)
    world.store.put_mark("beat", {"at": world.ledger.states()[2].since})
    world.ready("node03")
    script = Script()
    engine = world.engine(script)
    engine.refresh()
    until(lambda: len(script.opened) == 4)
    asked = dict(script.opened)
    assert (asked["node03"]["cursor"], asked["node02"]["cursor"]) == ("", "c2")
    assert asked["node03"]["since"] == ready_since(world)["node03"]


# one look --------------------------------------------------------------------------------------------------------


def test_one_look_tells_what_it_cannot_judge(world: World) -> None:
    ending = json.dumps({"end": "", "code": 0})
    script = Script()
    for node in ("node01", "node02", "node03", "node04"):
        down = [json.dumps(port(state="1: DOWN"))] if node == "node01" else []
        script.put(node, begin(), *down, ending)
    world.engine(script, once=True).run()
    assert world.scheduler.drains == []
    text = f"RailDown: node01 {DEVICE}: rail {FACTS.nics[0].rail} is 1: DOWN (must hold 60 s: one look is too short)"
    assert [event for event in world.events if event[0] == "unsettled"] == [("unsettled", "node01", text)]


def test_a_node_whose_gpus_cannot_be_read_is_not_watched(world: World) -> None:
    late = {"code": 124, "problem": "nvidia-smi: no end within 60 s", "gpus": []}
    engine = world.engine(Script())
    engine.refresh()
    for document in (json.loads(begin()), {"gpus": late}):
        engine._of(act_item("node03", document))
    node = world.store.node("node03")
    assert node is not None
    assert (node.watched, node.why) == (False, "GPUs not read: nvidia-smi: no end within 60 s")
    engine._of(act_item("node03", {"gpus": {**late, "code": 0, "gpus": [GPU] * 8, "driver": "1"}}))
    assert world.store.node("node03").watched  # type: ignore[union-attr]


def act_item(node: str, document: dict[str, Any]) -> Any:  # noqa: ANN401
    from rackready.watch.stream import StreamItem  # noqa: PLC0415

    return StreamItem(node, "line", 1.0, document)


GPU = {
    "pci": "00000000:19:00.0",
    "serial": "1",
    "uuid": "GPU-1",
    "uncorrected": 0,
    "threshold": "No",
    "remap_failed": "No",
    "remap_pending": "No",
    "recovery": "None",
    "hot": "Not Active",
}


def test_a_node_takes_the_version_set_that_an_upgrade_gave_it(world: World) -> None:
    asked: list[str] = []
    engine = world.engine(Script())
    engine.current = lambda: asked.append("loaded") or world.site  # type: ignore[func-returns-value]
    engine.refresh()
    engine.refresh()
    assert asked == ["loaded"], "only when a node is taken up"


HEALTHY_LINKS = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n" + "".join(
    f"\t Link {number}: 26.562 GB/s\n" for number in range(18)
)
