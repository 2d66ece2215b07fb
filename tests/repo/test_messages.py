"""Errors carry fields from where they are raised: no text of theirs is taken apart again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TYPED = ("Message", "Problem", "Flaw")
"""Take the expected and the actual value as arguments of their own."""


def texts(source: str) -> Iterator[str]:
    """Yield calls of errors and messages whose text contains the expected value, by line."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).removesuffix(".of").rpartition(".")[2]
        if name == "ValueError" or not name.endswith(("Error", *TYPED)):
            continue
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            literals = value.values if isinstance(value, ast.JoinedStr) else [value]
            if any("Expected: " in str(item.value) for item in literals if isinstance(item, ast.Constant)):
                yield f"{call.lineno}: {name}"


def test_no_error_is_raised_with_its_expected_value_in_a_text() -> None:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "Expected: " in source:
            found += [f"{path.relative_to(ROOT)}:{text}" for text in texts(source)]
    assert found == []


def test_an_expected_value_in_a_text_is_found() -> None:
    assert list(texts('raise errors.SshError(f"{where} - Expected: {x} Actual: {y}.")')) == ["1: SshError"]
    assert list(texts('Problem("a", "no number - Expected: 1 Actual: 2.", "Correct it.")')) == ["1: Problem"]
    assert list(texts('raise SshError(where, expected="1", actual="2")')) == []
