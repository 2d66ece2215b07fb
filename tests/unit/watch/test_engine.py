"""The watch as a whole, with nodes that say what a test wants: streams, restarts, reconnection, tickets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackready.ledger.error import ControllerBusyError
from rackready.model.state import NodeState
from rackready.model.watch import Watch
from rackready.watch import stream
from rackready.watch.engine import Engine
from rackready.watch.lease import lease, runs
from rackready.watch.node_view import NodeView
from rackready.watch.view import look
from tests.unit.watch.test_kernel import FACTS, xid
from tests.unit.watch.world import Script, World
from tests.waiting import until

FALLEN = xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:9d:00")
USER = xid(31, "pid=20211, name=python3, MMU Fault")


def begin(boot: str = "b1") -> str:
    return json.dumps({"begin": "rackready/watch/v1", "boot": boot, "at": time.time()})


def log(text: str, cursor: str) -> str:
    return json.dumps({"log": {"cursor": cursor, "boot": "b1", "at": time.time() + 2, "text": text}})


def beat(cursor: str) -> str:
    return json.dumps({"beat": {"cursor": cursor}, "at": time.time()})


@contextmanager
def running(world: World, script: Any, **more: Any) -> Iterator[Engine]:  # noqa: ANN401
    engine = world.engine(script, **more)
    engine.actor.clock = time.time
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.stop.set()
        thread.join(120)
        assert not thread.is_alive()


def test_a_line_of_the_kernel_log_drains_its_node(world: World) -> None:
    script = Script()
    script.put("node03", begin(), log(USER, "c1"), log(FALLEN, "c2"))
    with running(world, script):
        until(lambda: world.scheduler.drains)
        ((node, reason),) = world.scheduler.drains
        assert node == "node03"
        assert reason.startswith("rackready: GpuXidRestartBm: node03 gpu4: Xid 79 (GPU has fallen off the bus): pid=")
        until(lambda: world.ledger.state("node03").state is NodeState.QUARANTINED)  # type: ignore[union-attr]
    assert [(one.condition, one.act) for one in world.store.faults()] == [
        ("GpuXidRestartApp", "record"),
        ("GpuXidRestartBm", "drain"),
    ]


def test_only_nodes_in_production_are_watched(world: World) -> None:
    world.ledger.set_state("node02", NodeState.VALIDATED)
    script = Script()
    with running(world, script):
        until(lambda: len(script.opened) == 3)
        world.ledger.set_state("node04", NodeState.REACHABLE, "repaired")
        until(lambda: sorted(world.store.nodes()) == ["node01", "node03"])
    assert sorted(node for node, _ in script.opened) == ["node01", "node03", "node04"]


IDLE = (
    "no node is in production: the watch waits until a handover makes one ready; "
    "`rackready status --env sim` shows the nodes' states"
)


def test_a_watch_without_nodes_says_once_what_it_waits_for(tmp_path: Path) -> None:
    empty = World(tmp_path)
    engine = empty.engine(Script())
    engine.refresh()
    engine.refresh()
    assert empty.events == [("idle", "", IDLE)]
    empty.ready("node02")
    engine.refresh()
    assert list(empty.store.nodes()) == ["node02"]
    empty.ledger.set_state("node02", NodeState.QUARANTINED, "a fault")
    engine.refresh()
    assert [event for event in empty.events if event[0] == "idle"] == [("idle", "", IDLE)] * 2, (
        "again, as it waits again"
    )


def test_a_restart_goes_on_behind_the_last_line_and_repeats_no_fault(world: World) -> None:
    script = Script()
    script.put("node03", begin(), log(USER, "c7"))
    with running(world, script):
        until(world.store.faults)
    again = Script()
    with running(world, again):
        until(lambda: "node03" in dict(again.opened))
    assert dict(again.opened)["node03"]["cursor"] == "c7"
    assert dict(again.opened)["node01"]["cursor"] == ""
    assert [fault.count for fault in world.store.faults()] == [1]


def test_lines_about_nothing_move_the_place_in_the_journal_too(world: World) -> None:
    script = Script()
    script.put("node03", begin(), beat("c99"))
    with running(world, script):
        until(lambda: "node03" in script.lines and script.lines["node03"].empty())
    node = world.store.node("node03")
    assert node is not None
    assert node.cursor == "c99"


def test_a_stream_that_ends_is_visible_and_connected_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_FIRST_S", 0.05)
    script = Script()
    script.put("node03", begin(), beat("c5"), TimeoutError("silent for 45 s"))
    with running(world, script):
        until(lambda: [one for one in script.opened if one[0] == "node03"][1:])
        node = world.store.node("node03")
        assert node is not None
        until(lambda: not world.store.node("node03").watched)  # type: ignore[union-attr]
        assert world.store.node("node03").why == "silent for 45 s"  # type: ignore[union-attr]
        assert script.opened[-1][1]["cursor"] == "c5", "nothing between the two is lost"
        view = look(world.ledger, {node.name for node in world.site.nodes()}, world.paths)
        assert view is not None
        assert "node03" in view.unwatched, "never silently healthy"
        script.put("node03", begin())
        until(lambda: world.store.node("node03").watched)  # type: ignore[union-attr]
    assert ("not-watched", "node03", "node03: not watched: silent for 45 s") in world.events


def test_nobody_is_watched_while_no_watch_runs(world: World) -> None:
    view = look(world.ledger, {node.name for node in world.site.nodes()}, world.paths)
    assert view is not None
    assert view.unwatched["node01"] == "rackready watch does not run"


def test_a_second_watch_is_refused(world: World) -> None:
    assert not runs(world.paths)
    with lease(world.paths, world.ledger):
        assert runs(world.paths)
        with pytest.raises(ControllerBusyError) as refused, lease(world.paths, world.ledger):
            pass
    text = str(refused.value)
    assert "another rackready watch runs - Expected: none Actual: pid " in text
    assert not runs(world.paths)


def test_one_bad_node_ends_nobody_elses_watch(world: World) -> None:
    def lines(node: str, _wanted: dict[str, Any]) -> Iterator[str]:
        if node == "node01":
            raise KeyError("a defect")
        yield from (begin(), "no json", '["no object"]', log(FALLEN, "c1"))
        threading.Event().wait(60)

    with running(world, lines):
        until(lambda: world.scheduler.drains)
        until(lambda: world.store.node("node01").why == "KeyError: 'a defect'")  # type: ignore[union-attr]


def test_once_looks_at_every_node_and_ends(world: World) -> None:
    script = Script()
    for node in ("node01", "node02", "node04"):
        script.put(node, begin(), json.dumps({"end": "", "code": 0}))
    script.put("node03", begin(), log(FALLEN, "c1"), json.dumps({"end": "", "code": 0}))
    engine = world.engine(script, once=True)
    engine.actor.clock = time.time
    engine.run()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]
    assert "not-watched" not in world.kinds()
    assert all(not wanted["follow"] for _, wanted in script.opened)


# one node --------------------------------------------------------------------------------------------------------


def viewed(**settings: Any) -> NodeView:
    return NodeView(FACTS, Watch(**settings))


PORTS = {nic.rdma_device: {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "downed": 0} for nic in FACTS.nics}
DEVICE = FACTS.nics[0].rdma_device


def port(**values: Any) -> dict[str, Any]:
    return {"ports": {**PORTS, DEVICE: {**PORTS[DEVICE], **values}}, "at": 0.0}


def test_a_link_that_is_down_counts_after_the_time_of_its_alert() -> None:
    view = viewed()
    assert view.line(port(state="1: DOWN"), 100.0) == []
    assert view.line({"beat": {"cursor": ""}}, 159.0) == []
    (seen,) = view.line({"beat": {"cursor": ""}}, 160.0)
    assert (seen.condition, seen.part, seen.slot, seen.act) == ("RailDown", DEVICE, "leaf01 swp1", "drain")
    assert view.line({"beat": {"cursor": ""}}, 200.0) == [], "once"


def test_a_link_that_comes_back_in_time_drains_nothing_and_is_a_flap() -> None:
    view = viewed()
    assert view.line(port(state="1: DOWN"), 100.0) == []
    (seen,) = view.line(port(downed=1), 130.0)
    assert (seen.condition, seen.act) == ("RailFlapping", "ticket")
    assert view.line({"beat": {"cursor": ""}}, 300.0) == []


def test_a_node_that_booted_again_is_recorded() -> None:
    view = viewed()
    view.line(json.loads(begin("b1")), 1.0)
    (seen,) = view.line(json.loads(begin("b2")), 2.0)
    assert (seen.condition, seen.act) == ("NodeRebooted", "record")


def test_times_of_a_node_are_brought_to_the_controllers_clock(tmp_path: Path) -> None:
    _ = tmp_path
    view = viewed()
    view.line({"begin": "x", "boot": "b1", "at": 5000.0}, 6000.0)
    (seen,) = view.line({"log": {"cursor": "c", "boot": "b1", "at": 5001.0, "text": FALLEN}}, 6003.0)
    assert seen.at == 6001.0


def test_a_changed_site_ends_the_watch_for_its_successor(world: World) -> None:
    script = Script()
    engine = world.engine(script, reload=lambda: world.site)
    engine.run()
    assert engine.successor is world.site


def test_lines_that_wait_in_memory_are_not_read_again_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_FIRST_S", 0.01)
    script = Script()
    script.put("node03", begin(), log(FALLEN, "c4"), TimeoutError("silent"))
    items: list[stream.StreamItem] = []
    thread = stream.NodeStream("node03", script, lambda: {"cursor": "c0"}, items.append)
    thread.start()
    until(lambda: len(script.opened) == 2)
    thread.over.set()
    script.put("node03", begin())
    thread.join(120)
    assert [wanted["cursor"] for _, wanted in script.opened] == ["c0", "c4"]


def test_a_bmc_that_cannot_be_read_is_told_once(world: World) -> None:
    engine = world.engine(Script())
    for why in ("no answer", "no answer", "", "no answer"):
        engine.bmc("node01", [], why)
    assert world.events == [("bmc", "node01", "node01: BMC not read: no answer")] * 2
