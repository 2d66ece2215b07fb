"""Who a node is: a node without a login is told from one that answers and does not say what it is."""

from __future__ import annotations

import pytest

from rackready.design.site import load_site
from rackready.drivers.remote import Answer
from rackready.gates.records.fingerprint import Unreached, gather
from rackready.model.outcome import Finding
from tests.gates.fake import FakeConnection, answered

STEP = "Do what that says; where it says nothing, check that node01 answers on SSH. Then run the gate again."


def test_a_node_without_a_login_is_unreached() -> None:
    found = gather(FakeConnection({}, dead=frozenset({"node01"})), load_site("sim"), ["node01"])["node01"]
    assert isinstance(found, Unreached)
    why = "Expected: a result Actual: node01: SSH to 192.0.2.9:22 failed (timed out)"
    assert str(found) == f"node01: reading of serials and versions could not run - {why}. {STEP}"


@pytest.mark.parametrize(
    "answer",
    [
        answered(code=None, failure="the connection was lost before the command ended"),
        answered(code=None, timed_out=True),
        answered("no document"),
        answered(code=1),
    ],
    ids=["lost", "hangs", "damaged", "nothing"],
)
def test_a_node_that_answers_and_does_not_say_what_it_is_was_reached(answer: Answer) -> None:
    found = gather(FakeConnection({"python3": answer}), load_site("sim"), ["node01"])["node01"]
    assert (isinstance(found, Finding), isinstance(found, Unreached)) == (True, False)
