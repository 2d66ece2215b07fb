"""Refuses to erase nodes in production, before provisioning."""

from __future__ import annotations

from dataclasses import replace

from rackready.campaign.drained_phase import Results, Runner
from rackready.handover.production import in_production
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import Message
from rackready.model.state import NodeState
from rackready.paths import EnvPaths


def run_erasing(ctx: PhaseContext, run: Runner, nodes: list[str]) -> Results:
    """Run a phase that may erase nodes (``--erase``); those on which jobs run or may start get an error instead."""
    erase = [node for node in nodes if node in ctx.erase]
    if not erase:
        return run(ctx, nodes)
    out = _ready(ctx, erase)
    busy, unknown = in_production(ctx, [node for node in erase if node not in out])
    out |= unknown | {node: _refused(ctx, node, "the scheduler offers it, or jobs run on it") for node in busy}
    return out | run(replace(ctx), [node for node in nodes if node not in out])


def _ready(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Return an error for each node that is ready by our own record."""
    paths = EnvPaths(ctx.root, ctx.env)
    if not Ledger.exists(paths.database):
        return {}
    with Ledger.read_only(paths.database) as ledger:
        states = {row.name: row.state for row in ledger.states()}
    return {node: _refused(ctx, node, "ready") for node in nodes if states.get(node) is NodeState.READY}


def _refused(ctx: PhaseContext, node: str, actual: str) -> NodeResult:
    step = f"Drain it: `rackready repair {node} --env {ctx.env} --reason ...`. Run again when its jobs have ended."
    message = Message(node, "--erase", expected="a node out of production", actual=actual, next_step=step)
    return NodeResult(Outcome.ERROR, str(message), data={UNTOUCHED: True}, touched=False)
