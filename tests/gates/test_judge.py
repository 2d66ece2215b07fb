"""Notes of a judge: none takes another's place, and none is said twice."""

from __future__ import annotations

from rackready.gates.expectation import FLEET_PENDING
from rackready.gates.judge import Judge


def test_a_note_takes_no_others_place_and_is_said_once() -> None:
    """`fleet pending` keeps a pass from satisfying a required gate: a later note must not hide it."""
    judge = Judge()
    for note in (FLEET_PENDING, "a step is recorded only", FLEET_PENDING, "a step"):
        judge.remark(note)
    assert judge.note == "fleet pending; a step is recorded only; a step"
