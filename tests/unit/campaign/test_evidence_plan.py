"""The plan of the validate phase, computed from what was read: nothing is asked and nothing is changed here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rackready.campaign.evidence_plan import (
    LOOKED_BEFORE,
    MEASURED,
    EvidencePlan,
    EvidenceReadings,
    EvidenceStep,
    NodeEvidence,
    dry_results,
    plan,
    possible_partners,
)
from rackready.model.outcome import Outcome, Verdict
from rackready.model.phase import PLAN, UNTOUCHED, NodeResult

ALONE, PAIR, INCAST = "node/gpu/a", "pair/fabric/b", "group/fabric/c"
NEEDS = {ALONE: 1, PAIR: 2, INCAST: 3}
GOOD = Verdict(outcome=Outcome.PASS)
WHOLE = dict.fromkeys(NEEDS, GOOD)
PASS = NodeResult(Outcome.PASS, "looked at again")
KEPT = NodeResult(Outcome.ERROR, "jobs run on it", touched=False)
SILENT = NodeResult(Outcome.ERROR, "no answer", data={UNTOUCHED: True}, touched=False)


def keep(node: str) -> NodeEvidence:
    return NodeEvidence(node, "", WHOLE)


def look(node: str) -> NodeEvidence:
    return NodeEvidence(node, "", WHOLE, unseen=True)


def measure(node: str, *due: str) -> NodeEvidence:
    return NodeEvidence(node, f"{node}: too old", {gate: GOOD for gate in NEEDS if gate not in due})


def refuse(node: str) -> NodeEvidence:
    return NodeEvidence(node, f"{node}: too old", {}, failed=f"{node} gpu2: NVLink down")


def planned(*evidence: NodeEvidence, busy: tuple[str, ...] = (), **more: object) -> EvidencePlan:
    return plan(replace(EvidenceReadings(evidence, min_nodes=NEEDS, busy=frozenset(busy)), **more))  # type: ignore[arg-type]


def test_a_node_that_is_optimized_first_is_not_loaded_now() -> None:
    found = planned(measure("n1", INCAST), keep("n2"), busy=("n1",), later=True)
    assert found.nodes["n1"] == (EvidenceStep.LATER, "n1: too old")
    assert (found.drain, found.after({}).measure, found.after({}).partners) == ({}, {}, ())
    shown = dry_results(found)["n1"]
    words = "would be looked at, and measured under load after optimize: n1: too old"
    assert (shown.outcome, shown.message) == (Outcome.NOT_RUN, words)


@pytest.mark.parametrize(
    ("item", "step", "outcome", "message"),
    [
        (keep("n1"), EvidenceStep.KEEP, Outcome.PASS, LOOKED_BEFORE),
        (look("n1"), EvidenceStep.LOOK, Outcome.PASS, "would be looked at again; its evidence under load still counts"),
        (measure("n1", ALONE), EvidenceStep.MEASURE, Outcome.NOT_RUN, "would be measured under load: n1: too old"),
        (
            refuse("n1"),
            EvidenceStep.REFUSE,
            Outcome.FAIL,
            (
                "n1 gpu2: NVLink down (a fail on record is not measured again: once it is repaired, run "
                "`rackready repair n1 --reason '...'`)"
            ),
        ),
    ],
)
def test_the_evidence_of_a_node_decides_its_step(
    item: NodeEvidence, step: EvidenceStep, outcome: Outcome, message: str
) -> None:
    found = planned(item)
    assert found.nodes["n1"][0] is step
    shown = dry_results(found)["n1"]
    assert (shown.outcome, shown.message, shown.data[PLAN]["step"]) == (outcome, message, step.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [({"unknown": {"n1": SILENT}}, "no answer"), ({"unreadable": {"n2": KEPT}}, "jobs run on it")],
)
def test_a_node_that_cannot_be_asked_is_left_alone(more: dict[str, object], message: str) -> None:
    evidence = [measure("n1", ALONE)] if "unknown" in more else []
    found = planned(*evidence, **more)
    ((node, (step, why)),) = found.nodes.items()
    assert (step, why, found.drain, found.after({}).measure) == (EvidenceStep.LEAVE, message, {}, {})
    assert found.settled()[node].message == message


def test_the_result_of_a_look_stands_and_one_that_did_not_pass_makes_no_partner() -> None:
    bad = NodeResult(Outcome.FAIL, "n2: NVLink down")
    found = planned(measure("n1", PAIR), look("n2"), look("n3"), looked={"n2": bad, "n3": PASS})
    assert found.settled() == {"n2": bad, "n3": PASS}
    assert found.after({}).partners == ("n3",)


def test_only_a_node_in_production_is_drained_before_it_is_measured() -> None:
    found = planned(measure("n1", ALONE), measure("n2", ALONE), refuse("n3"), look("n4"), busy=("n1", "n3", "n4"))
    assert found.drain == {"n1": MEASURED}
    work = found.after({})
    assert (list(work.measure), work.partners, work.lend) == (["n1", "n2"], (), {})


def test_a_node_that_keeps_its_jobs_is_not_measured_and_needs_a_partner_in_its_place() -> None:
    found = planned(measure("n1", PAIR), measure("n2", PAIR), look("n3"), busy=("n1",))
    assert found.after({}).partners == ()
    work = found.after({"n1": KEPT})
    assert (list(work.measure), work.partners) == (["n2"], ("n3",))
    assert possible_partners(found.seen) == ["n3"], "it is known in time whether n3 is in production"


def test_no_partner_is_lent_when_no_node_is_measured() -> None:
    found = planned(measure("n1", PAIR), look("n2"), busy=("n1", "n2"))
    work = found.after({"n1": KEPT})
    assert (work.measure, work.partners, work.lend) == ({}, (), {})


@pytest.mark.parametrize(
    ("due", "partners", "missing"), [(ALONE, (), 0), (PAIR, ("n2",), 0), (INCAST, ("n2", "n3"), 0)]
)
def test_gates_that_are_due_decide_how_many_partners_are_needed(
    due: str, partners: tuple[str, ...], missing: int
) -> None:
    work = planned(measure("n1", due), look("n2"), keep("n3"), look("n4")).after({})
    assert (work.partners, work.missing) == (partners, missing)


def test_partners_that_are_not_there_are_counted() -> None:
    found = planned(measure("n1", INCAST), look("n2"), refuse("n3"))
    assert (found.after({}).partners, found.after({}).missing) == (("n2",), 1)
    assert dry_results(found)["n1"].message.endswith("; partners: n2; partners missing: 1")


def test_a_node_that_is_handed_over_serves_last_and_is_lent() -> None:
    found = planned(measure("n1", PAIR), look("n2"), look("n3"), busy=("n2", "n3"), ready=frozenset({"n2"}))
    assert found.after({}).lend == {"n3": "partner in the measurement of n1"}
    found = planned(measure("n1", INCAST), look("n2"), look("n3"), busy=("n2",), ready=frozenset({"n2"}))
    assert (found.after({}).partners, list(found.after({}).lend)) == (("n3", "n2"), ["n2"])


def test_a_partner_of_which_nobody_knows_whether_it_has_jobs_does_not_serve() -> None:
    work = planned(measure("n1", PAIR), look("n2"), unknown={"n2": SILENT}).after({})
    assert (work.partners, work.lend, work.absent, work.missing) == ((), {}, {"n2": SILENT}, 1)


@pytest.mark.parametrize(
    ("item", "looked", "given_back"),
    [
        (look("n2"), {"n2": PASS}, ("n2",)),
        (keep("n2"), {}, ("n2",)),
        (look("n2"), {"n2": NodeResult(Outcome.FAIL)}, ()),
        (measure("n2", ALONE), {}, ()),
        (refuse("n2"), {}, ()),
    ],
)
def test_a_partner_of_a_killed_run_is_given_back_while_its_evidence_counts(
    item: NodeEvidence, looked: dict[str, NodeResult], given_back: tuple[str, ...]
) -> None:
    found = planned(item, looked=looked, lent=("n2",))
    assert found.give_back == given_back


def test_a_dry_run_shows_the_whole_plan_as_json() -> None:
    evidence = (measure("n1", INCAST), look("n2"), look("n3"))
    found = planned(*evidence, busy=("n1", "n2"), lent=("n3",))
    rows = {node: result.data[PLAN] for node, result in dry_results(found).items()}
    nothing = {"why": "", "drain": "", "partners": [], "partners_missing": 0, "partner_of": [], "hand_back": False}
    assert json.loads(json.dumps(rows)) == {
        "n1": nothing | {"step": "measure", "why": "n1: too old", "drain": MEASURED, "partners": ["n2", "n3"]},
        "n2": nothing
        | {"step": "look", "drain": "partner in the measurement of n1", "partner_of": ["n1"], "hand_back": True},
        "n3": nothing | {"step": "look", "partner_of": ["n1"], "hand_back": True},
    }
