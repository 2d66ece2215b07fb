"""Nodes without compute NICs among those that a gate of rails is run over: nothing is launched on them, and it is said that there is nothing to judge."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import Done, GateFacts, Run
from rackready.gates.judge import Judge
from rackready.model.outcome import Verdict

NOTE = "the platform has no compute NICs: nothing to judge"


def apart(facts: GateFacts, nodes: Sequence[str]) -> tuple[list[str], list[Run]]:
    """Return the nodes that have NICs, and the run without commands of those that have none: no run where all have some."""
    bare = tuple(node for node in nodes if not facts.nodes[node].nics)
    with_nics = [node for node in nodes if node not in bare]
    return with_nics, [Run(id="no compute NICs", target="nodes without compute NICs", nodes=bare, commands=())] if bare else []


def nothing(facts: GateFacts, run: Run) -> Verdict | None:
    """Return the verdict on a run of nodes without NICs: a pass that measured no part; None for a run of others."""
    if any(facts.nodes[node].nics for node in run.nodes):
        return None
    gathered = Judge()
    gathered.nothing(NOTE)
    return gathered.verdict(run.target)


def split(done: Sequence[Done]) -> tuple[list[Done], dict[str, list[Verdict]]]:
    """Return the runs in which something was launched, and what was said of each node of the others."""
    measured = [item for item in done if item.run.commands]
    return measured, {node: [item.verdict] for item in done if not item.run.commands for node in item.run.nodes}
