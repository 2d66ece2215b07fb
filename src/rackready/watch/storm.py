"""The storm guard: how many nodes may be drained, over a sliding window and across restarts."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.model.problems import RackreadyError
from rackready.model.watch import Watch
from rackready.watch.store import STORM, Step, WatchStore


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many further nodes may be drained now. ``limit``: within a window; ``fleet``: nodes in production."""

    left: int
    limit: int
    fleet: int


def allowance(store: WatchStore, settings: Watch, ready: set[str], now: float) -> Allowance:
    """Return how many further nodes may be drained. A storm allows none until somebody ends it.

    Nodes that were drained within the window count as part of the fleet, so that it does not shrink as it is drained.
    """
    mark = store.mark(STORM)
    cleared = float(mark.get("cleared_at", 0.0))
    begin = now - settings.storm_window_s
    begin = max(begin, cleared) if cleared <= now else begin  # in the future: the clock was set back
    drained = store.drained_since(begin)
    fleet = len(ready | drained)
    limit = max(1, int(round(settings.storm_share * fleet, 6)))  # 0.29 * 100 is 28.999... as a float
    return Allowance(0 if mark.get("active") else max(0, limit - len(drained)), limit, fleet)


def recall(store: WatchStore) -> None:
    """Let faults go on that are held while no storm is on: a kill came between two records, here or in ``clear``."""
    if store.at_step(Step.HELD) and not store.mark(STORM).get("active"):
        store.put_all([fault.id for fault in store.at_step(Step.HELD)], step=Step.SEEN.value, why="")


def begin(store: WatchStore, allowed: Allowance, now: float) -> bool:
    """Record that a storm is on, and return whether it just began."""
    if store.mark(STORM).get("active"):
        return False
    store.put_mark(STORM, {"active": True, "since": now, "limit": allowed.limit, "fleet": allowed.fleet})
    return True


def clear(store: WatchStore, reason: str, now: float) -> list[str]:
    """End a storm, and return the nodes that were held. Raises RackreadyError when there is none."""
    mark = store.mark(STORM)
    if not mark.get("active"):
        raise RackreadyError(
            "storm", expected="one that is on", actual="none", next_step="`rackready watch status` shows what is held."
        )
    held = store.at_step(Step.HELD)
    store.put_mark(STORM, {"active": False, "cleared_at": now, "reason": reason})
    store.put_all([fault.id for fault in held], step=Step.SEEN.value, why="")
    return sorted({fault.node for fault in held})
