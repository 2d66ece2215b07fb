"""What follows a drain, beside the watch so that no drain waits for it: evidence, ticket, webhook, end of tickets."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from rackready.design.monitoring.condition import Act
from rackready.watch import night_tickets
from rackready.watch.drain_faulty import Tell
from rackready.watch.engine import Guarded
from rackready.watch.fault_evidence import Prover
from rackready.watch.store import OUTBOX, Fault, Step, WatchStore
from rackready.watch.tickets import TicketDesk, ticket_id
from rackready.watch.webhook import Outbox

_POLL_S, _FOLLOW_S = 1.0, 10.0


@dataclass
class FollowUp:
    """Carries drained faults on, one step after the other; each step is committed, so a kill repeats at most one."""

    store: WatchStore
    prover: Prover
    tickets: TicketDesk
    outbox: Outbox
    tell: Tell
    stop: threading.Event = field(default_factory=threading.Event)
    _waiting: int = -1

    def run(self) -> None:
        """Work until ``stop`` is set."""
        guarded, follow = Guarded(self.tell), 0.0
        while not self.stop.wait(_POLL_S):
            guarded.run("tickets", self.work)
            if time.monotonic() >= follow:
                follow = time.monotonic() + _FOLLOW_S
                guarded.run("tickets", self.follow)

    def work(self) -> None:
        """Carry every drained fault on to its ticket. Raises RackreadyError."""
        for fault in self.store.at_step(Step.DRAINED):
            if fault.act in {Act.DRAIN, Act.TICKET}:
                proofs = self.prover.collect(fault.node)
                detail = {**fault.detail, "evidence": proofs}
                self.store.put(fault.id, step=Step.PROVEN.value, detail=detail)
        for fault in self.store.at_step(Step.PROVEN):
            self._open(fault)
        try:
            self.outbox.deliver()
        finally:
            self._mark(self.outbox.left)

    def _mark(self, waiting: int) -> None:
        if waiting != self._waiting:
            self.store.put_mark(OUTBOX, {"waiting": waiting})
            self._waiting = waiting

    def _open(self, fault: Fault) -> None:
        made = self.tickets.write(fault)
        self.store.put(fault.id, step=Step.TICKETED.value, ticket="open")
        self.tell("ticket", fault.node, f"ticket {ticket_id(fault)}: {made.finding.condition} on {made.part.name}")

    def follow(self) -> None:
        """Take up nodes that failed at night, and follow the repair of nodes with tickets. Raises RackreadyError."""
        night_tickets.record(self.store, self.tickets.evidence)
        for made in self.tickets.follow(time.time()):
            self.tell("ticket", made.node.name, f"ticket {made.id}: {made.status.value}")
