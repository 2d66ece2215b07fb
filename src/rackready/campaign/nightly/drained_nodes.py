"""Takes nodes from their scheduler for a night, and puts them back. Every step is repeated after a kill.

A node is drained first and looked at again then: a job that began in between runs on, and the node goes back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rackready.campaign.nightly.marks import TAKEN, Mark, begin, drain_reason
from rackready.design.handover_of import by_scheduler
from rackready.drivers.process import STOP
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerNode, jobs_words
from rackready.drivers.scheduler.places import RELEASE
from rackready.drivers.scheduler.registry import adapter_for
from rackready.handover.run import drain_nodes, offer_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

Found = TypeVar("Found")
Faulty = Callable[[], Mapping[str, str]]
"""Returns the nodes with faults that watch drained and could not record yet."""


@dataclass
class DrainedNodes:
    """One run's way to take and to put back. Call every method under the controller lock."""

    ctx: PhaseContext
    site: Site
    ledger: Ledger
    faulty: Faulty = field(default=dict)

    @property
    def paths(self) -> EnvPaths:
        """Return the paths of the environment."""
        return EnvPaths(self.ctx.root, self.ctx.env)

    def take(self, nodes: Sequence[str]) -> tuple[list[Mark], dict[str, str]]:
        """Mark and drain nodes. Return those that are ours and empty now, and node -> why another one is not."""
        rows = {row.name: row for row in self.ledger.states()}
        marks = {node: begin(self.ledger, self.ctx.campaign, rows[node]) for node in nodes}
        wanted = drain_reason(self.ctx.campaign)
        drained = drain_nodes(self.ctx, list(nodes), dict.fromkeys(nodes, wanted))
        why = {node: quoted(result.message) for node, result in drained.items() if result.outcome is not Outcome.PASS}
        for node, answer in self._ask({node: marks[node] for node in nodes if node not in why}, _trouble).items():
            if answer:
                why[node] = quoted(str(answer))
        faulty = {node: text for node, text in self.faulty().items() if node in marks and node not in why}
        for node, text in faulty.items():
            self._end(marks[node], "left to watch", text)
        taken = [marks[node] for node in nodes if node not in why and node not in faulty]
        for mark in taken:
            self._event(mark.node, f"taken: {mark.reason}")
            self.ledger.set_state(
                mark.node, NodeState.CERTIFIED, mark.words, phase=mark.phase, campaign=self.ctx.campaign
            )
        left = self.put_back([marks[node] for node in why], "not measured")
        told = {node: "; ".join(dict.fromkeys([text, left.get(node, text)])) for node, text in why.items()}
        return taken, told | {node: f"watch drains it: {text}" for node, text in faulty.items()}

    def put_back(self, marks: Sequence[Mark], outcome: str, *, measured: bool = False) -> dict[str, str]:
        """Release nodes that are drained by their mark, and return node -> why one is not back.

        One that others drained meanwhile stays theirs; its mark ends. One whose scheduler does not answer, or refuses,
        keeps its mark: the next night tries again.
        """
        if not marks:
            return {}
        by_node = {mark.node: mark for mark in marks}
        with _uninterrupted():
            left, ours = {}, []
            for node, now in self._ask(by_node, _shown).items():
                if isinstance(now, RackreadyError):
                    left[node] = f"not put back: {quoted(str(now))} The next night tries again."
                elif now.drained and now.reason == by_node[node].reason:
                    ours.append(node)
                elif now.on_offer:
                    self._back(by_node[node], outcome, measured=measured)
                else:
                    left[node] = _others(now)
                    self._end(by_node[node], "left", left[node])
            for node, result in offer_nodes(self.ctx, self.paths, ours, self._digests(ours)).items():
                if result.outcome is Outcome.PASS:
                    self._back(by_node[node], outcome, measured=measured)
                else:
                    left[node] = f"not put back: {quoted(result.message)} The next night tries again."
        for node, text in left.items():
            self._event(node, text, "error")
        return left

    def quarantine(self, mark: Mark, message: str) -> None:
        """Keep a node that failed out of production, with its finding, as a deploy does."""
        with _uninterrupted():
            self.ledger.set_state(mark.node, NodeState.QUARANTINED, message, phase=TAKEN, campaign=self.ctx.campaign)
            drained = drain_nodes(self.ctx, [mark.node], {mark.node: f"quarantined: {message}"})[mark.node]
            if drained.outcome is not Outcome.PASS:
                self._event(mark.node, f"could not be drained with its finding: {drained.message}", "error")
            self._end(mark, "fail", message, measured=True)

    def forget(self, mark: Mark, why: str) -> None:
        """End a mark whose node is no longer ours to put back."""
        self._end(mark, "overtaken", why)

    def look_after(
        self, marks: Sequence[Mark], look: Callable[[SchedulerAdapter, Mark], SchedulerNode]
    ) -> dict[str, SchedulerNode | RackreadyError]:
        """Return the state of marked nodes after ``look`` has done its work in their schedulers."""
        return self._ask({mark.node: mark for mark in marks}, look)

    def _ask(
        self, marks: Mapping[str, Mark], ask: Callable[[SchedulerAdapter, Mark], Found]
    ) -> dict[str, Found | RackreadyError]:
        out: dict[str, Found | RackreadyError] = {}
        for view in by_scheduler(self.site, list(marks)):
            try:
                with adapter_for(view.site, self.paths) as adapter:
                    for node in view.nodes:
                        out[node] = _answer(adapter, marks[node], ask)
            except RackreadyError as error:
                out |= {node: error for node in view.nodes if node not in out}
        return out

    def _digests(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the digest of the certificate with which each node was last handed over."""
        found = {node: self.ledger.latest(node, RELEASE, every_epoch=True) for node in nodes}
        return {node: entry.desired if entry is not None else "" for node, entry in found.items()}

    def _back(self, mark: Mark, outcome: str, *, measured: bool) -> None:
        row = self.ledger.state(mark.node)
        if row is not None and row.state is NodeState.CERTIFIED and row.campaign == mark.campaign:
            self.ledger.set_state(mark.node, NodeState.READY, mark.note, phase=mark.phase, campaign=mark.of)
        self._event(mark.node, f"put back into production: {outcome}", "ok")
        self._end(mark, "back", outcome, measured=measured)

    def _end(self, mark: Mark, outcome: str, why: str, *, measured: bool = False) -> None:
        self.ledger.done(mark.token, {"outcome": outcome, "why": why, "measured": measured})

    def _event(self, node: str, text: str, level: str = "info") -> None:
        self.ledger.event(self.ctx.campaign, node, TAKEN, text, level)


def _trouble(adapter: SchedulerAdapter, mark: Mark) -> str:
    """Return why a node that was just drained is not ours to measure, "" when it is."""
    now = adapter.show(mark.node)
    if not now.drained or now.reason != mark.reason:
        return _others(now)
    jobs = jobs_words(adapter.at_work(mark.node))
    return f"a job began meanwhile, and runs on: {jobs}" if jobs else ""


def _others(now: SchedulerNode) -> str:
    return f"others changed it meanwhile, so it stays as it is: {now.state}, {now.reason or 'no reason'}"


def _shown(adapter: SchedulerAdapter, mark: Mark) -> SchedulerNode:
    return adapter.show(mark.node)


def _answer(
    adapter: SchedulerAdapter, mark: Mark, ask: Callable[[SchedulerAdapter, Mark], Found]
) -> Found | RackreadyError:
    try:
        return ask(adapter, mark)
    except RackreadyError as error:
        return error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put the operator's stop off until a node is back: it takes seconds, and a second Ctrl-C ends at once."""
    stopped = STOP.is_set()
    STOP.clear()
    try:
        yield
    finally:
        if stopped:
            STOP.set()
