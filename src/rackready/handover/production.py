"""Nodes in production: finds them, and drains them before a change. It waits for jobs and never ends one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rackready.design.handover_of import HandoverView
from rackready.design.pinned import site_of
from rackready.drivers.process import STOP, check_stop
from rackready.drivers.scheduler.base import (
    Job,
    JobsUnknownError,
    LostNodeError,
    SchedulerAdapter,
    UnknownNodeError,
    jobs_words,
)
from rackready.drivers.scheduler.places import RELEASE, absence, places, stranded, twice_in
from rackready.drivers.scheduler.registry import adapter_for
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError, quoted
from rackready.model.several import SeveralHandover
from rackready.model.site import FileHandover
from rackready.model.state import LIFE, NodeState, at_least
from rackready.paths import EnvPaths

PHASE = "drain"
"""Phase of the events about draining nodes. Older versions wrote ``hold``; no code tells the two apart."""

_POLL_S, _POLL_MAX_S, _POLL_GROWTH = 2.0, 30.0, 1.5
"""How often jobs are asked for: soon at first, seldom in a long wait, which spares slurmctld. Our judgement."""
_SHOWN = 3
"""Jobs, or changes, that a message names; the others are counted."""


def in_production(ctx: PhaseContext, nodes: Iterable[str]) -> tuple[list[str], dict[str, NodeResult]]:
    """Return the nodes on which jobs run or may start, and an error for each that the scheduler gives no answer about.

    The scheduler is asked, not our own record: a node that is drained but not empty yet still carries a job, and a node
    that was handed over, is down and not drained may come back by itself at any moment. Without the scheduler's answer,
    a node is taken as not in production only where ``taken_as_free`` allows it; an event reports that.
    """
    nodes = list(nodes)
    if not nodes:
        return [], {}
    busy, unknown = [], {}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node, answer in _ask(ctx, ledger, nodes).items():
            if isinstance(answer, Message):
                unknown[node] = NodeResult(Outcome.ERROR, str(answer), data={UNTOUCHED: True}, touched=False)
            elif isinstance(answer, _Use):
                busy += (
                    [node]
                    if answer.offered or answer.jobs or (handed_over(ledger, node) and not answer.drained)
                    else []
                )
            elif not taken_as_free(ledger, node, answer):
                unknown[node] = not_told(node, answer)
            else:
                ledger.event(ctx.campaign, node, PHASE, f"taken as not in production: {_why_free(answer)}", "warn")
    return busy, unknown


def not_told(node: str, error: RackreadyError) -> NodeResult:
    """Return the result of a node about whose jobs a scheduler gives no answer: it is left alone."""
    text = (
        str(error)
        if isinstance(error, LostNodeError)
        else f"{node}: jobs on it - Expected: known from the scheduler "
        f"Actual: {quoted(str(error))} Nothing was changed. Run again once it answers."
    )
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)


def handed_over(ledger: Ledger, node: str) -> bool:
    """Return whether rackready ever handed a node over, or was about to."""
    return any(entry.operation == RELEASE and entry.status != "failed" for entry in ledger.entries(node))


def taken_as_free(ledger: Ledger, node: str, error: RackreadyError) -> bool:
    """Return whether a node is taken as carrying no jobs though the scheduler gave no answer about it.

    A node that the scheduler does not know gets no jobs from it, unless it is lost. While the scheduler does not
    answer, a node that was never handed over is free when it is not installed yet, or was off until rackready powered
    it on: a first deploy may come before the scheduler is up. A node that somebody else may be using is not free.
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
        else f"rackready never handed it over, and the scheduler reports: {error}"
    )


@dataclass(frozen=True, slots=True)
class _Use:
    """The use of one node, as the scheduler reports it."""

    offered: bool
    """Jobs may start now."""
    drained: bool
    jobs: bool
    on_offer: bool
    """Jobs may start now, or when it comes back."""


def _ask(ctx: PhaseContext, ledger: Ledger, nodes: list[str]) -> dict[str, _Use | RackreadyError | Message]:
    """Return how each node is used, or its scheduler's error; why it cannot be known, where the site lost it."""
    site = site_of(ctx)
    out: dict[str, _Use | RackreadyError] = {}
    for view in places(site, ledger, nodes):
        found = _uses(view, EnvPaths(ctx.root, ctx.env), ledger)
        out |= {node: _together(out.get(node), answer) for node, answer in found.items()}
    lost = {node: why for node in nodes if (why := stranded(site, ledger, node)) is not None}
    return {**out, **lost}


