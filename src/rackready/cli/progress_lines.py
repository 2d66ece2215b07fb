"""Which lines of progress a command prints: a few a node and phase, or every step."""

from __future__ import annotations

import time
from collections.abc import Callable

from rackready.cli.output import progress
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

    def __call__(self, event: EventRow) -> None:
        """Print one event, or leave it out."""
        now = self._clock()
        if event.level == DETAIL and not self._verbose and now - self._printed < SILENCE_S:
            return
        self._printed = now
        stamp = time.strftime("%H:%M:%S", time.localtime(event.at))
        progress.print(f"{stamp} {event.node:<10} {event.phase:<10} {event.text}", style=_STYLE.get(event.level, ""))
