"""Retires a node for good: drained, empty of jobs, powered off if we powered it on, and recorded as retired.

Every step observes first, so a killed run is simply repeated: it finds finished steps done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rackready.design.handover_of import by_scheduler
from rackready.design.pinned import site_of
from rackready.drivers.scheduler.base import (
    Job,
    JobsUnknownError,
    SchedulerAdapter,
    SchedulerError,
    SchedulerNode,
    UnknownNodeError,
)
from rackready.drivers.scheduler.places import absence, moved, stranded
from rackready.drivers.scheduler.registry import adapter_for, reader_for
from rackready.handover.offer import ledger_of
from rackready.handover.production import jobs_run, taken_as_free
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.near import CORRECT, hosts_among
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError, quoted
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

PHASE = "retire"


class RetireRefusedError(RackreadyError):
    """The node may not be retired now. Nothing was changed, except that it may be drained."""


@dataclass(frozen=True, slots=True)
class BeforeRetirement:
    """A node before it is retired.

    ``drained``: the reason of its drain in the scheduler; ``trouble``: why the scheduler could not be asked; ``free``:
    it is taken as carrying no jobs all the same; ``stuck``: what to do about jobs that waiting does not end.
    """

    node: str
    state: NodeState
    reason: str
    made: bool
    usable: bool = False
    drained: str = ""
    jobs: list[Job] = field(default_factory=list)
    trouble: str = ""
    free: bool = False
    stuck: str = ""


def look(ctx: PhaseContext, node: str, *, pins: bool = False, ends: bool = False) -> BeforeRetirement:
    """Return the node as it is; changes nothing on it. Raises RetireRefusedError when the site has no such node.

    ``pins``: the host key of a scheduler that was never reached may be pinned. ``ends``: a scheduler that ends jobs by
    itself asks those of this drained node to end first.
    """
    site = site_of(ctx)
    known = [item.name for item in site.nodes()]
    if node not in known:
        raise RetireRefusedError(
            node, expected=f"one of {hosts_among(known, node)}", actual="no such node", next_step=CORRECT
        )
    paths = EnvPaths(ctx.root, ctx.env)
    recorded = _recorded(paths, node)
    try:
        uses = _uses(site, paths, node, pins=pins, ends=ends)
    except RackreadyError as error:
        return BeforeRetirement(node, *recorded, trouble=str(error), free=_free(paths, node, error))
    usable = any(use.now.usable for use in uses)
    held = [use.now.reason for use in uses if use.now.drained]
    jobs, stuck = [job for use in uses for job in use.jobs], " ".join(filter(None, (use.stuck for use in uses)))
    drained = held[0] if len(held) == len(uses) else ""
    return BeforeRetirement(node, *recorded, usable, drained, jobs, stuck=stuck)


class _Use(NamedTuple):
    """State and jobs of a node in one scheduler, and what to do about jobs that waiting does not end."""

    now: SchedulerNode
    jobs: list[Job]
    stuck: str


def _uses(site: Site, paths: EnvPaths, node: str, *, pins: bool, ends: bool) -> list[_Use]:
    """Return state and jobs of a node in its scheduler, and in the one that it was handed over to before it moved.

    Raises UnknownNodeError where none knows it, and the error of a scheduler.
    """
    with ledger_of(paths) as ledger:
        views = [*(moved(site, ledger, [node]) if ledger is not None else []), *by_scheduler(site, [node])]
        if ledger is not None and (lost := stranded(site, ledger, node)) is not None:
            raise SchedulerError.of([lost])
    found: list[_Use] = []
    unknown: SchedulerError | None = None
    for view in views:
        try:
            with (adapter_for if pins else reader_for)(view.site, paths) as adapter:
                now = adapter.show(node)
                jobs = _vacated(adapter, node) if ends else adapter.jobs(node)
                found.append(_Use(now, jobs, adapter.stuck(jobs)))
        except UnknownNodeError as error:
            with ledger_of(paths) as ledger:
                unknown = error if ledger is None else absence(view.site, ledger, node, error)
            if unknown is not error:
                raise unknown from error
    if unknown is not None and not found:
        raise unknown
    return found


def _vacated(adapter: SchedulerAdapter, node: str) -> list[Job]:
    """Return the jobs that are left after the scheduler asked them to end. Raises its error.

    One that was asked and would only come back, for ever, does not keep the node.
    """
    ((_, found),) = adapter.vacate([node])
    if isinstance(found, SchedulerError):
        raise found
    counted = {job.id for job in adapter.jobs(node)} if found else set()
    return [job for job in found if job.id in counted]


def _recorded(paths: EnvPaths, node: str) -> tuple[NodeState, str, bool]:
    """Return the node's state, its reason, and whether we powered it on."""
    from rackready.stacks.machine import made_by_us  # noqa: PLC0415 - SSH and Redfish take a second to import

    if not Ledger.exists(paths.database):
        return NodeState.DECLARED, "", False
    with Ledger.read_only(paths.database) as ledger:
        row = ledger.state(node)
        return (row.state if row else NodeState.DECLARED), (row.reason if row else ""), made_by_us(ledger, node)


