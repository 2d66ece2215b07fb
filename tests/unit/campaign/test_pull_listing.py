"""The listing of reports says what nodes differ in, and calls no silence good."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rackready.campaign.pull import wait as wait_module
from rackready.campaign.pull.listing import DIFFERS, FAILED, LATE, NONE, SAME, NodeReports, listed
from rackready.design.pinned import site_of
from tests.unit.campaign.pull_node import NODES, PULL, Rack, played, with_keys


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    """Return two nodes whose keys are as the controller makes them, the first of them installed."""
    monkeypatch.setattr(wait_module, "_POLL_S", 0.02)
    made = with_keys(tmp_path)
    made.run()
    return made


def look(rack: Rack, node: str = "node01") -> NodeReports:
    found = {one.node: one for one in listed(site_of(rack.ctx), PULL, rack.paths, NODES)}
    return found[node]


def by_timer(rack: Rack, *, changed: int = 0, failed: int = 0) -> None:
    rack.lines = lambda node, _mode: played(node, changed=changed, failed=failed)
    rack.nodes["node01"].wake()
    for thread in rack.threads:
        thread.join()


def test_a_node_after_its_play_is_as_released(rack: Rack) -> None:
    found = look(rack)
    (phase,) = found.phases
    assert (found.status, phase.phase, phase.status, phase.check) == (SAME, "install", SAME, None)
    assert phase.apply is not None
    assert (phase.apply.playbook, phase.apply.release) == ("install.yml", rack.release)


def test_each_phase_is_shown_and_the_worst_one_counts(rack: Rack) -> None:
    node = rack.nodes["node01"]
    for phase, sequence, changed in (("optimize", 90, 0), ("install", 40, 1)):
        rack.lines = lambda name, _mode, changed=changed: played(name, changed=changed)  # type: ignore[misc]
        node.spoil = lambda report, phase=phase: report.update(phase=phase)  # type: ignore[misc]
        node.compare(sequence)
    found = look(rack)
    assert [(one.phase, one.status) for one in found.phases] == [("install", DIFFERS), ("optimize", SAME)]
    assert (found.status, found.phases[0].check and found.phases[0].check.changes) == (DIFFERS, ("base : limits",))


def test_a_phase_that_is_silent_is_late_though_another_one_reports(rack: Rack) -> None:
    node = rack.nodes["node01"]
    node.spoil = lambda report: report.update(phase="optimize", ended=time.time() - 3 * 30 * 60 - 605)
    node.compare(90)
    found = look(rack)
    assert [(one.phase, one.status) for one in found.phases] == [("install", SAME), ("optimize", LATE)]
    assert found.status == LATE


def test_a_report_without_a_phase_is_that_of_its_order(rack: Rack) -> None:
    (entry,) = [entry for entry in rack.entries() if entry.operation == "install:install.yml"]
    node = rack.nodes["node01"]
    node.spoil = lambda report: report.update(phase="")
    node.compare(entry.token)
    assert [(one.phase, one.check is not None) for one in look(rack).phases] == [("install", True)]
    node.compare(0)
    assert [one.phase for one in look(rack).phases] == ["install"], "an order that could not be read is no phase"


def test_a_check_by_the_timer_says_what_differs(rack: Rack) -> None:
    by_timer(rack, changed=1)
    found = look(rack)
    check = found.phases[0].check
    assert (found.status, check and check.changes) == (DIFFERS, ("base : limits",))
    by_timer(rack)
    assert look(rack).status == SAME


def test_a_check_that_failed_is_not_as_released(rack: Rack) -> None:
    by_timer(rack, failed=1)
    found = look(rack)
    check = found.phases[0].check
    assert (found.status, check and "no room for the driver" in check.message) == (FAILED, True)


def test_a_node_that_never_reported_is_said_so(rack: Rack) -> None:
    assert look(rack, "node02").status == NONE


def test_a_node_that_is_silent_is_late(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 30 * 60 + 600 - 5)
    assert look(rack).status == SAME
    monkeypatch.setattr(time, "time", lambda: now + 3 * 30 * 60 + 600 + 5)
    assert look(rack).status == LATE


def test_a_report_that_was_changed_does_not_count(rack: Rack) -> None:
    (file,) = (rack.paths.node_reports / "node01").glob("*.json")
    sent = json.loads(file.read_text())
    file.write_text(json.dumps(sent | {"report": sent["report"][:-8] + "AAAAAAA="}))
    found = look(rack)
    assert (found.status, found.phases, len(found.unread)) == (FAILED, (), 1)


def test_a_report_for_another_ledger_does_not_count(rack: Rack) -> None:
    rack.nodes["node01"].spoil = lambda report: report.update(site="another")
    (file,) = (rack.paths.node_reports / "node01").glob("*.json")
    file.unlink()
    by_timer(rack)
    assert look(rack).status == NONE
