"""A report shows as a pass only what still counts: the acceptance report's rules, with the records that it shows."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rackready.design.facts import desired_digest
from rackready.evidence.report import Written, write
from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.records.rejudge import Rejudge
from rackready.handover.certify import entries
from rackready.handover.counted import Counted
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.gates.stage import site_with
from tests.unit.evidence.test_store import fingerprint

LOOK = "node/gpu/sanity/inventory"
BESIDE = "node/gpu/stress/burn"
NODE = "node02"


class Measured:
    """A site on which every gate of the set passed an hour ago."""

    def __init__(self, tmp_path: Path, only: Collection[str] = ()) -> None:
        self.site, self.paths = site_with(2), EnvPaths(tmp_path, "sim")
        self.ledger = Ledger.open(self.paths.database)
        self.ledger.put_campaign("c1", env="sim", kind="validate", nodes=[], site_digest="", abi="1", status="finished")
        self.store = EvidenceStore.open(self.ledger, self.paths.raw)
        self.gates = [entry.id for entry in entries(self.site)]
        gates = only or self.gates
        self.store.append(*(self.record(gate, node.name) for node in self.site.nodes() for gate in gates))

    def record(
        self, gate: str, node: str, hours: float = 1.0, verdict: Verdict | None = None, **changed: str
    ) -> EvidenceRecord:
        at = datetime.now(UTC) - timedelta(hours=hours)
        seen: Fingerprint = fingerprint(node).model_copy(
            update={"desired_digest": desired_digest(self.site, node), "boot_id": "boot1", **changed}
        )
        return EvidenceRecord(
            id=new_id(),
            campaign="c1",
            gate=gate,
            target=node,
            nodes=[node],
            fingerprints=[seen],
            verdict=verdict or Verdict(outcome=Outcome.PASS),
            rackready_version="0",
            started=at,
            finished=at,
        )

    def in_state(self, state: NodeState) -> None:
        for node in self.site.nodes():
            self.ledger.set_state(node.name, state)

    def report(self, *, again: bool = False) -> tuple[Written, dict[str, Any]]:
        """Write the report and return it with the document of the node."""
        judging = Rejudge() if again else None
        written = write(self.site, self.paths, "c1", judging, Counted())
        nodes = json.loads(written.json.read_text(encoding="utf-8"))["nodes"]
        return written, next(node for node in nodes if node["name"] == NODE)


def notes(node: dict[str, Any]) -> set[str]:
    return {item["note"].split(" - ")[1].split(" It was")[0] for item in node["gates"] if item["outcome"] == "not_run"}


def test_of_nodes_that_we_never_changed_everything_counts(tmp_path: Path) -> None:
    written, node = Measured(tmp_path).report()
    assert (dict(written.outcomes), written.good) == ({"pass": 2}, True)
    assert {item["outcome"] for item in node["gates"]} == {"pass"}
    assert "Nothing to repair" in written.html.read_text(encoding="utf-8")


@pytest.mark.parametrize("ended", [False, True], ids=["cut off in it", "ended after the measurements"])
def test_what_was_measured_before_a_change_is_not_a_pass(tmp_path: Path, *, ended: bool) -> None:
    measured = Measured(tmp_path)
    token = measured.ledger.change_begins(NODE, "install")
    if ended:
        measured.ledger.done(token)
    written, node = measured.report()
    assert (dict(written.outcomes), written.good) == ({"pass": 1, "not_run": 1}, False)
    expected = "Expected: measured after the node's last change Actual: measured before it. Run `rackready validate`."
    assert notes(node) == {expected}
    assert (node["coverage"]["outcome"], {item["outcome"] for item in node["gates"]}) == ("not_run", {"not_run"})
    page = " ".join(written.html.read_text(encoding="utf-8").split())
    assert "Nothing to repair" not in page
    assert "<strong>1 of 2 nodes needs work.</strong>" in page
    assert page.count("required gates without evidence that counts") == 1, "one kind of finding, not one for each gate"
    assert written.junit.read_text(encoding="utf-8").count('type="not_run"') == len(measured.gates)


def test_outputs_that_are_judged_again_count_no_more_than_their_records(tmp_path: Path) -> None:
    measured = Measured(tmp_path)
    measured.ledger.change_begins(NODE, "install")
    _, node = measured.report(again=True)
    assert {item["outcome"] for item in node["gates"]} == {"not_run"}


def test_a_required_gate_without_a_record_is_not_run(tmp_path: Path) -> None:
    measured = Measured(tmp_path, only=(LOOK, COVERAGE))
    measured.in_state(NodeState.INSTALLED)
    gates = {gate: measured.record(gate, NODE) for gate in (LOOK, COVERAGE)}
    counted = Counted()
    counted.begin(measured.site, measured.ledger)
    assert counted.objections(NODE, {}) == {}, "nothing has measured it: the report says that"
    found = counted.objections(NODE, gates)
    assert set(found) == set(measured.gates) - set(gates)
    assert {why.text.split(" - ")[1] for why in found.values()} == {
        "Expected: pass, measured on the node as it is now Actual: no such evidence. Run `rackready validate`."
    }
    assert all(why.voids for why in found.values())
    written, node = measured.report()
    assert (node["outcome"], [item["gate"] for item in node["gates"]]) == ("not_run", [LOOK, *found])
    assert not written.good
    page = " ".join(written.html.read_text(encoding="utf-8").split())
    assert page.count("Not measured, though the gate set requires it: <code>") == 2
    assert page.count("required gates without evidence that counts") == 1
    assert written.junit.read_text(encoding="utf-8").count('type="not_run"') == 2 * len(found)


@pytest.mark.parametrize(
    ("changed", "hours", "gates"),
    [
        ({"driver": "999"}, 1.0, "others"),
        ({"desired_digest": "another"}, 1.0, "all"),
        ({"boot_id": "boot2"}, 1.0, "after_boot"),
        ({}, 24.0 * 365, "aged"),
    ],
    ids=["other hardware or software", "another desired state", "a reboot", "age"],
)
def test_every_rule_of_the_policy_holds(tmp_path: Path, changed: dict[str, str], hours: float, gates: str) -> None:
    measured = Measured(tmp_path)
    listed = {entry.id: entry for entry in entries(measured.site)}
    late = {
        "all": set(listed),
        "others": set(listed) - {LOOK},
        "after_boot": {gate for gate, entry in listed.items() if entry.after_boot} - {LOOK},
        "aged": {gate for gate, entry in listed.items() if entry.max_age_hours},
    }[gates]
    old = late if gates == "aged" else {LOOK}
    measured.store.append(*(measured.record(gate, NODE, hours, **changed) for gate in sorted(old)))
    _, node = measured.report()
    assert late
    assert {item["gate"] for item in node["gates"] if item["outcome"] == "not_run"} == late - {COVERAGE}


@pytest.mark.parametrize("state", [NodeState.READY, NodeState.REACHABLE])
def test_no_gate_is_missed_in_production_and_where_nothing_was_installed(tmp_path: Path, state: NodeState) -> None:
    measured = Measured(tmp_path, only=(LOOK, COVERAGE))
    measured.in_state(state)
    written, node = measured.report()
    assert (written.good, [item["gate"] for item in node["gates"]]) == (True, [LOOK])


def test_in_production_only_time_and_a_boot_void_nothing(tmp_path: Path) -> None:
    measured = Measured(tmp_path)
    measured.in_state(NodeState.READY)
    measured.store.append(*(measured.record(gate, NODE, 24.0 * 365) for gate in measured.gates))
    measured.store.append(measured.record(LOOK, NODE, boot_id="boot2"))
    written, node = measured.report()
    assert (written.good, {item["outcome"] for item in node["gates"]}) == (True, {"pass"})
    due = {entry.id for entry in entries(measured.site) if entry.max_age_hours} - {COVERAGE, LOOK}
    assert {item["gate"] for item in node["gates"] if (item["note"] or "").startswith("due: ")} == due
    measured.ledger.change_begins(NODE, "install")
    written, node = measured.report()
    assert (written.good, {item["outcome"] for item in node["gates"]}) == (False, {"not_run"})


def test_evidence_of_a_clock_that_was_ahead_does_not_count(tmp_path: Path) -> None:
    measured = Measured(tmp_path)
    measured.store.append(*(measured.record(gate, NODE, -8.0) for gate in measured.gates))
    measured.ledger.done(measured.ledger.change_begins(NODE, "repair"))
    _, node = measured.report()
    assert notes(node) == {
        "Expected: measured after the node's last change Actual: measured before it. Run `rackready validate`."
    }


def test_fails_stay_and_a_gate_beside_the_set_gets_a_note(tmp_path: Path) -> None:
    measured = Measured(tmp_path)
    finding = Finding(code="x", where=NODE, what="slow", expected="1", actual="0", next_step="Cool it.")
    fail = Verdict(outcome=Outcome.FAIL, findings=[finding])
    measured.store.append(measured.record(LOOK, NODE, verdict=fail), measured.record(BESIDE, NODE))
    assert BESIDE not in measured.gates
    measured.ledger.change_begins(NODE, "install")
    _, node = measured.report()
    found = {item["gate"]: item for item in node["gates"]}
    assert (node["outcome"], found[LOOK]["outcome"], found[LOOK]["note"]) == ("fail", "fail", None)
    assert found[BESIDE]["outcome"] == "pass"
    assert found[BESIDE]["note"].startswith(f"does not count: {NODE}: {BESIDE} - Expected: measured after the node's")


def test_a_pass_that_waits_for_its_fleet_is_shown_as_what_it_is(tmp_path: Path) -> None:
    measured = Measured(tmp_path)
    measured.store.append(measured.record(LOOK, NODE, verdict=Verdict(outcome=Outcome.PASS, fleet_pending=True)))
    _, node = measured.report()
    assert node["outcome"] == "pass"
