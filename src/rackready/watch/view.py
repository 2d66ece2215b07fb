"""What the watch did and sees, for people, JSON and metrics. It only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.design.endpoints import unit_of
from rackready.design.monitoring.condition import Act
from rackready.design.monitoring.watch_conditions import FAULT
from rackready.ledger.store import Ledger, NodeRow
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.render.exposition import MetricFamily
from rackready.watch import lease
from rackready.watch.store import BEAT, OUTBOX, Fault, NodeWatch, Step, WatchStore, faults
from rackready.watch.storm import STORM


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


def look(ledger: Ledger, site: Site, paths: EnvPaths, states: Mapping[str, NodeRow] | None = None) -> WatchView | None:
    """Return what the watch knows; None when it never ran. ``states``: the ledger's, where the caller has read them."""
    if not WatchStore.exists(ledger):
        return None
    store, running = WatchStore(ledger), lease.runs(paths)
    nodes, beat = store.nodes(), store.mark(BEAT)
    running = running or (not ledger.alone and time.time() - float(beat.get("at", 0)) < 60)  # noqa: PLR2004
    ours = {node.name for node in site.nodes()}
    known = ledger.states() if states is None else states.values()
    ready = [row.name for row in known if row.state is NodeState.READY and row.name in ours]
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


def metrics(found: WatchView, site: Site) -> Iterator[MetricFamily]:
    """Yield the metrics that the conditions of the watch read."""
    own = {"site": site.name}
    beat = MetricFamily("rackready_watch_beat_timestamp_seconds", "Last sign of life of rackready watch.")
    if found.beat:
        beat.add(float(found.beat["at"]), own)
    storm = MetricFamily("rackready_watch_storm", "1 while faults on too many nodes keep watch from draining.")
    storm.add(1 if found.storm.get("active") else 0, own)
    posts = MetricFamily("rackready_watch_tickets_waiting", "Tickets that the webhook has not taken yet.")
    posts.add(found.unposted, own)
    watched = MetricFamily(
        "rackready_node_watched", "1 for a node in production that is watched, 0 for one that is not."
    )
    fault = MetricFamily(FAULT, "Faults that watch found and nobody closed: 1 for each.")
    faulty = {(one.node, one.condition, one.part) for one in (*found.open, *found.waiting) if one.act != Act.RECORD}
    for rack in site.racks:
        for node in rack.nodes:
            place = {"site": site.name, "rack": rack.name, "unit": str(unit_of(site, rack)), "node": node.name}
            if node.name in found.unwatched or node.name in found.nodes:
                watched.add(0 if node.name in found.unwatched else 1, place)
            for _, condition, part in sorted(item for item in faulty if item[0] == node.name):
                fault.add(1, {**place, "condition": condition, "part": part})
    yield from (beat, storm, posts, watched, fault)


def _text(at: float | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if at else None
