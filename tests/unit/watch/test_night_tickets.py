"""A node that a night quarantined gets one ticket, which follows its repair; no other quarantined node does."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rackready.campaign.nightly.marks import TAKEN
from rackready.drivers.scheduler.places import DRAIN
from rackready.model.outcome import Finding, Outcome
from rackready.model.state import NodeState
from rackready.model.ticket import Ticket
from rackready.watch.store import Step
from rackready.watch.tickets import folder
from tests.unit.evidence.test_damage import on
from tests.unit.watch.test_tickets import desk
from tests.unit.watch.world import World

WHY = "node03 gpu2: GPU memory bandwidth too low - Expected: at least 2000 GB/s Actual: 1400 GB/s"


def tickets(world: World) -> list[Ticket]:
    paths = sorted(folder(world.paths).glob("*.json"))
    return [Ticket.model_validate_json(path.read_text(encoding="utf-8")) for path in paths]


def night(world: World, node: str = "node03", *, drained: bool = True) -> None:
    """Quarantine a node as a night does: the state, then the drain with the finding."""
    world.ledger.set_state(node, NodeState.QUARANTINED, WHY, phase=TAKEN, campaign="night-1")
    if drained:
        entry = world.ledger.begin(node, DRAIN, "finding", {})
        world.ledger.done(entry.token, {"changed": True})


def work(world: World) -> None:
    follow_up = desk(world)
    follow_up.follow()
    follow_up.work()


def test_a_node_that_failed_at_night_gets_one_ticket_with_its_finding(world: World) -> None:
    night(world)
    work(world)
    work(world)
    (ticket,) = tickets(world)
    assert (ticket.node.name, ticket.status, ticket.part.name) == ("node03", "open", "node")
    assert (ticket.finding.condition, ticket.finding.actual) == ("NodeQuarantined", WHY)
    assert (ticket.drain.by, ticket.drain.reason) == ("nightly", f"rackready: quarantined: {WHY}")
    assert ticket.drain.at is not None
    assert ticket.evidence, "outputs are kept for it, as for any fault"
    (fault,) = world.store.faults()
    assert (fault.step, fault.count) == (Step.TICKETED, 1)


def test_the_ticket_names_the_part_of_the_failed_gate(world: World) -> None:
    night(world)
    finding = Finding(
        code="gpu-bandwidth",
        where="node03 gpu2",
        what="too slow",
        expected="2000",
        actual="1400",
        next_step="Replace it.",
    )
    failed = on("node03", outcome=Outcome.FAIL)
    verdict = failed.verdict.model_copy(update={"findings": [finding]})
    world.evidence.append(failed.model_copy(update={"campaign": "night-1", "verdict": verdict}))
    work(world)
    assert [ticket.part.name for ticket in tickets(world)] == ["gpu2"]


def test_a_drain_that_is_not_on_record_is_said(world: World) -> None:
    night(world, drained=False)
    work(world)
    drain = tickets(world)[0].drain
    assert (drain.at, drain.by, drain.reason) == (None, "nightly", "the ledger has no drain of it")


@pytest.mark.parametrize("phase", ["validate", "watch", ""])
def test_a_node_that_something_else_quarantined_gets_none(world: World, phase: str) -> None:
    world.ledger.set_state("node03", NodeState.QUARANTINED, WHY, phase=phase, campaign="deploy-1")
    work(world)
    assert tickets(world) == []


def test_a_ticket_that_a_person_closed_stays_closed(world: World) -> None:
    night(world)
    work(world)
    (fault,) = world.store.faults()
    desk(world).tickets.close(fault, "measured wrongly", datetime.now(UTC).timestamp())
    work(world)
    assert [ticket.status for ticket in tickets(world)] == ["closed"]


def test_the_ticket_is_closed_when_the_repaired_node_is_back_and_the_next_night_opens_another(world: World) -> None:
    night(world)
    work(world)
    world.ledger.raise_epoch("node03", "GPU replaced")
    world.ledger.set_state("node03", NodeState.READY)
    work(world)
    assert [ticket.status for ticket in tickets(world)] == ["closed"]
    night(world)
    work(world)
    assert [ticket.status for ticket in tickets(world)] == ["closed", "open"]
    assert json.loads((folder(world.paths) / "T00002-node03.json").read_text(encoding="utf-8"))["count"] == 1