def _uses(view: HandoverView, paths: EnvPaths, ledger: Ledger) -> dict[str, _Use | RackreadyError]:
    try:
        with adapter_for(view.site, paths) as adapter:
            found = {node: _use(adapter, node) for node in view.nodes}
            return {
                node: absence(view.site, ledger, node, answer) if isinstance(answer, UnknownNodeError) else answer
                for node, answer in found.items()
            }
    except RackreadyError as error:
        return dict.fromkeys(view.nodes, error)


def _together(before: _Use | RackreadyError | None, now: _Use | RackreadyError) -> _Use | RackreadyError:
    """Return the use of a node in two schedulers: one that does not know it says nothing, an error stays."""
    if before is None or isinstance(before, UnknownNodeError):
        return now
    if isinstance(now, UnknownNodeError) or isinstance(before, RackreadyError):
        return before
    if isinstance(now, RackreadyError):
        return now
    return _Use(
        before.offered or now.offered,
        before.drained and now.drained,
        before.jobs or now.jobs,
        before.on_offer or now.on_offer,
    )


def _use(adapter: SchedulerAdapter, node: str) -> _Use | RackreadyError:
    try:
        now = adapter.show(node)
        # Where jobs may start, the node is in production without them.
        return _Use(now.usable, now.drained, not now.usable and bool(adapter.jobs(node)), now.on_offer)
    except RackreadyError as error:
        return error


def changes_words(phase: str, changes: list[str]) -> str:
    """Return the reason in the scheduler while a phase is about to change something on a node."""
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return f"{phase} is about to change: {'; '.join(changes[:_SHOWN])}{more}"


def take_out(
    ctx: PhaseContext,
    reasons: Mapping[str, str],
    *,
    partner_of: Sequence[str] = (),
    views: Sequence[HandoverView] | None = None,
) -> dict[str, NodeResult]:
    """Drain nodes with these reasons, wait until no job runs on them, and return those on which that did not work.

    Those are left alone. The wait for all of them together takes at most the site's ``handover.drain_wait_s`` seconds.
    A drain that somebody else set stays as it is. ``partner_of``: the nodes that these are lent to as partners.
    ``views``: as of ``drain_nodes``. Raises Interrupted when the operator stops.
    """
    if not reasons:
        return {}
    results = drain_nodes(ctx, list(reasons), dict(reasons), partner_of=partner_of, views=views)
    bad = {
        node: replace(result, touched=False) for node, result in results.items() if result.outcome is not Outcome.PASS
    }
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    drained = [node for node in reasons if node not in bad]
    try:
        with Ledger.open(paths.database) as ledger:
            for node in drained:
                ledger.event(ctx.campaign, node, PHASE, f"drained: {reasons[node]}", "warn")
                row = ledger.state(node)
                if row is not None and row.state is NodeState.READY:
                    reason = f"drained: {reasons[node]}"
                    ledger.set_state(node, NodeState.CERTIFIED, reason, phase=row.phase, campaign=ctx.campaign)
            left = _wait_everywhere(
                places(site, ledger, drained) if views is None else _only(views, drained),
                paths,
                ledger,
                lambda node, text: ledger.event(ctx.campaign, node, PHASE, text, "warn"),
            )
    except RackreadyError as error:
        left = dict.fromkeys(drained, str(error))
    return bad | {
        node: NodeResult(Outcome.ERROR, text, data={DRAINED: True}, touched=False) for node, text in left.items()
    }


def still_there(views: Sequence[HandoverView], paths: EnvPaths) -> tuple[set[str], dict[str, RackreadyError]]:
    """Return the nodes that these schedulers offer or run jobs on, and the errors about nodes."""
    busy, unknown = set(), {}
    with Ledger.open(paths.database) as ledger:
        answers = [found for view in views for found in _uses(view, paths, ledger).items()]
    for node, answer in answers:
        if isinstance(answer, _Use):
            busy |= {node} if answer.on_offer or answer.jobs else set()
        elif not isinstance(answer, UnknownNodeError):
            unknown[node] = answer
    return busy - unknown.keys(), unknown


def _only(views: Sequence[HandoverView], nodes: Sequence[str]) -> list[HandoverView]:
    return [HandoverView(view.site, tuple(node for node in view.nodes if node in nodes)) for view in views]


