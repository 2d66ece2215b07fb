"""A site in production without a rack: a real ledger, a scheduler in memory, and nodes that say what a test wants."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.design.site import load_site
from rackready.drivers.scheduler.base import Job, SchedulerAdapter, SchedulerError, SchedulerNode, reason_text
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.model.watch import Watch
from rackready.paths import EnvPaths
from rackready.watch.drain_faulty import Actor
from rackready.watch.engine import Engine
from rackready.watch.store import Seen, WatchStore

ROOT = Path(__file__).resolve().parents[3]
NODES = ("node01", "node02", "node03", "node04")


class FakeScheduler(SchedulerAdapter):
    """Nodes with a reason when they are drained. ``fails``: raised by the next drains."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.drains: list[tuple[str, str]] = []
        self.requeued: list[str] = []
        self.fails: list[Exception] = []

    def show(self, node: str) -> SchedulerNode:
        reason = self.reasons.get(node, "")
        state = "drained" if reason else "idle"
        return SchedulerNode(node, state, not reason, drained=bool(reason), down=False, reason=reason, by="root")

    def drain(self, node: str, reason: str) -> bool:
        if self.fails:
            raise self.fails.pop()
        self.drains.append((node, reason))
        self.reasons[node] = reason_text(reason)
        return True

    def release(self, node: str) -> bool:
        return self.reasons.pop(node, None) is not None

    def jobs(self, node: str) -> list[Job]:
        return [Job(f"7{node[-1]}", "alice", "gpu", "train")]

    def requeue(self, node: str) -> list[str]:
        self.requeued.append(node)
        return [f"job 7{node[-1]} (alice, train) requeued"]

    def close(self) -> None:
        pass


@dataclass
class World:
    """Everything that a test looks at. ``events``: kind, node, text."""

    root: Path
    settings: dict[str, Any] = field(default_factory=dict)
    scheduler: FakeScheduler = field(default_factory=FakeScheduler)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.paths = EnvPaths(self.root, "sim")
        site = load_site("sim", root=ROOT)
        self.site: Site = site.model_copy(update={"watch": Watch(**self.settings)})
        self.ledger = Ledger.open(self.paths.database)
        self.store = WatchStore.open(self.ledger)
        self.evidence = EvidenceStore.open(self.ledger, self.paths.raw)
        self.now = self.now or time.time()

    def ready(self, *nodes: str) -> None:
        for node in nodes or NODES:
            self.ledger.set_state(node, NodeState.READY)
        self.now = time.time() + 1

    def actor(self) -> Actor:
        """Return a new actor, as after a restart."""
        return Actor(
            self.site, self.paths, self.store, self.tell, lambda _site, _paths: self.scheduler, lambda: self.now
        )

    def tell(self, kind: str, node: str, text: str) -> None:
        self.events.append((kind, node, text))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.events]

    def see(self, node: str, condition: str = "GpuXidRestartBm", part: str = "gpu4", act: str = "drain") -> None:
        """Record a fault."""
        self.store.record([Seen(node, condition, part, "Xid 79", act, "0000:9d:00", self.now)], {node: 1})

    def steps(self) -> dict[str, str]:
        return {f"{one.node} {one.part}": one.step for one in self.store.faults()}

    def engine(self, lines: Any, **more: Any) -> Engine:  # noqa: ANN401 - anything that yields lines
        return Engine(self.site, self.paths, self.store, self.evidence, lines, self.actor(), self.tell, **more)


class Script:
    """Streams of nodes: lines that a test puts. ``opened``: what each connection asked for."""

    def __init__(self) -> None:
        self.lines: dict[str, queue.Queue[str | Exception]] = {}
        self.opened: list[tuple[str, dict[str, Any]]] = []

    def put(self, node: str, *lines: str | Exception) -> None:
        for line in lines:
            self.lines.setdefault(node, queue.Queue()).put(line)

    def __call__(self, node: str, wanted: dict[str, Any]) -> Iterator[str]:
        self.opened.append((node, wanted))
        while True:
            line = self.lines.setdefault(node, queue.Queue()).get()
            if isinstance(line, Exception):
                raise line
            yield line


def down() -> SchedulerError:
    return SchedulerError(
        "slurmctl", "`scontrol`", expected="an answer", actual="none", next_step="Check that slurmctld runs."
    )
