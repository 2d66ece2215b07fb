"""Which lines of progress a command prints: a few a node and phase, or every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rackready.cli.output import progress
from rackready.design.names import listed
from rackready.ledger.store import DETAIL, EventRow

_STYLE = {"ok": "green", "error": "bold red", "warn": "yellow", "info": "dim", DETAIL: "dim"}
SILENCE_S = 30.0
"""After so long without a line a step is printed all the same: a phase may work for minutes (judgement)."""


class Lines:
    """Prints events. Without ``verbose``: no steps, but one of them whenever nothing was printed for SILENCE_S."""

    def __init__(self, *, verbose: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._verbose = verbose
        self._clock = clock
        self._printed = clock()

    def __call__(self, event: EventRow, nodes: Sequence[str]) -> None:
        """Print what these nodes said in the same words, or leave it out."""
        now = self._clock()
        if event.level == DETAIL and not self._verbose and now - self._printed < SILENCE_S:
            return
        self._printed = now
        progress.print(line_of(event, nodes), style=_STYLE.get(event.level, ""))


def line_of(event: EventRow, nodes: Sequence[str]) -> str:
    """Return the line of an event: time, nodes, phase and text."""
    stamp = time.strftime("%H:%M:%S", time.localtime(event.at))
    return f"{stamp} {listed(nodes):<10} {event.phase:<10} {event.text}"
