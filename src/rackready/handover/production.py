"""Nodes in production: which they are, and taking them out of it before something is done to them. Jobs are waited for, never ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rackready.design.pinned import site_of
from rackready.drivers.process import STOP, check_stop
from rackready.drivers.scheduler.base import Job, JobsUnknownError, SchedulerAdapter, UnknownNodeError
from rackready.drivers.scheduler.registry import adapter_for
from rackready.handover.run import RELEASE, drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import FileHandover
from rackready.model.state import LIFE, NodeState, at_least
from rackready.paths import EnvPaths

PHASE = "hold"
"""Under which the progress of taking a node out of production is told."""

HELD = "held"
"""In a result's data: the node is drained already, with the reason that is to stay."""

UNTOUCHED = "untouched"
"""In a result's data: nothing was done to the node, and what the scheduler offers of it stays as it is: it is not held for that."""

_POLL_S, _POLL_MAX_S, _POLL_GROWTH = 2.0, 30.0, 1.5
"""How often jobs are asked for: soon at first, seldom in a long wait, which spares slurmctld. Our judgement."""
_SHOWN = 3


def in_production(ctx: PhaseContext, nodes: Iterable[str]) -> tuple[list[str], dict[str, NodeResult]]:
    """Return the nodes on which jobs run or may start, and an error for each of which the scheduler cannot say it.

    The scheduler is asked, not our own record: a node that is drained but not empty yet carries somebody's job as well,
    and one that was handed over, is down and not drained may come back by itself at any moment. Where the scheduler
    cannot say it, a node is taken as not in production only as ``taken_as_free`` allows; that is said.
    """
    busy, unknown = [], {}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node, answer in _ask(ctx, list(nodes)).items():
            if isinstance(answer, _Use):
                busy += (
                    [node]
                    if answer.offered or answer.jobs or (handed_over(ledger, node) and not answer.drained)
                    else []
                )
            elif not taken_as_free(ledger, node, answer):
                text = (
                    f"{node}: whether jobs run on it - Expected: the scheduler says it "
                    f"Actual: {answer} Nothing was touched: run again once it answers."
                )
                unknown[node] = NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
            else:
                ledger.event(ctx.campaign, node, PHASE, f"taken as not in production: {_why_free(answer)}", "warn")
    return busy, unknown


def handed_over(ledger: Ledger, node: str) -> bool:
    """Whether rackready ever handed a node over, or was about to."""
    return any(entry.operation == RELEASE and entry.status != "failed" for entry in ledger.entries(node))


def taken_as_free(ledger: Ledger, node: str, error: RackreadyError) -> bool:
    """Whether a node of which the scheduler could not say it is taken as carrying no jobs.

    One that the scheduler does not have gets none from it. While the scheduler is silent, one that was never handed
    over is free when it is not installed yet, or was off until rackready powered it on: a first deploy may come before
    the scheduler is up. One that somebody else may have running is not.
    """
    from rackready.stacks.machine import made_by_us  # noqa: PLC0415 - SSH and Redfish take a second to import

    if isinstance(error, UnknownNodeError | JobsUnknownError):
        return isinstance(error, UnknownNodeError)
    row = ledger.state(node)
    early = row is None or (row.state in LIFE and not at_least(row.state, NodeState.INSTALLED))
    return not handed_over(ledger, node) and (early or made_by_us(ledger, node))


def _why_free(error: RackreadyError) -> str:
    return (
        str(error)
        if isinstance(error, UnknownNodeError)
        else f"rackready never handed it over, and the scheduler says: {error}"
    )


@dataclass(frozen=True, slots=True)
class _Use:
    """What a scheduler says of the use of one node."""

    offered: bool
    drained: bool
    jobs: bool


def _ask(ctx: PhaseContext, nodes: list[str]) -> dict[str, _Use | RackreadyError]:
    """Return how each node is used, or the scheduler's error."""
    try:
        with adapter_for(site_of(ctx), EnvPaths(ctx.root, ctx.env)) as adapter:
            return {node: _use(adapter, node) for node in nodes}
    except RackreadyError as error:
        return dict.fromkeys(nodes, error)


