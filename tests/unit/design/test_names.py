"""Long lists in messages."""

from __future__ import annotations

import pytest

from rackready.design.names import block, listed


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "none"), (1, "n0"), (3, "n0, n1, n2"), (4, "n0, n1, n2 and 1 more"), (2000, "n0, n1, n2 and 1,997 more")],
)
def test_listed(count: int, text: str) -> None:
    assert listed([f"n{number}" for number in range(count)], 3) == text


def test_block() -> None:
    assert block("things", [], 2) == []
    assert block("things", ["a", "b"], 2) == ["things (2)", "  a", "  b"]
    assert block("things", ["a", "b", "c"], 2) == ["things (3)", "  a", "  b", "  and 1 more"]
