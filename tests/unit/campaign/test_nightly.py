"""A night on idle nodes: which it takes, how each goes back, and what is left after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.campaign.nightly import leftovers
from rackready.campaign.nightly.marks import TAKEN, begin, longest_s
from rackready.campaign.nightly.night import NightOrder, preview, require_set
from rackready.drivers.process import STOP, Interrupted
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState
from tests.unit.campaign.night_world import GEMM, HELD, MINE, NODES, World, kill, made

BACK = "put back into production: a night that was killed had taken it"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return made(tmp_path, monkeypatch)


def drains(world: World) -> list[str]:
    return [line for line in world.cluster.said if "State=DRAIN" in line]


def test_idle_nodes_are_measured_and_put_back(world: World) -> None:
    found = world.night()
    assert found.exit_code == 0
    assert found.outcomes == dict.fromkeys(NODES, ("pass", ""))
    assert world.cluster.reason == {}
    assert set(world.states().values()) == {"ready"}
    assert world.marks() == [(node, "back") for node in NODES]
    with world.ledger() as ledger:
        row = ledger.state("node01")
    assert row is not None
    assert (row.phase, row.campaign, row.reason) == ("handover", "deploy-1", "")


def test_a_night_is_on_record_for_reports_and_hides_no_campaign(world: World) -> None:
    world.gives["node02"] = Outcome.ERROR
    world.cluster.jobs["node03"] = "7"
    world.night()
    with world.ledger() as ledger:
        (row,) = ledger.campaigns()
    assert (row["id"], row["kind"], row["status"]) == ("nightly-1", "nightly", "finished")
    assert {node: one["outcome"] for node, one in row["summary"]["results"].items()} == {
        "node01": "pass",
        "node02": "error",
        "node04": "pass",
    }


def test_nodes_are_drained_and_out_of_production_while_they_are_measured(world: World) -> None:
    seen: list[tuple[dict[str, str], dict[str, str]]] = []
    world.during = lambda _nodes: seen.append((dict(world.cluster.reason), world.states()))
    world.night(nodes=["node01"])
    assert seen[0][0] == {"node01": MINE}
    assert seen[0][1]["node01"] == "certified"


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        ("+PLANNED", "IDLE+PLANNED"),
        ("+MAINTENANCE+RESERVED", "IDLE+MAINTENANCE+RESERVED"),
        ("+DRAIN", "IDLE+DRAIN"),
        ("+NOT_RESPONDING", "IDLE+NOT_RESPONDING"),
        ("+REBOOT_REQUESTED", "IDLE+REBOOT_REQUESTED"),
    ],
)
def test_a_node_that_somebody_has_plans_with_is_not_taken(world: World, flags: str, state: str) -> None:
    world.cluster.flags["node02"] = flags
    found = world.night(nodes=["node02"])
    assert found.outcomes == {"node02": ("busy", state)}
    assert (world.cluster.said, found.exit_code) == ([], 0)


def test_a_node_with_a_job_is_named_and_never_drained(world: World) -> None:
    world.cluster.jobs["node02"] = "4711"
    found = world.night()
    assert found.outcomes["node02"] == ("busy", "job 4711 (ann, train)")
    assert not any("node02" in line for line in world.cluster.said)
    assert world.measured == [["node01", "node03", "node04"]]


@pytest.mark.parametrize(
    ("state", "starts", "words"),
    [
        ("ACTIVE", "2026-11-30T08:00:00", "reservation course"),
        ("INACTIVE", "2026-12-01T02:20:00", "reservation course from 2026-12-01T02:20:00"),
        ("INACTIVE", "2026-12-01T08:00:00", None),
    ],
)
def test_a_reservation_of_others_keeps_its_nodes(world: World, state: str, starts: str, words: str | None) -> None:
    world.cluster.reservations = [HELD.format("course", starts, "node[01-02]", "SPEC_NODES", "ann", state)]
    found = world.night(nodes=["node01"])
    assert found.outcomes["node01"] == (("pass", "") if words is None else ("busy", words))


def test_a_job_that_begins_before_the_drain_runs_on_and_the_node_goes_back(world: World) -> None:
    world.cluster.on_drain = lambda node: world.cluster.jobs.update({node: "4712"} if node == "node01" else {})
    found = world.night(nodes=["node01", "node02"])
    assert found.outcomes == {
        "node01": ("busy", "a job began meanwhile, and runs on: job 4712 (ann, train)"),
        "node02": ("pass", ""),
    }
    assert world.measured == [["node02"]]
    assert world.cluster.reason == {}
    assert world.cluster.jobs == {"node01": "4712"}
    assert world.states()["node01"] == "ready"


def test_a_drain_that_others_set_meanwhile_stays(world: World) -> None:
    world.during = lambda nodes: world.cluster.reason.update({nodes[0]: "bad PSU, maria"})
    found = world.night(nodes=["node01"])
    assert found.outcomes["node01"] == (
        "error",
        "others changed it meanwhile, so it stays as it is: IDLE+DRAIN, bad PSU, maria",
    )
    assert world.cluster.reason == {"node01": "bad PSU, maria"}
    assert found.exit_code == 1


def test_a_fault_that_watch_found_meanwhile_keeps_the_node_drained(world: World) -> None:
    world.cluster.on_drain = lambda node: world.faulty.update({node: "gpu2: Xid 79"})
    found = world.night(nodes=["node01"])
    assert found.outcomes["node01"] == ("busy", "watch drains it: gpu2: Xid 79")
    assert world.cluster.reason == {"node01": MINE}
    assert world.states()["node01"] == "ready"
    assert world.measured == []


def test_a_node_that_fails_stays_drained_with_its_finding(world: World) -> None:
    world.gives["node02"] = Outcome.FAIL
    found = world.night()
    assert found.outcomes["node02"] == ("fail", "node02 gpu2: slow")
    assert found.exit_code == 1
    assert world.cluster.reason == {"node02": "rackready: quarantined: node02 gpu2: slow"}
    assert world.states()["node02"] == "quarantined"


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.NOT_RUN])
def test_a_node_that_could_not_be_measured_goes_back_and_is_named(world: World, outcome: Outcome) -> None:
    world.gives["node02"] = outcome
    found = world.night()
    assert found.outcomes["node02"] == ("error", "node02 gpu2: slow")
    assert found.exit_code == 1
    assert (world.cluster.reason, world.states()["node02"]) == ({}, "ready")


def test_the_oldest_evidence_goes_first_within_the_share(world: World) -> None:
    for node, hours in zip(NODES, (30, 50, 13, 11), strict=True):
        world.evidence(node, hours)
    found = world.night(share=25)
    assert world.measured == [["node02"], ["node01"], ["node03"]]
    assert found.outcomes["node04"] == ("fresh", "measured 11.0 h ago")


def test_a_node_whose_program_is_missing_is_not_the_first_of_every_night(world: World) -> None:
    for node in NODES[1:]:
        world.evidence(node, 30)
    world.put("node01", GEMM, Outcome.ERROR, at=datetime.fromtimestamp(world.now - 24 * 3600, UTC))
    world.night(share=25)
    assert world.measured[-1] == ["node01"]


def test_fresh_nodes_are_measured_where_that_is_asked_for(world: World) -> None:
    world.evidence("node01", 1)
    assert world.night(nodes=["node01"]).outcomes["node01"][0] == "fresh"
    assert world.night(2, nodes=["node01"], again=True).outcomes["node01"][0] == "pass"


def test_one_node_is_taken_however_small_the_share_is(world: World) -> None:
    world.night(share=1)
    assert world.measured == [[node] for node in NODES]


def test_what_does_not_fit_into_the_night_is_left_and_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackready.campaign.nightly.night.longest_s", lambda _ledger: 1200.0)
    found = world.night(share=25, hours=0.5)  # a batch takes 10 minutes by the world's clock
    assert world.measured == [["node01"], ["node02"]]
    why = "left for the next night: a batch takes about 20 min, 10 left"
    assert {node: told for node, told in found.outcomes.items() if told[0] != "pass"} == dict.fromkeys(
        ("node03", "node04"), ("later", why)
    )
    assert found.exit_code == 0


def test_before_anything_was_measured_a_batch_is_expected_to_take_half_an_hour(world: World) -> None:
    with world.ledger() as ledger:
        assert longest_s(ledger) == 1800.0


def test_a_night_that_is_shorter_than_a_batch_measures_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackready.campaign.nightly.night.longest_s", lambda _ledger: 5 * 3600.0)
    found = world.night(share=25, hours=4)
    assert world.measured == [["node01"]]
    assert found.outcomes["node02"] == ("later", "left for the next night: a batch takes about 300 min, 230 left")


def test_cleaning_up_that_took_the_night_leaves_no_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> leftovers.Resolved:
        world.now += 2.5 * 3600
        return leftovers.Resolved()

    monkeypatch.setattr("rackready.campaign.nightly.night.resolve", slow)
    monkeypatch.setattr("rackready.campaign.nightly.night.longest_s", lambda _ledger: 5 * 3600.0)
    assert world.night(hours=4, nodes=["node01"]).outcomes["node01"][0] == "later"
    assert world.cluster.said == []


def test_one_long_night_says_nothing_about_the_next_ones(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("rackready.ledger.store.time", SimpleNamespace(time=lambda: clock[0]))
    with world.ledger() as ledger:
        for number in range(10):
            for node in ("node01", "node02"):
                token = ledger.begin(node, TAKEN, f"nightly-{number}", {}).token
                clock[0] += 6 * 3600 if number == 3 else 600
                ledger.done(token, {"measured": True})
            expected = longest_s(ledger)
            assert expected == (6 * 3600 if 3 <= number < 9 else 600), number


def test_a_scheduler_that_does_not_answer_is_no_idle_node(world: World) -> None:
    world.cluster.silent = True
    found = world.night(nodes=["node01"])
    outcome, why = found.outcomes["node01"]
    assert (outcome, found.exit_code) == ("unknown", 1)
    assert "Unable to contact slurm controller" in why


def test_nodes_out_of_production_are_named(world: World) -> None:
    with world.ledger() as ledger:
        ledger.set_state("node01", NodeState.QUARANTINED, "bad")
    assert world.night(nodes=["node01"]).outcomes == {"node01": ("out", "not in production: quarantined")}


def test_what_a_killed_night_took_is_put_back_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(world, monkeypatch)
    assert world.cluster.reason == dict.fromkeys(NODES, MINE)
    found = world.night(2, nodes=["node01"], hours=0)
    assert found.resolved.lines == dict.fromkeys(
        NODES, "put back into production: a night that was killed had taken it"
    )
    assert world.swept == list(NODES)
    assert (world.cluster.reason, set(world.states().values())) == ({}, {"ready"})
    assert found.exit_code == 0


@pytest.mark.parametrize(("drained", "state"), [(False, "ready"), (False, "certified"), (True, "ready")])
def test_a_kill_between_any_two_steps_is_put_right(world: World, *, drained: bool, state: str) -> None:
    """Before the drain; after the release and before its record; after the drain and before its record."""
    with world.ledger() as ledger:
        row = ledger.state("node01")
        assert row is not None
        mark = begin(ledger, "nightly-1", row)
        taken = state == "certified"
        reason, run = (mark.words, "nightly-1") if taken else ("", "deploy-1")
        ledger.set_state("node01", NodeState(state), reason, phase="handover", campaign=run)
    world.cluster.reason = {"node01": mark.reason} if drained else {}
    assert world.night(2, hours=0).resolved.lines == {"node01": BACK}
    assert (world.cluster.reason, world.states()["node01"]) == ({}, "ready")
    assert world.marks() == [("node01", "back")]


@pytest.mark.parametrize(
    ("run", "reason", "state"),
    [("nightly-1", "in the words of another release", "ready"), ("deploy-2", "drained: {reason}", "certified")],
    ids=["ours", "of a deploy since"],
)
def test_the_run_of_a_record_and_not_its_reason_makes_it_ours(world: World, run: str, reason: str, state: str) -> None:
    with world.ledger() as ledger:
        row = ledger.state("node01")
        assert row is not None
        mark = begin(ledger, "nightly-1", row)
        text = reason.format(reason=mark.reason)
        ledger.set_state("node01", NodeState.CERTIFIED, text, phase="handover", campaign=run)
    world.cluster.reason = {"node01": mark.reason}
    assert world.night(2, hours=0).resolved.lines == {"node01": BACK}
    assert world.states()["node01"] == state


def test_a_fail_that_a_killed_night_recorded_is_a_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(world, monkeypatch)
    world.put("node02", "node/gpu/sanity/ecc", Outcome.FAIL, campaign="nightly-1")
    found = world.night(2, hours=0)
    assert found.resolved.lines["node02"] == "failed in a night that was killed: node02: node/gpu/sanity/ecc failed"
    assert world.cluster.reason == {"node02": "rackready: quarantined: node02: node/gpu/sanity/ecc failed"}
    assert world.states()["node02"] == "quarantined"


def test_a_killed_night_undoes_no_drain_of_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(world, monkeypatch)
    world.cluster.reason["node03"] = "rackready: gpu0: Xid 79"
    found = world.night(2, hours=0)
    assert found.resolved.lines["node03"] == (
        "others changed it meanwhile, so it stays as it is: IDLE+DRAIN, rackready: gpu0: Xid 79"
    )
    assert world.cluster.reason == {"node03": "rackready: gpu0: Xid 79"}
    assert world.night(3, hours=0).resolved.lines == {}


def test_a_node_that_was_repaired_since_is_left_to_its_repair(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(world, monkeypatch)
    with world.ledger() as ledger:
        ledger.raise_epoch("node03", "repaired: GPU replaced")
    found = world.night(2, hours=0)
    assert found.resolved.lines["node03"] == (
        "taken by a night that was killed, and left as it is: it was repaired since"
    )
    assert world.cluster.reason == {"node03": MINE}


def test_a_node_on_which_programs_may_run_on_is_not_put_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(world, monkeypatch)
    world.dirty = "no SSH service"
    found = world.night(2, hours=0)
    assert found.resolved.lines["node01"] == ("a killed night took it, and it is not put right yet: no SSH service")
    assert (found.exit_code, world.cluster.reason) == (1, dict.fromkeys(NODES, MINE))
    world.dirty = ""
    assert world.night(3, hours=0).exit_code == 0
    assert world.cluster.reason == {}


def test_the_reservation_of_a_killed_gate_ends_with_no_gap_for_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(world, monkeypatch)
    flags = "MAINT,IGNORE_JOBS,SPEC_NODES"
    mine = HELD.format("rackready-node02", "2026-12-01T02:00:00", "node02", flags, "root", "ACTIVE")
    pair = HELD.format("rackready-node03", "2026-12-01T02:00:00", "node[03-04]", flags, "root", "ACTIVE")
    theirs = HELD.format("rackready-node04", "2026-12-01T02:00:00", "node[03-04]", flags, "ann", "ACTIVE")
    world.cluster.reservations = [mine, pair, theirs]
    for node in ("node02", "node03", "node04"):
        del world.cluster.reason[node]
    world.cluster.said.clear()
    world.night(2, hours=0)
    assert world.cluster.reservations == [theirs]
    about = [line for line in world.cluster.said if "node02" in line]
    assert [line.split()[1] for line in about] == ["update", "delete", "update"]
    assert "State=DRAIN" in about[0]
    assert "State=RESUME" in about[2]
    drains = [line for line in world.cluster.said if "State=DRAIN" in line]
    assert drains[:3] == [f"scontrol update NodeName={node} State=DRAIN Reason='{MINE}'" for node in NODES[1:]]


def test_a_stop_puts_everything_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that holds while nodes go back would end that, too: adapters ask for it between their steps."""
    seen: list[bool] = []
    change = world.cluster.change

    def changed(command: str) -> tuple[int, str, str]:
        seen.append(STOP.is_set())
        return change(command)

    def stop(_nodes: Sequence[str]) -> None:
        STOP.set()
        raise Interrupted

    monkeypatch.setattr(world.cluster, "change", changed)
    world.during = stop
    try:
        with pytest.raises(Interrupted):
            world.night()
        assert STOP.is_set()
    finally:
        STOP.clear()
    assert (world.cluster.reason, set(world.states().values())) == ({}, {"ready"})
    assert seen == [False] * 2 * len(NODES)


