"""A phase by orders: what a report shows counts as a push; nothing else is a pass, and nothing is ordered twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign import drained_phase
from rackready.campaign.proof import Played
from rackready.campaign.pull import run as run_module
from rackready.campaign.pull import wait as wait_module
from rackready.campaign.pull.order import PullOrder, present
from rackready.campaign.pull.report import REPORT
from rackready.campaign.pull.run import pulled
from rackready.drivers.process import STOP, Interrupted
from rackready.evidence.raw_outputs import RawOutputs
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, PhaseContext
from tests.unit.campaign.pull_node import NODES, PULL, ROOT, Killed, Rack, played
from tests.waiting import until


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    monkeypatch.setattr(wait_module, "_POLL_S", 0.02)
    return Rack(PhaseContext("sim", tmp_path, "c1"), tmp_path / "nodes")


def order(rack: Rack, node: str = "node01") -> PullOrder:
    found = present(rack.paths, node)
    assert found is not None
    return found


# a good run ------------------------------------------------------------------------------------------------------


def test_a_report_counts_as_a_push_and_is_stored(rack: Rack) -> None:
    rack.lines = lambda node, _mode: played(node, changed=1)
    results = rack.run(NODES)
    result = results["node01"]
    assert (result.outcome, result.changed, result.data["changes"]) == (Outcome.PASS, True, ["base : limits"])
    assert set(results) == set(NODES)
    assert (rack.installs(), rack.pushed) == (["done"], NODES)
    kept = result.data[REPORT]
    assert kept["sequence"] == order(rack).sequence == rack.nodes["node01"].carried_out[0][0]
    with Ledger.open(rack.paths.database) as ledger:
        text = RawOutputs(ledger, rack.paths.raw).get(kept["raw"])
    assert json.loads(text)["node"] == "node01"
    assert "canary-of-an-argument" not in text, "arguments of tasks are no evidence, and may be secrets"


def test_an_order_says_all_that_the_node_compares(rack: Rack) -> None:
    rack.run()
    found = order(rack)
    token = next(entry.token for entry in rack.entries() if entry.operation == "install:install.yml")
    assert (found.sequence, found.mode, found.phase, found.playbook) == (token, "apply", "install", "install.yml")
    assert (found.site, found.machine, found.limit_s) == (rack.identity, rack.nodes["node01"].machine, 3600)
    assert found.expires - found.issued == 3600 + 600


def test_a_second_run_pushes_no_agent(rack: Rack) -> None:
    rack.run()
    rack.pushed.clear()
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert (rack.pushed, rack.installs()) == ([], ["done", "done"])


def test_a_failed_task_is_a_fail_with_its_task(rack: Rack) -> None:
    rack.lines = lambda node, _mode: played(node, failed=1)
    result = rack.run()["node01"]
    assert result.outcome is Outcome.FAIL
    assert (
        'task "driver : install" failed - Expected: the task succeeds Actual: no room for the driver' in result.message
    )
    assert rack.installs() == ["failed"]


def test_a_play_without_an_end_is_no_pass(rack: Rack) -> None:
    rack.lines = lambda node, _mode: played(node)[:-1]
    assert rack.run()["node01"].outcome is Outcome.ERROR
    assert order(rack).mode == "check", "the order is withdrawn"


# dry runs --------------------------------------------------------------------------------------------------------


def test_a_dry_run_is_an_order_that_only_checks(rack: Rack) -> None:
    rack.run()
    rack.lines = lambda node, mode: played(node, changed=mode == "check")
    result = rack.run(check=True)["node01"]
    assert (result.outcome, result.changed) == (Outcome.PASS, True)
    assert rack.nodes["node01"].carried_out[-1][1] == "check"
    assert rack.installs() == ["done"], "a dry run has no intent of an install"


def test_a_dry_run_puts_no_agent_on_a_node(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, list[str]]] = []
    monkeypatch.setattr(run_module.Played, "run", lambda _self, ctx, nodes: asked.append((ctx.check, nodes)) or {})
    rack.run(check=True)
    assert (asked, rack.pushed, rack.nodes["node01"].told) == ([(True, ["node01"])], [], 0)


def test_the_dry_run_before_a_drain_is_an_order(rack: Rack) -> None:
    assert rack.run(drained_dry=True)["node01"].outcome is Outcome.PASS
    assert (rack.pushed, rack.nodes["node01"].carried_out[-1][1]) == (["node01"], "check")


def test_a_node_in_production_is_drained_between_its_two_orders(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.lines = lambda node, mode: played(node, changed=mode == "check")
    seen: list[str] = []
    rack.at_trigger = lambda node: seen.append(order(rack, node).mode)
    monkeypatch.setattr(drained_phase, "in_production", lambda _ctx, nodes: (list(nodes), {}))
    monkeypatch.setattr(drained_phase, "take_out", lambda _ctx, why: seen.extend(why.values()) or {})
    work = pulled(rack.ctx, PULL, "install", Played("install.yml"), rack.parts())
    result = drained_phase.run_drained(rack.ctx, "install", work, ["node01"])["node01"]
    assert seen == ["check", "install is about to change: base : limits", "apply"]
    assert result.outcome is Outcome.PASS
    rack.lines = lambda node, _mode: played(node)
    seen.clear()
    assert drained_phase.run_drained(rack.ctx, "install", work, ["node01"])["node01"].outcome is Outcome.PASS
    assert seen == ["check"], "a node that would not change is not drained, and plays once"


# refusals --------------------------------------------------------------------------------------------------------


def test_nothing_is_ordered_while_the_server_does_not_answer(rack: Rack) -> None:
    rack.unserved = "no server"
    result = rack.run()["node01"]
    assert (result.outcome, result.touched, result.data[UNTOUCHED]) == (Outcome.ERROR, False, True)
    assert result.message == "node01: install: no server"
    assert (present(rack.paths, "node01"), rack.installs(), rack.pushed) == (None, [], [])


def test_a_node_without_a_release_holds_back_no_other(rack: Rack) -> None:
    rack.unbuilt["node01"] = "group_vars/all.yml uses vault"
    results = rack.run(NODES)
    assert results["node01"].message == "node01: install: group_vars/all.yml uses vault"
    assert (results["node01"].touched, results["node02"].outcome) == (False, Outcome.PASS)


SPOILED: list[tuple[str, dict[str, Any], str]] = [
    ("release", {"release": "b" * 64}, f"Expected: release {'a' * 64} Actual: release {'b' * 64}."),
    ("site", {"site": "another"}, "Actual: site another."),
    ("sequence", {"sequence": 1}, "Actual: sequence 1."),
    ("mode", {"mode": "check"}, "Expected: mode apply Actual: mode check."),
    ("phase", {"phase": "optimize"}, "Expected: phase install Actual: phase optimize."),
    ("agent", {"agent": "c" * 64}, f"Actual: agent {'c' * 64}."),
    ("node", {"node": "node02"}, "Expected: node node01 Actual: a report of node02, signed with the key of node01."),
]


@pytest.mark.parametrize(("change", "words"), [row[1:] for row in SPOILED], ids=[row[0] for row in SPOILED])
def test_a_report_of_anything_else_is_an_error(rack: Rack, change: dict[str, Any], words: str) -> None:
    rack.run()
    rack.nodes["node01"].spoil = lambda report: report.update(change | {"sealed": ""})
    result = rack.run()["node01"]
    assert (result.outcome, words in result.message) == (Outcome.ERROR, True), result.message
    assert rack.installs()[-1] == "failed"
    assert order(rack).mode == "check", "nobody applies that order later"


def test_a_report_with_a_bad_signature_is_an_error(rack: Rack) -> None:
    rack.nodes["node01"].sent = lambda body: json.dumps(
        json.loads(body) | {"signature": json.loads(body)["signature"].replace("U1NI", "U1NJ")}
    ).encode()
    result = rack.run()["node01"]
    assert result.outcome is Outcome.ERROR
    assert "Expected: signed with the node's pinned host key Actual: another signature" in result.message


def test_a_report_that_another_node_signed_is_an_error(rack: Rack) -> None:
    one, two = (rack.nodes[name].places.host_keys for name in NODES)
    for name in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"):
        (one / name).write_bytes((two / name).read_bytes())
    assert "another signature" in rack.run()["node01"].message


def test_an_agent_that_refuses_says_why(rack: Rack) -> None:
    rack.nodes["node01"].places.trusted.write_bytes(b"no key\n")
    result = rack.run()["node01"]
    assert result.outcome is Outcome.ERROR
    assert result.message.startswith("node01: install: its agent refuses: node01: order - Expected: a signature of the")
    assert "Actual: no valid signature of it." in result.message
    rack.pushed.clear()
    rack.run()
    assert rack.pushed == ["node01"], "the next run gives it the key again"


def test_an_order_that_failed_is_withdrawn_while_other_nodes_are_at_work(rack: Rack) -> None:
    """It is told again that there is an order: what it reported as not done must not be done then."""
    failure = {"code": "disk-full", "where": "node01: disk", "expected": "room", "actual": "none", "next_step": "Free."}
    rack.nodes["node01"].spoil = lambda report: report.update(failure=failure)
    seen = []

    def plays(node: str, _mode: str) -> list[dict[str, Any]]:
        if node == "node02":
            until(lambda: order(rack).mode == "check")
            seen.append(node)
        return played(node)

    rack.lines = plays
    results = rack.run(NODES)
    assert [results[node].outcome for node in NODES] == [Outcome.ERROR, Outcome.PASS]
    assert seen == ["node02"]
    assert [order(rack, node).mode for node in NODES] == ["check", "apply"]


def test_a_node_with_another_agent_gets_ours_with_the_next_run(rack: Rack) -> None:
    rack.nodes["node01"].spoil = lambda report: report.update(agent="c" * 64)
    rack.run()
    rack.pushed.clear()
    rack.nodes["node01"].spoil = lambda _report: None
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert rack.pushed == ["node01"]


def test_a_node_that_lost_its_agent_gets_it_again(rack: Rack) -> None:
    rack.run()
    rack.pushed.clear()
    rack.absent.add("node01")
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert rack.pushed == ["node01"]


def test_a_node_that_cannot_be_told_is_an_error_and_its_order_is_withdrawn(rack: Rack) -> None:
    rack.away["node01"] = "no route"
    result = rack.run(NODES)
    assert result["node01"].message == (
        "node01: install: its agent was not started - Expected: SSH starts it Actual: no route. "
        "Check that the node is up and that its address in the site file is right, then run again."
    )
    assert (rack.installs(), order(rack).mode, result["node02"].outcome) == (["intent"], "check", Outcome.PASS)


def test_no_report_is_an_error_with_an_open_intent(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "GRACE_S", -3600.0 + 0.1)
    rack.deaf = True
    result = rack.run()["node01"]
    assert (result.outcome, rack.installs(), order(rack).mode) == (Outcome.ERROR, ["intent"], "check")
    assert "no report - Expected: its report of order" in result.message
    assert "`rackready release serve --env sim`" in result.message


# kills -----------------------------------------------------------------------------------------------------------


def killed_at_intent(_rack: Rack, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_module, "write", raising)


def killed_after_the_order(rack: Rack, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rack, "at_trigger", raising)


def killed_after_the_trigger(_rack: Rack, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_module, "wait_for", raising)


def raising(*_args: object) -> None:
    raise Killed


def killed(rack: Rack, kill: Callable[[Rack, pytest.MonkeyPatch], None]) -> None:
    """Run the phase with a controller that dies."""
    with pytest.MonkeyPatch.context() as patch:
        kill(rack, patch)
        with pytest.raises(Killed):
            rack.run()


KILLS = [(killed_at_intent, 2), (killed_after_the_order, 1), (killed_after_the_trigger, 1)]


@pytest.mark.parametrize(("kill", "installs"), KILLS, ids=[kill.__name__ for kill, _ in KILLS])
def test_a_killed_controller_goes_on_where_it_stopped(
    rack: Rack, kill: Callable[[Rack, pytest.MonkeyPatch], None], installs: int
) -> None:
    killed(rack, kill)
    assert rack.installs() == ["intent"]
    assert rack.run()["node01"].outcome is Outcome.PASS
    applied = [sequence for sequence, mode in rack.nodes["node01"].carried_out if mode == "apply"]
    assert (len(rack.installs()), rack.installs()[-1], len(applied)) == (installs, "done", 1)


def test_a_killed_controller_finds_the_report_of_a_fail(rack: Rack) -> None:
    rack.lines = lambda node, _mode: played(node, failed=1)
    killed(rack, killed_after_the_trigger)
    rack.lines = lambda node, _mode: played(node)
    assert rack.run()["node01"].outcome is Outcome.FAIL
    assert rack.installs() == ["failed"]


def test_another_release_than_that_of_the_killed_run_is_ordered_after_it(rack: Rack) -> None:
    killed(rack, killed_after_the_trigger)
    rack.release = "d" * 64
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert (rack.installs(), order(rack).release) == (["done", "done"], "d" * 64)


def test_an_open_intent_of_a_push_is_ended_as_a_push_does(rack: Rack) -> None:
    with Ledger.open(rack.paths.database) as ledger:
        ledger.begin("node01", "install:install.yml", "d", {})
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert rack.installs() == ["failed", "done"]


def test_an_interrupt_withdraws_what_no_report_is_there_for(rack: Rack) -> None:
    rack.deaf = True
    rack.at_trigger = lambda _node: STOP.set()
    try:
        with pytest.raises(Interrupted):
            rack.run()
    finally:
        STOP.clear()
    assert (rack.installs(), order(rack).mode) == (["intent"], "check")
    rack.deaf, rack.at_trigger = False, lambda _node: None
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert rack.installs() == ["failed", "done"]
    assert (
        "node01: an earlier run was interrupted here; its effect is observed before anything is changed"
        in rack.events()
    )