def _wait_everywhere(
    views: Sequence[HandoverView], paths: EnvPaths, ledger: Ledger, tell: Callable[[str, str], None]
) -> dict[str, str]:
    """Wait until no job runs on the nodes, at all schedulers at the same time, each for its own limit."""
    twice = twice_in(views)

    def wait(view: HandoverView) -> dict[str, str]:
        handover = view.site.handover
        limit_s = 0 if isinstance(handover, FileHandover | SeveralHandover) else handover.drain_wait_s
        try:
            with adapter_for(view.site, paths) as adapter:
                gone = {node: error for node in view.nodes if node in twice and (error := _unknown(adapter, node))}
                found = {node: absence(view.site, ledger, node, error) for node, error in gone.items()}
                lost = {node: str(error) for node, error in found.items() if error is not gone[node]}
                nodes = [node for node in view.nodes if node not in gone]
                return lost | wait_for_jobs(adapter, nodes, limit_s, tell, _POLL_S)
        except RackreadyError as error:
            return dict.fromkeys(view.nodes, str(error))

    if len(views) <= 1:
        return wait(views[0]) if views else {}
    with ThreadPoolExecutor(max_workers=len(views), thread_name_prefix="drain") as pool:
        return {node: text for left in pool.map(wait, views) for node, text in left.items()}


def _unknown(adapter: SchedulerAdapter, node: str) -> UnknownNodeError | None:
    """Return the answer of a scheduler that does not know a node; None where it knows it, or does not answer."""
    try:
        adapter.show(node)
    except UnknownNodeError as error:
        return error
    except RackreadyError:
        return None
    return None


def wait_for_jobs(
    adapter: SchedulerAdapter, nodes: list[str], limit_s: float, tell: Callable[[str, str], None], poll_s: float
) -> dict[str, str]:
    """Wait until no job runs on any of the nodes, and return a message for each that has jobs after ``limit_s``.

    A node whose jobs are not known by then gets one, too. ``poll_s``: seconds until the second look; from then on the
    pause grows, up to half a minute.
    """
    deadline = time.monotonic() + limit_s
    told: dict[str, str] = {}
    while True:
        busy: dict[str, list[Job] | str] = {}
        check_stop()
        for node, found in adapter.vacate(nodes):
            check_stop()
            if found:  # a scheduler that does not answer is asked again: it may be restarting
                busy[node] = found if isinstance(found, list) else str(found)
            elif beside := adapter.beside(node):
                tell(node, f"drained; no longer waits for what the scheduler puts back on it: {jobs_words(beside)}")
        left_s = deadline - time.monotonic()
        if not busy or left_s <= 0:
            return {
                node: jobs if isinstance(jobs, str) else _refusal(adapter, node, jobs, limit_s)
                for node, jobs in busy.items()
            }
        for node, jobs in busy.items():
            words = jobs if isinstance(jobs, str) else _waits_for(adapter, jobs)
            if told.get(node) != words:
                tell(node, f"drained; waits, at most {limit_s:.0f} s in all, for the end of {words}")
            told[node] = words
        nodes = list(busy)
        STOP.wait(min(poll_s, left_s))
        check_stop()
        poll_s = min(poll_s * _POLL_GROWTH, max(poll_s, _POLL_MAX_S))


def jobs_run(node: str, jobs: list[Job], expected: str, step: str) -> Message:
    """Return the refusal because of jobs: the first few named, the others counted."""
    names = ", ".join(_with_cause(job, job.name) for job in jobs[:_SHOWN])
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return Message(node, "jobs run on it", expected=expected, actual=f"{names}{more}", next_step=step)


def _waits_for(adapter: SchedulerAdapter, jobs: list[Job]) -> str:
    """Return jobs in words, and what ends those of them that waiting does not end."""
    words, stuck = ", ".join(_with_cause(job, job.partition) for job in jobs), adapter.stuck(jobs)
    return f"{words}. {stuck}" if stuck else words


def _with_cause(job: Job, last: str) -> str:
    """Return a job in words, with the cause why it stays where one is known."""
    return f"{job.id} ({job.user}, {last}){f': {job.stays}' if job.stays else ''}"


def _refusal(adapter: SchedulerAdapter, node: str, jobs: list[Job], limit_s: float) -> str:
    step = f"Nothing was changed, and it stays drained so that it empties: {adapter.how_to_end(jobs)}"
    return str(jobs_run(node, jobs, f"none within {limit_s:.0f} s of draining it", step))