def _free(paths: EnvPaths, node: str, error: RackreadyError) -> bool:
    if not Ledger.exists(paths.database):
        return not isinstance(error, JobsUnknownError)
    with Ledger.read_only(paths.database) as ledger:
        return taken_as_free(ledger, node, error)


def steps(standing: BeforeRetirement, reason: str) -> list[str]:
    """Return the steps of retiring a node, or why it would be refused, one per line. Pure."""
    if standing.state is NodeState.RETIRED:
        return [f"{standing.node}: is retired already ({standing.reason})"]
    to_drain = standing.usable or not (standing.drained or standing.trouble)
    refused = refusal(standing, "would be drained" if to_drain else "is drained")
    lines = [f"{standing.node}: {standing.state.value}{f' ({standing.reason})' if standing.reason else ''}"]
    if to_drain:
        lines.append(f"would be drained in the scheduler: rackready: retired: {reason}")
    elif standing.drained:
        lines.append(f"is drained in the scheduler already: {standing.drained}")
    if refused:
        return [*lines, f"would be refused: {refused}"]
    off = "would be powered off, and its resources removed from the rack's stack"
    lines.append(off if standing.made else "was not powered on by rackready: its power stays as it is")
    return [*lines, f"would be retired: {reason}"]


def refusal(standing: BeforeRetirement, drained: str = "is drained") -> Message | None:
    """Return why a node may not be retired now, None when it may. ``drained``: the words about its drain."""
    if standing.jobs:
        wait = standing.stuck or "wait for the jobs to end, then run again; see docs/runbooks/retire.md."
        return jobs_run(standing.node, standing.jobs, "none", f"It {drained}, so that it empties: {wait}")
    if standing.trouble and not standing.free:
        return Message(
            standing.node,
            "jobs on it",
            expected="known from the scheduler",
            actual=quoted(standing.trouble),
            next_step="Nothing was changed. Run again once it answers.",
        )
    return None


def retire(ctx: PhaseContext, node: str, reason: str) -> NodeResult:
    """Retire a node. Call it only under the controller lock.

    Raises RetireRefusedError while jobs run on it (it is drained then), or when a node in production cannot be drained
    or its jobs cannot be read.
    """
    standing = look(ctx, node, pins=True)
    if standing.state is NodeState.RETIRED:
        return NodeResult(Outcome.PASS, f"{node}: is retired already ({standing.reason})")
    if not standing.trouble:
        _drain(ctx, node, f"retired: {reason}")
        standing = look(ctx, node, pins=True, ends=True)
    if refused := refusal(standing):
        raise RetireRefusedError.of([refused])
    return _give_up(ctx, standing, reason)


def _drain(ctx: PhaseContext, node: str, reason: str) -> None:
    """Drain the node and record it: from then on it is not in production any more."""
    result = drain_nodes(ctx, [node], {node: reason})[node]
    if result.outcome is not Outcome.PASS:
        raise RetireRefusedError(result.message)
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        row = ledger.state(node)
        if row is not None and row.state is NodeState.READY:
            ledger.set_state(node, NodeState.CERTIFIED, f"drained: {reason}", phase=row.phase, campaign=row.campaign)


def _give_up(ctx: PhaseContext, standing: BeforeRetirement, reason: str) -> NodeResult:
    """Remove the node's resources, then record that it is retired. After a kill in between, the run is repeated."""
    from rackready.stacks.provision import run_destroy  # noqa: PLC0415 - the Pulumi SDK takes a second to import

    node = standing.node
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        token = ledger.change_begins(node, PHASE)
        result = run_destroy(ctx, [node])[node]
        ledger.done(token, {"outcome": result.outcome.value})
        if result.outcome is not Outcome.PASS:
            return result
        ledger.set_state(node, NodeState.RETIRED, reason, phase=PHASE)
    trouble = f"; {standing.trouble}" if standing.trouble else ""
    return NodeResult(Outcome.PASS, f"{node}: retired: {result.message}{trouble}", changed=True)
