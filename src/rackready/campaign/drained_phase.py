"""A phase on nodes in production: a dry run first, then only nodes that it would change are drained and changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rackready.handover.production import changes_words, in_production, take_out
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult, PhaseContext

Results = dict[str, NodeResult]
Runner = Callable[[PhaseContext, list[str]], Results]


def run_drained(ctx: PhaseContext, phase: str, run: Runner, nodes: list[str]) -> Results:
    """Run a phase that treats each node by itself.

    Nodes out of production are done at once. Those in production get a dry run: where it finds nothing to change, its
    result stands and nothing runs twice; the others are drained, and done when no job runs on them any more.
    """
    if ctx.check:
        return run(ctx, nodes)
    busy, unknown = in_production(ctx, nodes)
    out = unknown | run(ctx, [node for node in nodes if node not in busy and node not in unknown])
    if not busy:
        return out
    looked = run(replace(ctx, check=True), busy)
    out |= settled(looked)
    kept = take_out(ctx, {node: reason(phase, looked[node]) for node in busy if node not in out})
    return out | kept | run(ctx, [node for node in busy if node not in out and node not in kept])


def settled(looked: Results) -> Results:
    """Return the results of a dry run that stand: nothing to change, or the node could not be looked at."""
    same = {node: result for node, result in looked.items() if result.outcome in CONTINUES and not result.changed}
    unseen = {
        node: replace(result, touched=False) for node, result in looked.items() if result.outcome is Outcome.ERROR
    }
    return same | unseen


def reason(phase: str, looked: NodeResult) -> str:
    """Return why a node is drained: what the dry run would change, or on what it failed."""
    if looked.outcome in CONTINUES:
        found = looked.data.get("differs") or looked.data.get("changes") or ["something that its dry run does not name"]
        return changes_words(phase, list(found))
    return f"{phase} is about to run, its dry run failed: {looked.message}"
