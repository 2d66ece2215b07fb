"""Drains nodes with faults: each once, never beyond the storm limit, never a node that a campaign works on.

Every step is committed before and after its effect. Draining twice is harmless, so a fault that was being drained when
watch was killed is drained again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from rackready.design.handover_of import handover_site
from rackready.design.monitoring.condition import Act
from rackready.design.monitoring.conditions import by_id
from rackready.drivers.scheduler.base import SchedulerAdapter, UnknownNodeError, reason_text
from rackready.drivers.scheduler.places import places, record_drain
from rackready.drivers.scheduler.registry import adapter_for
from rackready.ledger.error import ControllerBusyError
from rackready.ledger.lock import ControllerLock, held_since, is_held
from rackready.ledger.store import Ledger, NodeRow
from rackready.ledger.watch_tables import faults
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.watch import storm
from rackready.watch.store import GOES_WITH, LEFT_AT, Fault, Step, WatchStore

Tell = Callable[[str, str, str], None]
"""Takes the kind of an event, a node ("" for the site) and a text."""
PHASE = "watch"
_HELD_LOCK = "rackready watch: records quarantined nodes"
_AT_ONCE, _BREATH_S = 8, 0.2
"""Nodes that are recorded under one lock, and the pause after it: a deploy that begins asks for 0.5 s (ledger.lock)."""
_LATE_S = 10.0
"""A drain that was not recorded for so long may have been lifted by the command that had the lock. Our judgement."""
_DONE = (Step.DRAINED, Step.PROVEN, Step.TICKETED)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a scheduler did. ``left``: why it was not drained; ``failed``: it is tried again."""

    left: str = ""
    failed: bool = False
    jobs: tuple[str, ...] = ()


