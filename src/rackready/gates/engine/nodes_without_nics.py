"""Nodes without compute NICs in gates of rails: nothing is launched on them, and their verdict has nothing to judge.

If too few nodes with NICs remain for the gate, nothing is launched on those either, and their verdict is ``not_run``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import FinishedRun, Gate, GateFacts, Run
from rackready.gates.engine.recorder import not_run
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict

NOTE = "the platform has no compute NICs: nothing to judge"


def split_nodes(facts: GateFacts, nodes: Sequence[str]) -> tuple[list[str], list[Run]]:
    """Return the nodes with NICs, and a run without commands for the others; no run if all nodes have NICs."""
    bare = tuple(node for node in nodes if not facts.nodes[node].nics)
    with_nics = [node for node in nodes if node not in bare]
    return with_nics, [
        Run(id="no compute NICs", target="nodes without compute NICs", nodes=bare, commands=())
    ] if bare else []


def nothing_to_judge(facts: GateFacts, run: Run) -> Verdict | None:
    """Return the verdict on a run of nodes without NICs, a pass that measured no part; None for any other run."""
    if any(facts.nodes[node].nics for node in run.nodes):
        return None
    gathered = Judge()
    gathered.nothing(NOTE)
    return gathered.verdict(run.target)


def split_runs(done: Sequence[FinishedRun]) -> tuple[list[FinishedRun], dict[str, list[Verdict]]]:
    """Return the runs in which something was launched, and the verdicts of the nodes of the other runs."""
    measured = [item for item in done if item.run.commands]
    return measured, {node: [item.verdict] for item in done if not item.run.commands for node in item.run.nodes}


def too_few(gate: Gate, facts: GateFacts) -> dict[str, list[Verdict]]:
    """Return, for every node with NICs, the verdict that counts if no run included it: too few nodes, not run."""
    words = f"fewer than {gate.min_nodes} of the nodes that can take part have a compute NIC on the same rail"
    step = "Run it together with more such nodes, or declare the skip with its reason in site.yml (gates.skip)."
    return {node: [not_run(node, gate.id, words, step)] for node, known in facts.nodes.items() if known.nics}
