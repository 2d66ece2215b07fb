"""Progress lines of a command: a few per node and phase, or every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rackready.cli.output import progress
from rackready.design.names import listed
from rackready.ledger.store import DETAIL, FAILED, EventRow

_STYLE = {"ok": "green", FAILED: "bold red", "error": "bold red", "warn": "yellow", "info": "dim", DETAIL: "dim"}
SILENCE_S = 30.0
"""Time without a line after which a step is printed anyway, s: a phase may work for minutes (judgement)."""


class Lines:
    """Prints events. Without ``verbose`` it omits steps, except one after SILENCE_S without output."""

    def __init__(self, *, verbose: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._verbose = verbose
        self._clock = clock
        self._printed = clock()

    def __call__(self, event: EventRow, nodes: Sequence[str]) -> None:
        """Print or omit an event that these nodes share."""
        now = self._clock()
        if event.level == DETAIL and not self._verbose and now - self._printed < SILENCE_S:
            return
        self._printed = now
        progress.print(line_of(event, nodes), style=_STYLE.get(event.level, ""))


def line_of(event: EventRow, nodes: Sequence[str]) -> str:
    """Return the line of an event: time, nodes, phase and text."""
    stamp = time.strftime("%H:%M:%S", time.localtime(event.at))
    return f"{stamp} {listed(nodes):<10} {event.phase:<10} {event.text}"