@dataclass
class Actor:
    """Acts on recorded faults."""

    site: Site
    paths: EnvPaths
    store: WatchStore
    tell: Tell
    connect: Callable[[Site, EnvPaths], AbstractContextManager[SchedulerAdapter]] = adapter_for
    clock: Callable[[], float] = time.time
    _said: dict[str, str] = field(default_factory=dict)

    def act(self) -> None:
        """Drain what is to be drained, then record the drained nodes as quarantined."""
        storm.recall(self.store)
        found = self.store.at_step(Step.SEEN, Step.DRAINING)
        if found:
            self._drain(self._allowed(self._wanted(found)))
        self.settle()

    # which -------------------------------------------------------------------------------------------------------

    def _wanted(self, found: Sequence[Fault]) -> dict[str, list[Fault]]:
        """Return the faults by node that are to be drained now. Others are set aside, with the reason."""
        rows = {row.name: row for row in self.store.ledger.states()}
        busy = working(self.store, self.paths)
        out: dict[str, list[Fault]] = {}
        for fault in found:
            if (first := self._goes_with(fault, rows.get(fault.node))) is not None:
                detail = {**fault.detail, GOES_WITH: first}
                words = f"the same part as fault {first}"
                self.store.put(fault.id, step=Step.RECORDED.value, why=words, detail=detail)
            elif (why := self._overtaken(fault, rows.get(fault.node))) is not None:
                self.store.put(fault.id, step=Step.OVERTAKEN.value, why=why, drained_at=None)
                self.tell("overtaken", fault.node, f"{fault.reason}: not drained, {why}")
            elif fault.node in busy:
                self._once("waits", fault.node, f"{fault.reason}: waits, campaign {busy[fault.node]} works on the node")
            else:
                out.setdefault(fault.node, []).append(fault)
        return out

    def _goes_with(self, fault: Fault, row: NodeRow | None) -> int | None:
        """Return an earlier fault of the same part, which is on its way already: one repair, one ticket.

        One whose node was drained by others, or came back since its drain, keeps no job off the node.
        """
        same = [faults.c.node == fault.node, faults.c.epoch == fault.epoch, faults.c.part == fault.part]
        steps = [step.value for step in (Step.RECORDED, Step.OVERTAKEN)]
        earlier = self.store.faults(
            *same, faults.c.id < fault.id, faults.c.step.not_in(steps), faults.c.ticket != "closed"
        )
        since = row.since if row is not None and row.state is NodeState.READY else 0.0
        return next((one.id for one in earlier if one.act == fault.act and _under_way(one, since)), None)

    def _overtaken(self, fault: Fault, row: NodeRow | None) -> str | None:
        """Return why watch does not drain a node any more; None when it does.

        A record from the future tells nothing: the clock of the controller was set back.
        """
        if row is None or (row.state is not NodeState.READY and not self._ours(fault)):
            return f"the node is {row.state.value if row else 'not on record'}, not in production"
        try:
            handover_site(self.site, fault.node)
        except RackreadyError as error:  # it would stop the drains of the others
            return quoted(str(error))
        if row.state is NodeState.READY and fault.first_at < row.since <= self.clock():
            return "the node came into production after it"
        return None

    def _ours(self, fault: Fault) -> bool:
        """Return whether watch drained the node for another fault: this one is drained with it."""
        same = [faults.c.node == fault.node, faults.c.epoch == fault.epoch, faults.c.drained_at.is_not(None)]
        return bool(self.store.faults(*same))

    def _allowed(self, wanted: Mapping[str, list[Fault]]) -> dict[str, list[Fault]]:
        """Return the nodes within the storm limit. The others are held, and a storm begins."""
        now = self.clock()
        ready = {row.name for row in self.store.ledger.states() if row.state is NodeState.READY}
        allowed = storm.allowance(self.store, self.site.watch, ready, now)
        counted = self.store.drained_since(now - self.site.watch.storm_window_s)
        again = [node for node in wanted if node in counted]
        new = [node for node in wanted if node not in counted]
        held = new[allowed.left :]
        out = {node: wanted[node] for node in (*again, *new[: allowed.left])}
        self.store.put_all(
            [fault.id for faults_ in out.values() for fault in faults_], step=Step.DRAINING.value, drained_at=now
        )
        if held:
            self.store.put_all([fault.id for node in held for fault in wanted[node]], step=Step.HELD.value, why="storm")
            self._storm(allowed, held)
        return out

    def _storm(self, allowed: storm.Allowance, held: Sequence[str]) -> None:
        if storm.begin(self.store, allowed, self.clock()):
            text = (
                f"storm: faults on more nodes than the limit - Expected: at most {allowed.limit} of {allowed.fleet} "
                f"nodes in {self.site.watch.storm_window_s} s Actual: {len(held)} more. Nothing more is drained. Find "
                "the common cause, then run `rackready watch clear-storm --reason ...`."
            )
            self.tell("storm", "", text)
        for node in held:
            self.tell("held", node, f"{node}: has a fault and is not drained: storm")

    # drain -------------------------------------------------------------------------------------------------------

    def _drain(self, wanted: Mapping[str, list[Fault]]) -> None:
        """Drain nodes in the scheduler of each, and in the one that a moved node may still be in."""
        if not wanted:
            return
        try:
            views = places(self.site, self.store.ledger, list(wanted))
        except RackreadyError as error:
            self._once("failed", "", f"nodes wait to be drained ({', '.join(wanted)}): {quoted(str(error))}")
            return
        left = Counter(node for view in views for node in view.nodes)
        answers: dict[str, list[_Answer]] = {node: [] for node in wanted}
        for view in views:
            try:
                with self.connect(view.site, self.paths) as adapter:
                    for node in view.nodes:
                        answers[node].append(self._drain_node(adapter, node, wanted[node]))
                        left[node] -= 1
                        if not left[node]:
                            self._drained(node, wanted[node], answers[node])
            except RackreadyError as error:
                waiting = [node for node in view.nodes if left[node]]
                text = f"nodes wait to be drained ({', '.join(waiting)}): {quoted(str(error))}"
                self._once("failed", "", text, view.called)

    def _drain_node(self, adapter: SchedulerAdapter, node: str, found: Sequence[Fault]) -> _Answer:
        try:
            now = adapter.show(node)
            if now.drained and not now.ours and not adapter.beside_others:
                return _Answer(left=f"drained by {now.by or 'somebody'}: {now.reason or 'no reason'}")
            adapter.drain(node, _reason(found))
            return _Answer(jobs=tuple(self._jobs(adapter, node, found)))
        except UnknownNodeError as error:
            return _Answer(left=f"not drained: {quoted(str(error))}")
        except RackreadyError as error:
            self._once("failed", node, f"{node}: could not be drained: {quoted(str(error))} It is tried again.")
            return _Answer(failed=True)

    def _drained(self, node: str, found: Sequence[Fault], answers: Sequence[_Answer]) -> None:
        """Record what the schedulers of a node did; nothing while one of them is to be asked again."""
        if any(answer.failed for answer in answers):
            return
        if all(answer.left for answer in answers):
            self._left(node, found, answers[-1].left)
            return
        reason, jobs = _reason(found), [job for answer in answers for job in answer.jobs]
        for fault in found:
            self.store.put(fault.id, step=Step.DRAINED.value, detail={**fault.detail, "jobs": jobs, "drain": reason})
        seconds = self.clock() - min(fault.first_at for fault in found)
        self.tell("drained", node, f"{node}: drained {seconds:.1f} s after the fault: {reason}")
        for job in jobs:
            self.tell("job", node, f"{node}: {job}")

    def _left(self, node: str, found: Iterable[Fault], why: str) -> None:
        """Leave a drain of somebody else as it is. The fault still gets its ticket."""
        for fault in found:
            step = Step.TICKETED if fault.ticket else Step.DRAINED
            detail = {**fault.detail, LEFT_AT: self.clock()}
            self.store.put(fault.id, step=step.value, why=why, drained_at=None, detail=detail)
        self._once("left", node, f"{node}: {why}")

    def _jobs(self, adapter: SchedulerAdapter, node: str, found: Sequence[Fault]) -> list[str]:
        """Requeue the jobs of a node where the site wants it and they are lost. Return what is known about its jobs."""
        try:
            if self.site.watch.requeue and any(by_id()[fault.condition].job_lost for fault in found):
                return adapter.requeue(node)
            return [f"job {job.id} ({job.user}, {job.name}) left to its end" for job in adapter.jobs(node)]
        except RackreadyError as error:
            return [f"jobs unknown: {quoted(str(error))}"]

    # record ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Record drained nodes as quarantined, as soon as no other controller has the lock."""
        waiting = self.store.faults(
            faults.c.quarantined.is_(False), faults.c.drained_at.is_not(None), faults.c.step != Step.DRAINING.value
        )
        late = [fault for fault in waiting if self.clock() - (fault.drained_at or 0.0) > _LATE_S]
        if late and not is_held(self.paths.lock, self.paths.database):
            self._hold(late)
        while waiting:
            some, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            try:
                self._quarantine(some)
            except ControllerBusyError:
                self._once("waits", "", "drained nodes are recorded as quarantined when the current command has ended")
                return
            if waiting:
                time.sleep(_BREATH_S)

    def _quarantine(self, some: Sequence[Fault]) -> None:
        """Record the nodes of faults as quarantined. Raises ControllerBusyError."""
        ledger = self.store.ledger
        with ControllerLock(self.paths.lock, _HELD_LOCK, self.paths.database):
            rows = {row.name: row for row in ledger.states()}
            for fault in some:
                row = rows.get(fault.node)
                if row is not None and _still(fault, row):
                    ledger.set_state(
                        fault.node, NodeState.QUARANTINED, fault.reason, phase=PHASE, campaign=row.campaign
                    )
                    if "drain" in fault.detail:  # handover ends it also when slurmctld wrote over its reason since
                        record_drain(ledger, fault.node, str(fault.detail["drain"]), {}, changed=True)
            self.store.put_all([fault.id for fault in some], quarantined=True)

    def _hold(self, late: Sequence[Fault]) -> None:
        """Drain nodes again that a command released while their drain could not be recorded, e.g. a lent partner."""
        rows = {row.name: row for row in self.store.ledger.states()}
        held = {fault.node: fault for fault in late if fault.node in rows and _still(fault, rows[fault.node])}
        for view in places(self.site, self.store.ledger, [node for node in held if self._has_scheduler(node)]):
            try:
                with self.connect(view.site, self.paths) as adapter:
                    for node in view.nodes:
                        self._hold_node(adapter, held[node])
            except RackreadyError as error:
                text = f"drains could not be checked ({', '.join(view.nodes)}): {quoted(str(error))}"
                self._once("failed", "", text, f"hold {view.called}")

    def _has_scheduler(self, node: str) -> bool:
        """Return whether a node is in a part of the site: one that left it must not stop the watch of the others."""
        try:
            handover_site(self.site, node)
        except RackreadyError as error:
            self._once("failed", node, f"its drain could not be checked: {quoted(str(error))}", "hold")
            return False
        return True

    def _hold_node(self, adapter: SchedulerAdapter, fault: Fault) -> None:
        try:
            if adapter.show(fault.node).on_offer:
                adapter.drain(fault.node, str(fault.detail.get("drain") or reason_text(fault.reason)))
                self.tell("drained", fault.node, f"{fault.node}: was released meanwhile: drained again")
        except UnknownNodeError:
            return  # it gets no jobs there

    def _once(self, kind: str, node: str, text: str, about: str = "") -> None:
        """Tell something that may be found again and again, once."""
        if self._said.get(f"{kind} {node} {about}") != text:
            self._said[f"{kind} {node} {about}"] = text
            self.tell(kind, node, text)


