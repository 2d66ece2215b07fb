"""What a campaign shows while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rackready.campaign import controller
from rackready.ledger.store import EventRow, Ledger

CAMPAIGN = "c1"


def test_the_same_words_of_several_nodes_one_after_the_other_are_one_line(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "s.sqlite")
    for node, text in (
        ("node01", "a begins"),
        ("node02", "a begins"),
        ("node01", "a pass"),
        ("node02", "a fail"),
        ("node01", "a fail"),
        ("node01", "a fail"),
    ):
        ledger.event(CAMPAIGN, node, "validate", text, level="error" if "fail" in text else "ok")
    shown: list[tuple[str, str, str]] = []

    def show(row: EventRow, nodes: Sequence[str]) -> None:
        shown.append((", ".join(nodes), row.text, row.level))

    last = controller._show_new(ledger, CAMPAIGN, 0, show)
    assert shown == [
        ("node01, node02", "a begins", "ok"),
        ("node01", "a pass", "ok"),
        ("node02, node01", "a fail", "error"),
    ]
    assert len(ledger.events(CAMPAIGN)) == 6
    assert controller._show_new(ledger, CAMPAIGN, last, show) == last
    assert len(shown) == 3
