"""The engine of an upgrade with fake waves: order, way back, stop rule, kills at each step, windows, pause, abort."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from rackready.campaign.stop_request import StopRequest
from rackready.campaign.upgrade.engine import Engine, Ways, Windows
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.model.upgrade import NodeStep, UpgradeRecord, UpgradeState
from tests.unit.campaign.upgrade.upgrade_sites import record_of, site_of

NODES = ("node01", "node02", "node03", "node04")
GOOD = {"outcome": "pass", "phase": "handover", "message": "released", "kinds": []}
NO_DRIVER = {"outcome": "fail", "phase": "install", "message": "no driver", "kinds": ["install nvidia_driver : load"]}
BAD_GPU = {"outcome": "fail", "phase": "validate", "message": "ecc", "kinds": ["node/gpu/sanity/ecc ecc-uncorrectable"]}
BUSY = {"outcome": "error", "phase": "take-out", "message": "jobs run on it", "kinds": ["take-out error"]}


STEPS = 32
"""Moves and writes of the record, before and after each, in the upgrade of the kill tests."""


class Killed(BaseException):
    """The controller died."""


class World:
    """Nodes that answer as told, a ledger with one record, and a death at the n-th step."""

    def __init__(self, record: UpgradeRecord, site: Site | None = None) -> None:
        self.site = site or site_of()
        self.saved = record.model_dump(mode="json")
        self.up: dict[str, dict[str, Any]] = {}
        self.back: dict[str, dict[str, Any]] = {}
        self.lacking: list[Message] = []
        self.asked: list[StopRequest] = []
        self.moved: list[str] = []
        self.said: list[str] = []
        self.serves = set(NODES)
        self.faulty: dict[str, str] = {}
        self.units: list[tuple[str, ...]] = []
        self.clock = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
        self.dies_at = 0
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps == self.dies_at:
            raise Killed

    def move(self, nodes: Sequence[str], back: bool) -> dict[str, dict[str, Any]]:  # noqa: FBT001 - as Ways has it
        self.moved.append(f"{'back' if back else 'up'} {' '.join(nodes)}")
        self.serves -= set(nodes)
        self.step()
        told = self.back if back else self.up
        found = {node: told.get(node, GOOD) for node in nodes}
        self.serves |= {node for node, result in found.items() if result is GOOD}
        return found

    def save(self, record: UpgradeRecord) -> None:
        self.step()
        self.saved = record.model_dump(mode="json")
        self.step()

    def run(self, *, heed: bool = True, wave_s: float | None = 600.0) -> UpgradeRecord:
        ways = Ways(
            move=self.move,
            serving=lambda: set(self.serves),
            offered=lambda _nodes: self.lacking,
            asked=lambda: self.asked.pop(0) if self.asked else StopRequest.NOTHING,
            now=lambda: self.clock,
            say=self.said.append,
            save=self.save,
            faulty=lambda: self.faulty,
        )
        record = UpgradeRecord.model_validate(self.saved)
        engine = Engine(self.site, record, ways, Windows(heed, wave_s))
        engine.order.units = self.units or engine.order.units
        return engine.run()


def steps(record: UpgradeRecord) -> dict[str, str]:
    return {name: node.step.value for name, node in record.nodes.items()}


def test_every_node_in_waves() -> None:
    world = World(record_of(*NODES))
    record = world.run()
    assert world.moved == ["up node01", "up node02 node03", "up node04"]
    assert (record.state, set(steps(record).values())) == (UpgradeState.FINISHED, {"ready"})
    assert [node.wave for node in record.nodes.values()] == [1, 2, 2, 3]


def test_what_does_not_come_up_goes_back_and_stops_the_upgrade() -> None:
    world = World(record_of(*NODES))
    world.up["node02"] = NO_DRIVER
    record = world.run()
    assert world.moved == ["up node01", "up node02 node03", "back node02"]
    assert steps(record) == {"node01": "ready", "node02": "rolled-back", "node03": "ready", "node04": "waiting"}
    assert (record.state, record.reason) == (
        UpgradeState.STOPPED,
        (
            "new kind of failure in wave 2: install nvidia_driver : load; 1 of 2 nodes of wave 2 failed, "
            "more than 25 %. Check them; `rackready upgrade --resume` continues with the others."
        ),
    )
    assert record.nodes["node02"].reason == "no driver"


def test_a_way_back_that_fails_is_said_with_both_reasons() -> None:
    world = World(record_of(*NODES))
    world.up["node01"], world.back["node01"] = NO_DRIVER, {**NO_DRIVER, "message": "SSH is silent"}
    record = world.run()
    assert record.nodes["node01"].step is NodeStep.FAILED
    assert record.nodes["node01"].reason == "no driver On the way back to hgx-r580-debian12: SSH is silent"


def test_what_fails_validation_does_not_go_back() -> None:
    world = World(record_of(*NODES))
    world.up["node01"] = BAD_GPU
    record = world.run()
    assert world.moved == ["up node01"]
    assert (record.nodes["node01"].step, record.state) == (NodeStep.FAILED, UpgradeState.STOPPED)


def test_a_node_that_keeps_its_jobs_is_left_out_and_no_failure() -> None:
    world = World(record_of(*NODES))
    world.up["node02"] = BUSY
    record = world.run()
    assert (steps(record)["node02"], record.nodes["node02"].reason) == ("left-out", "jobs run on it")
    assert record.state is UpgradeState.FINISHED
    assert world.moved == ["up node01", "up node02 node03", "up node04"]


def in_domains() -> World:
    """Return a world where node02 and node03 are an NVLink domain, which no server of the simulated rack can be in."""
    world = World(record_of(*NODES))
    world.units = [("node01",), ("node02", "node03"), ("node04",)]
    return world


def test_an_nvlink_domain_goes_back_as_a_whole() -> None:
    """Its nodes have one driver: one that came up while its mate did not would serve with another one."""
    world = in_domains()
    world.up["node02"] = NO_DRIVER
    record = world.run()
    assert world.moved == ["up node01", "up node02 node03", "back node02 node03"]
    assert steps(record) == {
        "node01": "ready", "node02": "rolled-back", "node03": "rolled-back", "node04": "waiting",
    }  # fmt: skip
    assert record.nodes["node03"].reason == "Goes back with node02, of its NVLink domain."
    assert "1 of 2 nodes of wave 2 failed" in record.reason, "node03 failed in nothing"


def test_an_nvlink_domain_is_left_out_as_a_whole_and_released_with_its_former_set() -> None:
    world = in_domains()
    world.up["node02"], world.up["node03"] = BUSY, {**BUSY, "message": "node02 stays", "together": "node02"}
    record = world.run()
    assert world.moved == ["up node01", "up node02 node03", "back node03", "up node04"]
    assert steps(record) == {"node01": "ready", "node02": "left-out", "node03": "left-out", "node04": "ready"}
    assert record.nodes["node03"].reason == "node02 stays"


def test_a_mate_that_a_killed_run_brought_up_goes_back_with_one_that_stays() -> None:
    world = in_domains()
    world.up["node02"] = BUSY
    record = world.run()
    assert world.moved[1:3] == ["up node02 node03", "back node03"]
    assert (steps(record)["node02"], steps(record)["node03"]) == ("left-out", "rolled-back")


def test_a_mate_that_does_not_come_back_into_service_is_said() -> None:
    world = in_domains()
    world.up["node02"], world.up["node03"] = BUSY, {**BUSY, "message": "node02 stays.", "together": "node02"}
    world.back["node03"] = BAD_GPU
    node = world.run().nodes["node03"]
    assert (node.step, node.back) == (NodeStep.FAILED, True), "it is on its former set"
    assert node.reason == "node02 stays. On the way back to hgx-r580-debian12: ecc"


def test_a_known_kind_stops_again_only_by_its_share() -> None:
    site = site_of(upgrade={"stop_above_pct": 50})
    world = World(record_of(*NODES), site)
    world.up["node02"] = world.up["node04"] = NO_DRIVER
    record = world.run()
    assert record.reason.startswith("new kind of failure in wave 2: install nvidia_driver : load. Check")
    world.site = site_of(upgrade={"stop_above_pct": 100})
    assert world.run().state is UpgradeState.FINISHED
    assert world.moved[-2:] == ["up node04", "back node04"]


def test_exactly_the_share_does_not_stop() -> None:
    record = record_of(*NODES)
    record.kinds = list(NO_DRIVER["kinds"])
    world = World(record, site_of(upgrade={"stop_above_pct": 50}))
    world.up["node02"] = NO_DRIVER
    assert world.run().state is UpgradeState.FINISHED


def test_nothing_is_stopped_after_the_last_wave() -> None:
    world = World(record_of(*NODES))
    world.up["node04"] = BAD_GPU
    record = world.run()
    assert (record.state, steps(record)["node04"]) == (UpgradeState.FINISHED, "failed")
    assert record.kinds == BAD_GPU["kinds"]


@pytest.mark.parametrize("dies_at", range(1, STEPS + 1))
def test_killed_at_any_step_it_goes_on_in_its_wave(dies_at: int) -> None:
    world = World(record_of(*NODES), site_of(upgrade={"stop_above_pct": 100}))
    world.up["node03"] = NO_DRIVER
    world.saved["kinds"] = list(NO_DRIVER["kinds"])
    world.dies_at = dies_at
    try:
        record = world.run()
    except Killed:
        before = steps(UpgradeRecord.model_validate(world.saved))
        done = len(world.moved)
        record = world.run()
        again = {node for line in world.moved[done:] if line.startswith("up") for node in line.split()[1:]}
        ended = {node for node, step in before.items() if step in {"ready", "rolled-back", "failed"}}
        assert not ended & again, "a node whose wave was recorded moved twice"
    assert steps(record) == {"node01": "ready", "node02": "ready", "node03": "rolled-back", "node04": "ready"}
    assert record.state is UpgradeState.FINISHED
    assert len(world.moved) <= 5, "one step is repeated at most"
    assert [node.wave for node in record.nodes.values()] == [1, 2, 2, 3]


def test_a_kill_test_reaches_every_step() -> None:
    world = World(record_of(*NODES), site_of(upgrade={"stop_above_pct": 100}))
    world.up["node03"] = NO_DRIVER
    world.saved["kinds"] = list(NO_DRIVER["kinds"])
    world.run()
    assert world._steps == STEPS


def test_packages_that_are_missing_refuse_the_wave_before_it_begins() -> None:
    world = World(record_of(*NODES))
    world.lacking = [Message("node01", "packages of the way back", "offered", "no nvidia-open=1", "Put them in.")]
    with pytest.raises(RackreadyError, match="node01: packages of the way back - Expected: offered Actual: no nvidia"):
        world.run()
    assert world.moved == []
    assert set(steps(UpgradeRecord.model_validate(world.saved)).values()) == {"waiting"}


def test_pause_is_seen_between_waves_and_resume_goes_on() -> None:
    world = World(record_of(*NODES))
    world.asked = [StopRequest.NOTHING, StopRequest.PAUSE]
    record = world.run()
    assert (world.moved, record.state) == (["up node01"], UpgradeState.PAUSED)
    assert world.run().state is UpgradeState.FINISHED
    assert world.moved == ["up node01", "up node02 node03", "up node04"]


def test_abort_leaves_the_others_as_they_are() -> None:
    world = World(record_of(*NODES))
    world.asked = [StopRequest.NOTHING, StopRequest.ABORT]
    record = world.run()
    assert (record.state, record.reason) == (
        UpgradeState.ABORTED,
        "asked by another terminal; 3 nodes keep their former set",
    )
    assert steps(record) == {"node01": "ready", "node02": "waiting", "node03": "waiting", "node04": "waiting"}


SATURDAY = {"name": "night", "days": ["sat"], "start": "22:00", "hours": 4}


def test_a_wave_waits_for_a_window_and_says_when() -> None:
    world = World(record_of(*NODES), site_of(maintenance=[SATURDAY]))
    record = world.run()
    assert (record.state, record.reason) == (
        UpgradeState.WINDOW,
        (
            "a wave of node01 may take 10 minutes, and none is open. The next one begins at 2026-11-28 22:00 UTC "
            "(night): run the same command then."
        ),
    )
    assert world.moved == []
    world.clock = datetime(2026, 11, 28, 23, 0, tzinfo=UTC)
    assert world.run().state is UpgradeState.FINISHED


def test_a_wave_that_would_not_end_inside_waits() -> None:
    world = World(record_of(*NODES), site_of(maintenance=[SATURDAY]))
    world.clock = datetime(2026, 11, 29, 1, 51, tzinfo=UTC)
    assert "and window night ends at 2026-11-29 02:00 UTC. The next one begins at 2026-12-05" in world.run().reason


def test_a_duration_that_nobody_measured_refuses_inside_windows_only() -> None:
    world = World(record_of(*NODES), site_of(maintenance=[SATURDAY]))
    with pytest.raises(RackreadyError) as caught:
        world.run(wave_s=None)
    assert str(caught.value) == (
        "maintenance windows: the duration of a wave - Expected: measured by an earlier upgrade or deploy "
        "Actual: not measured. State the longest with --expect-minutes, or run with --outside-windows."
    )
    assert world.run(heed=False, wave_s=None).state is UpgradeState.FINISHED
    assert World(record_of(*NODES)).run(wave_s=None).state is UpgradeState.FINISHED


def test_a_wave_under_way_is_ended_outside_its_window() -> None:
    world = World(record_of(*NODES), site_of(maintenance=[SATURDAY]))
    world.clock = datetime(2026, 11, 28, 23, 0, tzinfo=UTC)
    world.dies_at = 5
    with pytest.raises(Killed):
        world.run()
    world.clock = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    record = world.run()
    assert (steps(record)["node01"], record.state) == ("ready", UpgradeState.WINDOW)
