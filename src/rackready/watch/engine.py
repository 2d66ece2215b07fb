"""The watch: streams of all nodes in production, their faults recorded and drained; a second thread writes tickets."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rackready.design.facts import node_facts
from rackready.drivers.stop_flag import StopFlag
from rackready.evidence.store import EvidenceStore
from rackready.model.evidence import Fingerprint
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.watch import readings
from rackready.watch.bmc_logs import BmcLogs, mark_of
from rackready.watch.drain_faulty import Actor, Tell
from rackready.watch.node_view import NodeView
from rackready.watch.store import BEAT, Seen, WatchStore
from rackready.watch.stream import BEAT_S, Lines, NodeStream, StreamItem

_QUEUED = 2000
"""Lines that wait in memory: beyond them, the nodes' programs wait."""
_BATCH = 500
_REFRESH_S, _ACT_S = 5.0, 2.0


@dataclass
class Engine:
    """One watch. ``once``: every node is looked at once."""

    site: Site
    paths: EnvPaths
    store: WatchStore
    evidence: EvidenceStore
    lines: Lines
    actor: Actor
    tell: Tell
    bmcs: BmcLogs | None = None
    once: bool = False
    reload: Callable[[], Site | None] = lambda: None
    """Returns the site when its file has changed."""
    current: Callable[[], Site] | None = None
    """Loads the site as it is now."""
    successor: Site | None = None
    """The changed site, for which another watch takes over."""
    stop: StopFlag = field(default_factory=StopFlag)
    _items: queue.Queue[StreamItem] = field(default_factory=lambda: queue.Queue(_QUEUED))
    _views: dict[str, NodeView] = field(default_factory=dict)
    _streams: dict[str, NodeStream] = field(default_factory=dict)
    _cursors: dict[str, str] = field(default_factory=dict)
    _watched: dict[str, bool] = field(default_factory=dict)
    _unread: dict[str, str] = field(default_factory=dict)
    _first: bool = True
    _idle: bool = False

    def run(self) -> None:
        """Watch until ``stop`` is set; with ``once`` until every stream has ended."""
        refresh = act = beat = 0.0
        while not self.stop.is_set():
            now = time.monotonic()
            if now >= refresh:
                refresh = now + _REFRESH_S
                self.refresh()
                self._flush()
                self.successor = self.reload()
                if self.successor is not None:
                    break
            new = self.take()
            if new or now >= act:
                act = now + _ACT_S
                self.actor.act()
            if now >= beat:
                beat = now + BEAT_S
                self.beat()
            if self.bmcs is not None and not self.once:
                self.bmcs.look(list(self._views), now)
            if self.once and not any(stream.is_alive() for stream in self._streams.values()) and self._items.empty():
                break
        self._end()

    def _end(self) -> None:
        self._flush()
        self.actor.act()
        if self.once:
            self._unsettled()
        for stream in self._streams.values():
            stream.over.set()
        if self.bmcs is not None:
            self.bmcs.close()

    def _unsettled(self) -> None:
        """Tell what one look cannot judge: it must hold for some time."""
        for node, view in self._views.items():
            for found in view.unsettled():
                self.tell(
                    "unsettled", node, f"{found.reason(node)} (must hold {found.after_s} s: one look is too short)"
                )

    # nodes -------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Begin to watch nodes that came into production, and leave those that went out of it."""
        if self.once and not self._first:
            return
        rows = {row.name: row for row in self.store.ledger.states()}
        ready = [
            node.name for node in self.site.nodes() if node.name in rows and rows[node.name].state is NodeState.READY
        ]
        gone = [node for node in self._streams if node not in ready]
        for node in gone:
            self._streams.pop(node).over.set()
            self._views.pop(node, None)
            self._cursors.pop(node, None)
            self._watched.pop(node, None)
        known = self.store.nodes()
        stale = [node for node in known if node not in ready]
        if stale:
            self.store.forget(stale)
        new = [node for node in ready if node not in self._streams]
        prints = self._fingerprints(new)
        site = self._site() if new else self.site
        fresh = [node for node in new if not self._first or self._missed(rows[node].since)]
        self.store.drop_marks([mark_of(node) for node in fresh])  # what its BMC logged before is not of production
        for node in new:
            before = None if node in fresh else known.get(node)
            since = rows[node].since if node in fresh else None
            view = NodeView(node_facts(site, node), site.watch, prints.get(node))
            view.cursor, view.boot_id = (before.cursor, before.boot_id) if before else ("", "")
            self._begin(node, view, since)
        self._first = False
        self._tell_idle()

    def _tell_idle(self) -> None:
        """Tell once that no node is in production: a watch that is silent looks like one that hangs."""
        idle = not self._streams
        if idle and not self._idle:
            then = "nothing to look at" if self.once else "the watch waits until a handover makes one ready"
            shows = f"`rackready status --env {self.paths.env}` shows the nodes' states"
            self.tell("idle", "", f"no node is in production: {then}; {shows}")
        self._idle = idle

    def _site(self) -> Site:
        """Return the site with the version sets that an upgrade gave its nodes since the watch began."""
        try:
            return self.current() if self.current is not None else self.site
        except RackreadyError:
            return self.site

    def _begin(self, node: str, view: NodeView, since: float | None) -> None:
        devices = [nic.rdma_device for nic in view.facts.nics if nic.rdma_device]
        settings = self.site.watch

        def wanted() -> dict[str, Any]:
            return {
                "cursor": view.cursor,
                "since": since,
                "follow": not self.once,
                "port_poll_s": settings.port_poll_s,
                "gpu_poll_s": settings.gpu_poll_s,
                "beat_s": BEAT_S,
                "devices": devices,
            }

        self._views[node] = view
        self._seems(node, watched=False, why="not connected yet")
        stream = NodeStream(node, self.lines, wanted, self._items.put, once=self.once)
        self._streams[node] = stream
        stream.start()

    def _missed(self, since: float) -> bool:
        """Return whether a node came into production while the watch was down: it is watched from then on."""
        beat = self.store.mark(BEAT)
        return bool(beat) and since > float(beat["at"])

    def _fingerprints(self, nodes: Iterable[str]) -> dict[str, Fingerprint]:
        """Return the fingerprints of the nodes' newest evidence."""
        found = {}
        for record in self.evidence.last(list(nodes)):
            found.update({one.node: one for one in record.fingerprints if one.node == record.target})
        return found

    def _seems(self, node: str, *, watched: bool, why: str = "") -> None:
        """Record that a node is watched, or not, when that changed."""
        if self._watched.get(node) is watched and watched:
            return
        moved = self._watched.get(node) is not watched
        self._watched[node] = watched
        values = {"watched": watched, "why": why} | ({"since": time.time()} if moved else {})
        self.store.put_node(node, **values, boot_id=self._views[node].boot_id)

    # what they tell ----------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Take what the streams brought, record the faults, and return how many are new."""
        found: list[StreamItem] = []
        try:
            found.append(self._items.get(timeout=0.3))
            while len(found) < _BATCH:
                found.append(self._items.get_nowait())
        except queue.Empty:
            pass
        return self.record([seen for item in found for seen in self._of(item)])

    def _of(self, item: StreamItem) -> list[Seen]:
        view = self._views.get(item.node)
        if view is None:
            return []
        if item.kind == "lost":
            self._lost(item.node, str(item.document["why"]))
            return []
        if item.kind != "line":
            return []
        out = view.line(item.document, item.at, item.tick)
        if "begin" in item.document:
            self._seems(item.node, watched=True)
            self.tell("watched", item.node, f"{item.node}: watched")
        elif "gpus" in item.document:
            self._sees(item.node, readings.unread(item.document["gpus"]))
        elif "beat" in item.document:
            self._cursors[item.node] = view.cursor
        return out

    def _sees(self, node: str, why: str) -> None:
        """Record that a node whose GPUs cannot be read is not watched, and that it is again."""
        if why:
            self._lost(node, why)
        elif not self._watched.get(node):
            self._seems(node, watched=True)
            self.tell("watched", node, f"{node}: watched")

    def _lost(self, node: str, why: str) -> None:
        if self.once and not why:
            return
        was = self._watched.get(node)
        self._seems(node, watched=False, why=why)
        if was or self.once:
            self.tell("not-watched", node, f"{node}: not watched: {why}")

    def record(self, seen: list[Seen]) -> int:
        """Record faults and places in journals together, and tell the new ones. Return how many are new."""
        if not seen:
            return 0
        rows = self.store.ledger.states()
        ready = {row.name: row.since for row in rows if row.state is NodeState.READY}
        new = self.store.record(seen, {row.name: row.epoch for row in rows}, ready)
        for item in seen:
            if item.cursor:
                self._cursors.pop(item.node, None)
        for fault in (self.store.fault(number) for number in new):
            if fault is not None:
                self.tell("fault", fault.node, f"{fault.reason} ({fault.act})")
        return len(new)

    def bmc(self, node: str, seen: list[Seen], why: str) -> None:
        """Take what a BMC's log shows (any thread)."""
        if node in self._views:
            self.record(seen)  # at once: what waits in memory would be lost by a stop, and the entries count as known
        if why and self._unread.get(node) != why:
            self.tell("bmc", node, f"{node}: BMC not read: {why}")
        self._unread[node] = why

    def _flush(self) -> None:
        if self._cursors:
            self.store.put_cursors(self._cursors)
            self._cursors = {}

    def beat(self) -> None:
        """Record that the watch lives, and how many nodes it watches."""
        watched = sum(self._watched.values())
        self.store.put_mark(
            BEAT, {"at": time.time(), "pid": os.getpid(), "nodes": len(self._watched), "watched": watched}
        )


class Guarded:
    """Tells an error that comes again and again once, and that it is over."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._said = tell, ""

    def run(self, what: str, work: Callable[[], object]) -> None:
        """Do the work; an error is told, and the next try follows."""
        try:
            work()
        except RackreadyError as error:
            self._failed(f"{what}: {quoted(str(error))} It is tried again.")
        except Exception as error:  # noqa: BLE001 - a defect must be told: nobody sees a thread that ended
            self._failed(f"{what}: {type(error).__name__}: {error}. It is tried again; report it.")
        else:
            self._said = ""

    def _failed(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._tell("failed", "", text)
