"""Nodes beside a campaign: a wave of one node borrows them as partners, and nothing else is done to them."""

from __future__ import annotations

from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from tests.unit.campaign import test_evidence_check
from tests.unit.campaign.test_evidence_check import Rack

rack = test_evidence_check.rack


def words(rack: Rack, level: str = "warn") -> list[str]:
    return [f"{event.node} {event.text}" for event in rack.ledger.events("c1", 0) if event.level == level]


def test_a_node_beside_the_campaign_is_lent_and_given_back_and_has_no_result(rack: Rack) -> None:
    rack.measured("node02")
    rack.busy = {"node02"}
    assert set(rack.run("node01", beside=("node02",))) == {"node01"}
    ((nodes, partners, _),) = rack.runs
    assert (nodes, partners) == (["node01"], ["node02"])
    assert rack.taken == {"node02": "partner in the measurement of node01"}
    assert rack.returned == ["node02"]


def test_a_node_beside_is_never_measured_and_one_without_evidence_is_no_partner(rack: Rack) -> None:
    assert set(rack.run("node01", beside=("node02",))) == {"node01"}
    ((nodes, partners, _),) = rack.runs
    assert (nodes, partners, rack.taken) == (["node01"], [], {})
    assert any(line.startswith("node02 does not serve as a partner: ") for line in words(rack))


def test_a_node_beside_with_a_fault_is_no_partner_and_it_is_said(rack: Rack) -> None:
    rack.measured("node02", by="c0")
    rack.sees = {"node02": NodeResult(Outcome.FAIL, "node02 gpu3: Xid 79")}
    assert set(rack.run("node01", beside=("node02",))) == {"node01"}
    assert rack.runs[0][1] == []
    assert "node02 does not serve as a partner: node02 gpu3: Xid 79" in words(rack)


def test_a_node_beside_that_cannot_be_read_is_no_partner_and_no_error(rack: Rack) -> None:
    rack.measured("node02")
    rack.hidden = {"node02"}
    found = rack.run("node01", beside=("node02",))
    assert {node: result.outcome for node, result in found.items()} == {"node01": Outcome.PASS}
    assert rack.runs[0][1] == []


def test_where_nothing_is_due_nobody_is_lent(rack: Rack) -> None:
    rack.measured("node01")
    rack.measured("node02")
    rack.busy = {"node02"}
    assert set(rack.run("node01", beside=("node02",))) == {"node01"}
    assert (rack.runs, rack.taken, rack.returned) == ([], {}, [])