def _use(adapter: SchedulerAdapter, node: str) -> _Use | RackreadyError:
    """Jobs need not be asked for where they may start: such a node is in production anyhow."""
    try:
        now = adapter.show(node)
        return _Use(now.usable, now.drained, not now.usable and bool(adapter.jobs(node)))
    except RackreadyError as error:
        return error


def changes_words(phase: str, changes: list[str]) -> str:
    """Return what stands in the scheduler while a phase is about to change something on a node."""
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return f"{phase} is about to change: {'; '.join(changes[:_SHOWN])}{more}"


def take_out(ctx: PhaseContext, reasons: Mapping[str, str]) -> dict[str, NodeResult]:
    """Drain nodes with these reasons and wait until no job runs on them. Returns those on which that did not work: they are left alone.

    All of them together are waited for, at most the site's ``handover.drain_wait_s`` seconds. What somebody else
    drained stays as it is. Raises Interrupted when the operator stops.
    """
    if not reasons:
        return {}
    held = drain_nodes(ctx, list(reasons), dict(reasons))
    bad = {node: replace(result, touched=False) for node, result in held.items() if result.outcome is not Outcome.PASS}
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    limit_s = 0 if isinstance(site.handover, FileHandover) else site.handover.drain_wait_s
    drained = [node for node in reasons if node not in bad]
    try:
        with Ledger.open(paths.database) as ledger:
            for node in drained:
                ledger.event(ctx.campaign, node, PHASE, f"taken out of production: {reasons[node]}", "warn")
                row = ledger.state(node)
                if row is not None and row.state is NodeState.READY:
                    ledger.set_state(
                        node, NodeState.CERTIFIED, f"held: {reasons[node]}", phase=row.phase, campaign=ctx.campaign
                    )
            with adapter_for(site, paths) as adapter:
                left = wait_for_jobs(
                    adapter,
                    drained,
                    limit_s,
                    lambda node, text: ledger.event(ctx.campaign, node, PHASE, text, "warn"),
                    _POLL_S,
                )
    except RackreadyError as error:
        left = dict.fromkeys(drained, str(error))
    return bad | {
        node: NodeResult(Outcome.ERROR, text, data={HELD: True}, touched=False) for node, text in left.items()
    }


def wait_for_jobs(
    adapter: SchedulerAdapter, nodes: list[str], limit_s: float, tell: Callable[[str, str], None], poll_s: float
) -> dict[str, str]:
    """Wait until no job runs on any of the nodes. Returns the words about each node that is not empty (or not known to be) after ``limit_s``.

    ``poll_s``: seconds until the second look; from then on it grows, up to half a minute.
    """
    deadline = time.monotonic() + limit_s
    told: dict[str, str] = {}
    while True:
        busy: dict[str, list[Job] | str] = {}
        check_stop()
        for node, found in adapter.jobs_of(nodes):
            check_stop()
            if found:  # a scheduler that does not answer is asked again: it may be restarting
                busy[node] = found if isinstance(found, list) else str(found)
        left_s = deadline - time.monotonic()
        if not busy or left_s <= 0:
            return {
                node: held if isinstance(held, str) else _refusal(node, held, limit_s) for node, held in busy.items()
            }
        for node, held in busy.items():
            words = (
                held if isinstance(held, str) else ", ".join(f"{job.id} ({job.user}, {job.partition})" for job in held)
            )
            if told.get(node) != words:
                tell(node, f"drained; waits, at most {limit_s:.0f} s in all, for the end of {words}")
            told[node] = words
        nodes = list(busy)
        STOP.wait(min(poll_s, left_s))
        check_stop()
        poll_s = min(poll_s * _POLL_GROWTH, max(poll_s, _POLL_MAX_S))


def jobs_run(node: str, jobs: list[Job], expected: str) -> str:
    """Return the words of a refusal over jobs: the first of them named, the others counted."""
    names = ", ".join(f"{job.id} ({job.user}, {job.name})" for job in jobs[:_SHOWN])
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return f"{node}: jobs run on it - Expected: {expected} Actual: {names}{more}."


def _refusal(node: str, jobs: list[Job], limit_s: float) -> str:
    ways = f"wait and run again, or end them with `scancel {' '.join(job.id for job in jobs)}`."
    return (
        f"{jobs_run(node, jobs, f'none within {limit_s:.0f} s of draining it')} Nothing was touched, and it stays "
        f"drained so that it empties: {ways}"
    )
