"""Nodes that are quarantined or retired and on offer all the same, because somebody resumed them: alarm and drain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from rackready.design.handover_of import by_scheduler
from rackready.design.names import listed
from rackready.design.pinned import site_of
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.look import Answer, look_at_all
from rackready.drivers.scheduler.places import moved
from rackready.drivers.scheduler.registry import adapter_for, reader_for
from rackready.handover.production import PHASE
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger, NodeRow
from rackready.model.commands import repair
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import OUT
from rackready.paths import EnvPaths

STATUS_S = 5.0
"""Seconds that `rackready status` waits for the scheduler in all. Judgement: a person waits for the table."""

ASK_S = 15.0
"""Seconds that a command that may write waits for the scheduler first.

Judgement: a controller under load answers `scontrol` within some seconds.
"""


@dataclass(frozen=True, slots=True)
class Offers:
    """The scheduler's answers about nodes that are out.

    ``offered``: nodes on which jobs may start. ``unknown``: node -> why the scheduler could not be asked about it.
    ``absent``: node -> the answer of the last scheduler, where none knows it.
    """

    asked: frozenset[str] = frozenset()
    offered: Mapping[str, SchedulerNode] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


def offers(site: Site, paths: EnvPaths, nodes: Sequence[str], *, limit_s: float, reads: bool) -> Offers:
    """Return which of these nodes the scheduler offers. It is not asked when there are none.

    With ``reads`` nothing is written, not even a host key at first contact. A node that the scheduler does not know
    gets no jobs from it.
    """
    if not nodes:
        return Offers()
    connect = reader_for if reads else adapter_for
    with ledger_of(paths) as ledger:
        before = moved(site, ledger, nodes) if ledger is not None else []
    asked: dict[str, tuple[Callable[[], SchedulerAdapter], list[str]]] = {}
    for view in [*before, *by_scheduler(site, nodes)]:
        asked.setdefault(view.called, (partial(connect, view.site, paths), []))[1].extend(view.nodes)
    answers: dict[str, Answer] = {}
    for found in look_at_all(asked, limit_s).values():
        for node, answer in found.items():
            answers[node] = _worse(answers.get(node), answer)
    unknown = {
        node: str(answer)
        for node, answer in answers.items()
        if isinstance(answer, RackreadyError) and not isinstance(answer, UnknownNodeError)
    }
    offered = {
        node: answer for node, answer in answers.items() if isinstance(answer, SchedulerNode) and answer.on_offer
    }
    absent = {node: str(answer) for node, answer in answers.items() if isinstance(answer, UnknownNodeError)}
    return Offers(frozenset(nodes) - set(unknown), offered, unknown, absent)


@contextmanager
def ledger_of(paths: EnvPaths) -> Iterator[Ledger | None]:
    """Open the ledger for reading; None where there is none yet."""
    if not Ledger.exists(paths.database):
        yield None
        return
    with Ledger.read_only(paths.database) as ledger:
        yield ledger


def _worse(before: Answer | None, now: Answer) -> Answer:
    """Return the answer about a node of two schedulers: one that offers it, else an error, else any."""
    if before is None or isinstance(before, UnknownNodeError):
        return now
    if isinstance(now, SchedulerNode) and not now.on_offer:
        return before
    if isinstance(now, UnknownNodeError) or (isinstance(before, SchedulerNode) and before.on_offer):
        return before
    return now


def out_of_use(states: Iterable[NodeRow], site: Site) -> dict[str, NodeRow]:
    """Return the nodes of the site that are out, with their record. ``states``: all that the ledger has."""
    known = {node.name for node in site.nodes()}
    return {row.name: row for row in states if row.state in OUT and row.name in known}


def alarm(row: NodeRow, now: SchedulerNode) -> str:
    """Return the alarm about a node that is out and on offer."""
    step = f"`rackready deploy` drains it before anything else. If it was repaired: {repair(row.name)}."
    return (
        f"{row.name}: {row.state.value}, and the scheduler offers it to jobs - Expected: drained "
        f"Actual: {now.state}. {step}"
    )


def not_asked(unknown: Mapping[str, str]) -> dict[str, str]:
    """Return a line for each cause why the scheduler could not be asked -> the nodes that share it."""
    causes: dict[str, list[str]] = {}
    for node, why in unknown.items():
        causes.setdefault(why.removeprefix(f"{node}: "), []).append(node)
    lines = {}
    for why, nodes in causes.items():
        which = "it is" if len(nodes) == 1 else "they are"
        lines[f"{listed(nodes)}: unknown whether {which} on offer in the scheduler: {why}"] = listed(nodes)
    return lines


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of ``keep_off``. ``drained``: nodes; ``lines``: messages for the operator."""

    drained: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def keep_off(ctx: PhaseContext, but: str = "") -> Kept:
    """Drain every node of the site that is out and on offer. A dry run does nothing.

    Call it only under the controller lock. ``but``: a node that the caller drains itself.

    A node that somebody else drained is not on offer and stays as it is. A scheduler that does not answer is reported
    and stops nothing: work that needs its answer asks again.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    if ctx.check or not Ledger.exists(paths.database):
        return Kept()
    with Ledger.open(paths.database) as ledger:
        states = ledger.states()
        if not any(row.state in OUT and row.name != but for row in states):
            return Kept()
        site = site_of(ctx)
        rows = {node: row for node, row in out_of_use(states, site).items() if node != but}
        found = offers(site, paths, list(rows), limit_s=ASK_S, reads=False)
        drained, lines = _drain(ctx, rows, found.offered)
        lines |= not_asked(found.unknown)
        for line, node in lines.items():
            ledger.event(ctx.campaign, node, PHASE, line, "warn")
        return Kept(tuple(drained), tuple(lines))


def _drain(
    ctx: PhaseContext, rows: Mapping[str, NodeRow], offered: Mapping[str, SchedulerNode]
) -> tuple[list[str], dict[str, str]]:
    """Drain the nodes, each with the reason on record. Return those for which that worked, and message -> node."""
    reasons = {node: f"{rows[node].state.value}: {rows[node].reason}" for node in offered}
    drained, lines = [], {}
    for node, result in drain_nodes(ctx, list(offered), reasons).items():
        begins = f"{node} is {rows[node].state.value}, and the scheduler offered it to jobs ({offered[node].state}): "
        if result.outcome is Outcome.PASS:
            drained.append(node)
            lines[f"{begins}drained. If it was repaired: {repair(node)}"] = node
        else:
            lines[f"{begins}it could not be drained: {result.message} Drain it by hand."] = node
    return drained, lines