def _reason(found: Sequence[Fault]) -> str:
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return reason_text(f"{found[0].reason}{more}")


def _under_way(fault: Fault, since: float) -> bool:
    """Return whether a fault drains its node, or waits to. ``since``: since when the node is in production."""
    if fault.act != Act.DRAIN or fault.step not in _DONE:
        return True
    return fault.drained_at is not None and fault.drained_at >= since


def _still(fault: Fault, row: NodeRow) -> bool:
    """Return whether a drained node is on record as it was when it was drained."""
    return row.state is NodeState.READY and row.since <= (fault.drained_at or 0.0)


def working(store: WatchStore, paths: EnvPaths) -> dict[str, str]:
    """Return the nodes that a running campaign works on, with the campaign."""
    if not is_held(paths.lock, paths.database):
        return {}
    newest = next(iter(store.ledger.campaigns(status=["running"])), None)
    if newest is None or _cut_off(store, newest, held_since(paths.lock)):
        return {}
    return dict.fromkeys(newest["nodes"], newest["id"])


def _cut_off(store: WatchStore, campaign: Mapping[str, Any], since: float) -> bool:
    """Return whether a campaign was killed before the present holder took the lock, and not gone on with since."""
    if not since or campaign["begun"] >= since:
        return False
    return all(event.at < since for event in store.ledger.newest_events(campaign["id"]).values())


def unrecorded_faults(ledger: Ledger) -> dict[str, str]:
    """Return the nodes that watch drained and that are not on record as quarantined yet, with their faults.

    It records them when no other command has the lock. Raises LedgerError.
    """
    if not WatchStore.exists(ledger):
        return {}
    rows = {row.name: row for row in ledger.states()}
    found = WatchStore(ledger).faults(faults.c.quarantined.is_(False), faults.c.drained_at.is_not(None))
    return {one.node: one.reason for one in found if one.node in rows and _still(one, rows[one.node])}
