"""An upgrade whose site or nodes change under it: nodes that are gone, faults of watch, and a way back that fails."""

from __future__ import annotations

from rackready.campaign.stop_request import StopRequest
from rackready.campaign.upgrade.edits import against, edited
from rackready.model.upgrade import NodeStep, SetChoice, UpgradeRecord, UpgradeState, WaveRecord
from tests.unit.campaign.upgrade.test_engine import NO_DRIVER, NODES, World, steps
from tests.unit.campaign.upgrade.upgrade_sites import FORMER, NEW, record_of

GONE = "it is not in the site file any more"
TO, THIRD = SetChoice(set=NEW), SetChoice(set="third")


def test_a_node_that_left_the_site_is_left_out_and_said() -> None:
    world = World(record_of("node01", "old-name"))
    record = world.run()
    assert steps(record) == {"node01": "ready", "old-name": "left-out"}
    assert (record.state, record.nodes["old-name"].reason) == (UpgradeState.FINISHED, GONE)
    assert f"left out: old-name: {GONE}" in world.said


def test_a_cut_off_wave_goes_on_without_the_node_that_left_the_site() -> None:
    record = record_of("node01", "old-name")
    record.wave = WaveRecord(number=1, nodes=["node01", "old-name"], begun=0.0)
    world = World(record)
    assert steps(world.run()) == {"node01": "ready", "old-name": "left-out"}
    assert world.moved == ["up node01"]


def test_a_wave_of_which_no_node_is_left_ends() -> None:
    record = record_of("old-name")
    record.wave = WaveRecord(number=1, nodes=["old-name"], back=["old-name"], begun=0.0)
    world = World(record)
    assert (world.run().state, world.moved) == (UpgradeState.FINISHED, [])


def test_a_node_that_watch_drained_for_a_fault_is_not_brought_back_by_a_wave() -> None:
    world = World(record_of(*NODES))
    world.faulty = {"node03": "gpu-xid: node03 gpu4: Xid 79"}
    record = world.run()
    assert steps(record)["node03"] == "left-out"
    assert record.nodes["node03"].reason == (
        "gpu-xid: node03 gpu4: Xid 79. Repair it first: `rackready repair node03 --reason '...'`"
    )
    assert not any("node03" in words for words in world.moved)


def test_an_abort_counts_also_where_the_rule_stops() -> None:
    world = World(record_of(*NODES))
    world.up["node01"] = NO_DRIVER
    world.asked = [StopRequest.NOTHING, StopRequest.ABORT]
    record = world.run()
    assert (record.state, record.reason) == (
        UpgradeState.ABORTED,
        "asked by another terminal; 3 nodes keep their former set",
    )


def test_a_node_whose_way_back_failed_is_on_record_with_its_former_set() -> None:
    for phase, back in (("install", True), ("take-out", False)):
        world = World(record_of("node01"))
        world.up["node01"] = NO_DRIVER
        world.back["node01"] = NO_DRIVER | {"phase": phase, "message": "no answer"}
        node = world.run().nodes["node01"]
        assert (node.step, node.back) == (NodeStep.FAILED, back)


def _half_done() -> UpgradeRecord:
    record = record_of("node01", "node02", "node03")
    record.nodes["node01"].step = NodeStep.READY
    record.nodes["node02"].step = NodeStep.MOVING
    return record


def test_the_site_file_may_give_the_former_set_or_the_new_one_while_an_upgrade_is_open() -> None:
    assert edited(_half_done(), {"node01": TO, "node02": FORMER, "node99": THIRD}) == []
    found = edited(_half_done(), {"node01": THIRD, "node02": THIRD, "node03": FORMER})
    assert [str(one) for one in found] == [
        (
            "node01, node02: version set - Expected: as upgrade u1 to next-set has it, which is running Actual: third. "
            "Put the former set into the site file until the upgrade has ended, or end it with `rackready upgrade "
            "--abort`."
        )
    ]


def test_other_work_takes_no_node_past_its_wave_and_judges_none_by_a_set_that_it_lacks() -> None:
    assert against(_half_done(), {"node01": TO, "node02": TO, "node03": FORMER, "node99": THIRD}) == []
    found = against(_half_done(), {"node01": TO, "node02": FORMER, "node03": TO})
    assert [one.where for one in found] == ["node03"]
    assert [one.where for one in against(_half_done(), {"node01": FORMER})] == ["node01"]
