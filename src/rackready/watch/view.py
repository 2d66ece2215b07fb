"""What the watch did and sees, for people and JSON. It only reads, and loads no model: `status` shows it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.ledger.store import Ledger, NodeRow
from rackready.ledger.watch_tables import faults
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.watch import lease
from rackready.watch.store import BEAT, OUTBOX, STORM, Fault, NodeWatch, Step, WatchStore


@dataclass(frozen=True, slots=True)
class WatchView:
    """``unwatched``: node in production -> why nobody watches it. ``waiting``: faults that are not ticketed yet."""

    running: bool
    beat: dict[str, Any]
    nodes: dict[str, NodeWatch]
    unwatched: dict[str, str]
    storm: dict[str, Any]
    waiting: list[Fault] = field(default_factory=list)
    open: list[Fault] = field(default_factory=list)
    unposted: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "running": self.running,
            "last_sign_of_life": _text(self.beat.get("at")),
            "watched": sorted(node for node, row in self.nodes.items() if row.watched and node not in self.unwatched),
            "not_watched": self.unwatched,
            "storm": self.storm,
            "waiting": [
                {"node": one.node, "condition": one.condition, "part": one.part, "step": one.step, "why": one.why}
                for one in self.waiting
            ],
            "open_tickets": len(self.open),
            "tickets_waiting_for_webhook": self.unposted,
        }


def look(
    ledger: Ledger, ours: Collection[str], paths: EnvPaths, states: Mapping[str, NodeRow] | None = None
) -> WatchView | None:
    """Return what the watch knows; None when it never ran.

    ``ours``: the site's nodes. ``states``: the ledger's, where the caller has read them.
    """
    if not WatchStore.exists(ledger):
        return None
    store, running = WatchStore(ledger), lease.runs(paths)
    nodes, beat = store.nodes(), store.mark(BEAT)
    running = running or (not ledger.alone and time.time() - float(beat.get("at", 0)) < 60)  # noqa: PLR2004
    known_here = frozenset(ours)
    known = ledger.states() if states is None else states.values()
    ready = [row.name for row in known if row.state is NodeState.READY and row.name in known_here]
    unwatched = {node: why for node in ready if (why := _why(nodes.get(node), running=running))}
    waiting = store.at_step(Step.SEEN, Step.DRAINING, Step.DRAINED, Step.PROVEN, Step.HELD)
    open_ = store.faults(faults.c.ticket.in_(["open", "repaired"]))
    return WatchView(
        running, beat, nodes, unwatched, store.mark(STORM), waiting, open_, int(store.mark(OUTBOX).get("waiting", 0))
    )


def _why(row: NodeWatch | None, *, running: bool) -> str:
    if not running:
        return "rackready watch does not run"
    if row is None:
        return "not connected yet"
    return "" if row.watched else row.why or "not connected yet"


def _text(at: float | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if at else None