def test_a_scheduler_that_falls_silent_leaves_a_mark_for_the_next_night(world: World) -> None:
    def silent(_nodes: Sequence[str]) -> None:
        world.cluster.silent = True

    world.during = silent
    found = world.night(nodes=["node01"])
    assert found.outcomes["node01"][0] == "error"
    assert found.outcomes["node01"][1].endswith("The next night tries again.")
    world.cluster.silent, world.during = False, lambda _nodes: None
    assert world.night(2, nodes=["node01"], hours=0).resolved.lines == {"node01": BACK}


def test_a_preview_changes_nothing(world: World) -> None:
    world.cluster.jobs["node03"] = "9"
    world.evidence("node04", 3)
    ctx = PhaseContext("t", world.root, "nightly-1", check=True)
    found = preview(ctx, NightOrder(NODES, "nightly", 25, 3600.0), world.now)
    assert {node: outcome for node, (outcome, _) in found.outcomes.items()} == {
        "node01": "measure",
        "node02": "later",
        "node03": "busy",
        "node04": "fresh",
    }
    assert (world.cluster.said, drains(world), world.marks()) == ([], [], [])


def test_sets_that_need_several_nodes_are_refused() -> None:
    with pytest.raises(RackreadyError) as caught:
        require_set("maintenance")
    assert str(caught.value).startswith(
        "nightly --set maintenance - Expected: a set whose gates need one node each, run once Actual: needs several "
        "nodes: pair/fabric/performance/ib-write-bw, "
    )
    require_set("nightly")
