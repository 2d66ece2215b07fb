"""Waits for reports of nodes: files that `rackready release serve` writes. Nodes are told again now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackready.campaign.pull.report import place
from rackready.drivers.process import STOP, check_stop
from rackready.paths import EnvPaths

GRACE_S = 600.0
"""What fetching a release and sending a report may take beside the play. Our choice: 200 MB at 3 Mbit/s."""
_POLL_S = 0.5
_AGAIN_S = 60.0
"""After that a node is told again: it may have been at an earlier order's end when it was told. Then twice as long."""


@dataclass(slots=True)
class Wait:
    """One report that is waited for. ``others``: reports that show as well that this one never comes."""

    node: str
    sequence: int
    mode: str
    limit_s: float
    others: tuple[tuple[int, str], ...] = ()
    found: tuple[int, str] | None = None
    late: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more is waited for."""
        return self.found is not None or self.late

    def look(self, paths: EnvPaths, since: float) -> None:
        """Look for the report once."""
        for sequence, mode in ((self.sequence, self.mode), *self.others):
            if place(paths, self.node, sequence, mode).exists():
                self.found = (sequence, mode)
                return
        self.late = time.monotonic() - since > self.limit_s


def wait_for(
    paths: EnvPaths,
    waits: Sequence[Wait],
    tell: Callable[[str, str], None],
    again: Callable[[Sequence[str]], object],
    over: Callable[[Wait], object] = lambda _wait: None,
) -> None:
    """Wait until each report is there, or late. ``again`` tells nodes again. Raises Interrupted.

    ``over`` is called for each as soon as nothing more is waited for.
    ``tell`` gets a line of progress after a minute, and each time that twice as long has passed.
    """
    since = time.monotonic()
    next_s = _AGAIN_S
    while True:
        check_stop()
        for wait in [wait for wait in waits if not wait.over]:
            wait.look(paths, since)
            if wait.over:
                over(wait)
        left = [wait.node for wait in waits if not wait.over]
        if not left:
            return
        if time.monotonic() - since > next_s:
            for node in left:
                tell(node, f"waits for its report, {next_s / 60:.0f} min")
            again(left)
            next_s *= 2
        STOP.wait(_POLL_S)
