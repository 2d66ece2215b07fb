"""Notes of a judge and verdicts: none replaces another, none is repeated, and no branch reads them."""

from __future__ import annotations

from rackready.gates.judging.judge import Judge
from rackready.gates.judging.merge import merged
from rackready.model.outcome import Outcome, Verdict


def test_a_note_takes_no_others_place_and_is_said_once() -> None:
    judge = Judge()
    for note in ("a step is recorded only", "a step", "a step is recorded only"):
        judge.remark(note)
    assert judge.note == "a step is recorded only; a step"


def test_a_reason_with_the_words_of_a_pending_pass_holds_nothing_back() -> None:
    verdict = Verdict(outcome=Outcome.SKIP, note="no fleet pending in this lab")
    assert (verdict.fleet_pending, verdict.remarks) == (False, "no fleet pending in this lab")


def test_one_pending_verdict_makes_the_whole_pending() -> None:
    judged, pending = Verdict(outcome=Outcome.PASS, note="a note"), Verdict(outcome=Outcome.PASS, fleet_pending=True)
    assert (merged([judged, pending]).fleet_pending, merged([judged, judged]).fleet_pending) == (True, False)
    assert merged([judged, pending]).remarks == "fleet pending; a note"


def test_a_record_of_before_the_field_is_read() -> None:
    old = Verdict.model_validate({"outcome": "pass", "note": "fleet pending; a step is recorded only"})
    assert (old.fleet_pending, old.note) == (True, "a step is recorded only")
    assert Verdict.model_validate(old.model_dump()) == old
