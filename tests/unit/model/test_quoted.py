"""A message that quotes another one has one Expected and one Actual."""

from __future__ import annotations

import pytest

from rackready.model.outcome import Finding
from rackready.model.problems import quoted

LOGIN = "node01: login as root - Expected: accepted Actual: refused. Check access.user."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LOGIN, "node01: login as root: refused (expected: accepted). Check access.user."),
        ("Expected: a key Actual: none", "none (expected: a key)"),
        ("a - Expected: 1 Actual: 2. b - Expected: 3 Actual: 4.", "a: 2 (expected: 1). b: 4 (expected: 3)."),
        ("psus - Expected: 2", "psus (expected: 2)"),
        ("folder x - Expected: a path, e.g. /var", "folder x (expected: a path, e.g. /var)"),
        ("pin - Expected: a text, e.g. Name. Quote it.", "pin (expected: a text, e.g. Name). Quote it."),
        ("a: Expected: 1. Do it. b - Expected: 3 Actual: 4.", "a (expected: 1). Do it. b: 4 (expected: 3)."),
        ("Expected: visible characters", "expected: visible characters"),
        ("no answer within 60 s", "no answer within 60 s"),
    ],
)
def test_a_message_within_a_message_has_no_marks_of_its_own(text: str, words: str) -> None:
    assert quoted(text) == words


def test_a_finding_that_quotes_a_refusal_has_one_expected() -> None:
    finding = Finding(
        code="", where="node01", what="serials", expected="read", actual=LOGIN.removesuffix("."), next_step="Run again."
    )
    assert str(finding).count("Expected: ") == str(finding).count("Actual: ") == 1
    assert finding.actual == LOGIN.removesuffix("."), "the field keeps the whole text"
