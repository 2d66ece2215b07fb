"""Lines of progress: steps are left out unless they are asked for, or nothing else was printed for long."""

from __future__ import annotations

import pytest

from rackready.cli.progress_lines import SILENCE_S, Lines
from rackready.ledger.store import DETAIL, EventRow

SEEN = [
    (0.0, "info", "begins"),
    (1.0, DETAIL, "node/gpu/sanity/ecc begins: ECC is on. (gate 1 of 2)"),
    (2.0, DETAIL, "node/gpu/sanity/ecc pass"),
    (3.0, "error", "node/gpu/sanity/xid fail: node01 gpu0: Xid 79"),
    (4.0, DETAIL, "node/gpu/stress/burn begins: Under load. (gate 2 of 2)"),
    (3.0 + SILENCE_S, DETAIL, "node/gpu/stress/burn: 30 s of 300 s"),
    (4.0 + SILENCE_S, DETAIL, "node/gpu/stress/burn pass"),
]


def printed(capsys: pytest.CaptureFixture[str], *, verbose: bool) -> list[str]:
    now = [0.0]
    lines = Lines(verbose=verbose, clock=lambda: now[0])
    for number, (now[0], level, text) in enumerate(SEEN):
        lines(EventRow(number, "c", "node01", "validate", level, text, 0.0), ["node01"])
    return [line.split("validate   ", 1)[1] for line in capsys.readouterr().err.splitlines()]


def test_steps_that_go_well_are_left_out_but_for_a_sign_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, verbose=False) == [SEEN[0][2], SEEN[3][2], SEEN[5][2]]


def test_every_step_is_printed_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, verbose=True) == [text for _, _, text in SEEN]
