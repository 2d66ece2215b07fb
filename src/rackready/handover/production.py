"""Nodes in production: which they are, and taking them out of it before something is done to them. Jobs are waited for, never ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rackready.design.site import load_site
from rackready.drivers.process import STOP, check_stop
from rackready.drivers.scheduler.base import Job, SchedulerAdapter
from rackready.drivers.scheduler.registry import adapter_for
from rackready.handover.phase import RELEASE, hold_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import SlurmHandover
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

PHASE = "hold"
"""Under which the progress of taking a node out of production is told."""

HELD = "held"
"""In a result's data: the node is drained already, with the reason that is to stay."""

UNTOUCHED = "untouched"
"""In a result's data: nothing was done to the node, and what the scheduler offers of it stays as it is: it is not held for that."""

_POLL_S = 2.0
_SHOWN = 3


def in_production(ctx: PhaseContext, nodes: Iterable[str]) -> tuple[list[str], dict[str, NodeResult]]:
    """Return the nodes on which jobs run or may start, and an error for each of which the scheduler cannot say it.

    The scheduler is asked, not our own record: a node that is drained but not empty yet carries somebody's job as well, and one
    that was handed over, is down and not drained may come back by itself at any moment. One that rackready never handed over, and
    of which the scheduler cannot say anything, is taken as not in production; that is said.
    """
    ledger = Ledger.open(EnvPaths(ctx.root, ctx.env).database)
    busy, unknown = [], {}
    try:
        for node, answer in _ask(ctx, list(nodes)).items():
            given = any(entry.operation == RELEASE and entry.status != "failed" for entry in ledger.entries(node))
            if isinstance(answer, _Use):
                busy += [node] if answer.offered or answer.jobs or (given and not answer.drained) else []
            elif given:
                text = f"{node}: whether jobs run on it - Expected: the scheduler says it Actual: {answer} Nothing was touched: run again once it answers."
                unknown[node] = NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
            else:
                ledger.event(ctx.campaign, node, PHASE, f"taken as not in production: rackready never handed it over, and the scheduler says: {answer}", "warn")
    finally:
        ledger.close()
    return busy, unknown


@dataclass(frozen=True, slots=True)
class _Use:
    """What a scheduler says of the use of one node."""

    offered: bool
    drained: bool
    jobs: bool


def _ask(ctx: PhaseContext, nodes: list[str]) -> dict[str, _Use | str]:
    """Return how each node is used, or the words of the scheduler's error."""
    try:
        with adapter_for(load_site(ctx.env, root=ctx.root), EnvPaths(ctx.root, ctx.env)) as adapter:
            return {node: _use(adapter, node) for node in nodes}
    except RackreadyError as error:
        return dict.fromkeys(nodes, str(error))


def _use(adapter: SchedulerAdapter, node: str) -> _Use | str:
    try:
        now = adapter.show(node)
        return _Use(now.usable, now.drained, bool(adapter.jobs(node)))
    except RackreadyError as error:
        return str(error)


def changes_words(phase: str, changes: list[str]) -> str:
    """Return what stands in the scheduler while a phase is about to change something on a node."""
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return f"{phase} is about to change: {'; '.join(changes[:_SHOWN])}{more}"


def take_out(ctx: PhaseContext, reasons: Mapping[str, str]) -> dict[str, NodeResult]:
    """Drain nodes with these reasons and wait until no job runs on them. Returns those on which that did not work: they are left alone.

    All of them together are waited for, at most the site's ``handover.drain_wait_s`` seconds. What somebody else drained stays
    as it is. Raises Interrupted when the operator stops.
    """
    if not reasons:
        return {}
    held = hold_nodes(ctx, list(reasons), dict(reasons))
    bad = {node: replace(result, touched=False) for node, result in held.items() if result.outcome is not Outcome.PASS}
    site = load_site(ctx.env, root=ctx.root)
    paths = EnvPaths(ctx.root, ctx.env)
    limit_s = site.handover.drain_wait_s if isinstance(site.handover, SlurmHandover) else 0
    ledger = Ledger.open(paths.database)
    try:
        for node in (node for node in reasons if node not in bad):
            ledger.event(ctx.campaign, node, PHASE, f"taken out of production: {reasons[node]}", "warn")
            row = ledger.state(node)
            if row is not None and row.state is NodeState.READY:
                ledger.set_state(node, NodeState.CERTIFIED, f"held: {reasons[node]}", phase=row.phase, campaign=ctx.campaign)
        with adapter_for(site, paths) as adapter:
            drained = [node for node in reasons if node not in bad]
            left = wait_for_jobs(adapter, drained, limit_s, lambda node, text: ledger.event(ctx.campaign, node, PHASE, text, "warn"), _POLL_S)
    except RackreadyError as error:
        left = {node: str(error) for node in reasons if node not in bad}
    finally:
        ledger.close()
    return bad | {node: NodeResult(Outcome.ERROR, text, data={HELD: True}, touched=False) for node, text in left.items()}


def wait_for_jobs(adapter: SchedulerAdapter, nodes: list[str], limit_s: float, tell: Callable[[str, str], None], poll_s: float) -> dict[str, str]:
    """Wait until no job runs on any of the nodes. Returns the words about each node that is not empty (or not known to be) after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    told: dict[str, str] = {}
    while True:
        busy = {node: found for node in nodes if (found := _jobs(adapter, node))}
        left_s = deadline - time.monotonic()
        if not busy or left_s <= 0:
            return {node: found if isinstance(found, str) else _refusal(node, found, limit_s) for node, found in busy.items()}
        for node, found in busy.items():
            words = found if isinstance(found, str) else ", ".join(f"{job.id} ({job.user}, {job.partition})" for job in found)
            if told.get(node) != words:
                tell(node, f"drained; waits, at most {limit_s:.0f} s in all, for the end of {words}")
            told[node] = words
        nodes = list(busy)
        STOP.wait(min(poll_s, left_s))
        check_stop()


def _jobs(adapter: SchedulerAdapter, node: str) -> list[Job] | str:
    """Return a node's jobs. A scheduler that does not answer is asked again: it may be restarting."""
    try:
        return adapter.jobs(node)
    except RackreadyError as error:
        return str(error)


def _refusal(node: str, jobs: list[Job], limit_s: float) -> str:
    names = ", ".join(f"{job.id} ({job.user}, {job.name})" for job in jobs)
    ways = f"wait and run again, or end them with `scancel {' '.join(job.id for job in jobs)}`."
    where = f"{node}: jobs run on it - Expected: none within {limit_s:.0f} s of draining it Actual: {names}."
    return f"{where} Nothing was touched, and it stays drained so that it empties: {ways}"
