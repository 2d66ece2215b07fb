"""What a program of ours printed on another machine: whole, or why not; and what is asked of a tenant's node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rackready.drivers.program_answer import document
from rackready.drivers.remote import Answer
from rackready.drivers.tenant_node import Left, TenantNode, TenantTracesError
from rackready.model.hand_back import HandBack

GOOD = '{"format": "f/v1", "complete": true, "x": 1}'


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(0, GOOD, "", 1.0), ""),
        (Answer(None, "", "", 1.0, failure="connection refused", reached=False), "connection refused"),
        (Answer(None, GOOD, "", 900.4, timed_out=True), "no answer within 900 s"),
        (Answer(1, GOOD, "Traceback\nKeyError: 'x'\n", 1.0), "exit code 1: Traceback\nKeyError: 'x'"),
        (Answer(0, "", "", 1.0), "empty output"),
        (Answer(0, '{"format": "f/v1"}', "", 1.0), "an incomplete answer"),
        (Answer(0, '{"format": "g/v1", "complete": true}', "", 1.0), "an incomplete answer"),
        (Answer(0, "[]", "", 1.0), "an incomplete answer"),
    ],
)
def test_a_document_or_why_not(answer: Answer, why: str) -> None:
    found, said = document(answer, "f/v1")
    assert (said, found.get("x")) == (why, None if why else 1)


class Host:
    """Answers every program with the same text, and keeps what it was asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[dict[str, Any]] = []

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Answer:
        assert (node, stdin != "", timeout_s > 0) == ("node01", True, True)
        self.asked.append(json.loads(argv[-1]))
        return Answer(0, self.text, "", 1.0)


def test_what_the_site_keeps_is_asked_with_the_login_and_its_key() -> None:
    found = {"kind": "process", "what": "7 x (eve)"}
    text = {"found": [found], "counts": {"process": 60}, "gone": 0, "refused": "", "complete": True}
    host = Host(json.dumps({"format": "rackready/tenant-traces/v1", **text}))
    wanted = HandBack.model_validate(
        {"empty": ["/home"], "spare": ["/srv"], "scratch": ["/scratch"], "keep_users": ["m"]}
    )
    left = TenantNode(host, "node01", wanted, "ops", "ssh-ed25519 AAAA").traces(scrub=True)
    assert left == Left({"process": ["7 x (eve)"]}, {"process": 60})
    assert left.words() == ["process: 7 x (eve) and 59 more"]
    assert host.asked == [
        {
            "op": "scrub",
            "keep_users": ["ops", "m"],
            "keep_keys": ["ssh-ed25519 AAAA"],
            "login": "ops",
            "empty": ["/home"],
            "spare": ["/scratch", "/srv"],
        }
    ]


def test_without_scratch_nothing_is_asked() -> None:
    host = Host("")
    assert TenantNode(host, "node01", HandBack(), "root", "k").scratch(erase=True).erased == []
    assert host.asked == []


def test_a_node_that_does_not_answer_is_no_clean_node() -> None:
    with pytest.raises(TenantTracesError) as caught:
        TenantNode(Host(""), "node01", HandBack(), "root", "k").traces(scrub=False)
    assert str(caught.value) == (
        "node01: what its tenant left - Expected: an answer from the node Actual: empty output. Check that the node "
        "answers and has python3, then run again: it starts again."
    )


class Erasing:
    """Answers a look and an erase of scratch, and keeps operations with their limits."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.asked: list[tuple[str, float]] = []

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Answer:
        assert (node, stdin != "") == ("node01", True)
        request = json.loads(argv[-1])
        self.asked.append((request["op"], timeout_s))
        gone = ["/dev/nvme1n1"] if request["op"] == "erase" else []
        text = {"plans": [], "erased": gone, "refused": self.refused, "begun": False, "longest_s": 150_000.0}
        return Answer(0, json.dumps({"format": "rackready/scratch-erase/v1", "complete": True, **text}), "", 1.0)


def test_an_erase_of_scratch_has_the_time_that_its_drives_need() -> None:
    wanted = HandBack.model_validate({"scratch": ["/scratch"]})
    host = Erasing()
    assert TenantNode(host, "node01", wanted, "root", "k").scratch(erase=True).erased == ["/dev/nvme1n1"]
    assert host.asked == [("look", 900.0), ("erase", 151_800.0)]
    host = Erasing("no Format NVM")
    assert TenantNode(host, "node01", wanted, "root", "k").scratch(erase=True).refused == "no Format NVM"
    assert [op for op, _ in host.asked] == ["look"], "what a look refuses is not erased"
