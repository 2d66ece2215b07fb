"""Whose an incast's findings are: those of the nodes that they name, and not of all that took part in the run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from rackready.gates.base import Done
from rackready.gates.engine.pairs import unmeasured
from rackready.gates.fabric import incast_findings as kinds
from rackready.model.outcome import Finding, Outcome, Verdict

_NO_INCAST = frozenset(kind.code for kind in (kinds.NOT_SIDE_BY_SIDE, kinds.NOT_FILLED, kinds.NOT_ALL_WROTE))
"""What a run found in which the port was not filled by all."""


def attribute(done: Sequence[Done]) -> dict[str, list[Verdict]]:
    """Return each node's verdicts: of a bad run what was found on the node itself; a receiver that it does not name was not measured by it.

    A sender that it does not name is measured in the runs into that node. Where a finding names nobody, it is
    everybody's.
    """
    out: dict[str, list[Verdict]] = defaultdict(list)
    received = {(item.run.about["receiver"], item.run.about["rail"]) for item in done}
    for item in done:
        nodes, verdict, rail = item.run.nodes, item.verdict, item.run.about["rail"]
        named = {node: [finding for finding in verdict.findings if node in _names(finding, nodes)] for node in nodes}
        open_ = (
            verdict.outcome is Outcome.PASS
            or not verdict.findings
            or any(not _names(finding, nodes) for finding in verdict.findings)
        )
        bad = [node for node in nodes if named[node]]
        for node in nodes:
            if open_:
                out[node].append(verdict)
            elif named[node]:
                out[node].append(verdict.model_copy(update={"findings": named[node], "blamed": [node]}))
            elif node == nodes[0] or (node, rail) not in received:
                finding = unmeasured(f"{node} rail {rail}", bad)
                out[node].append(
                    verdict.model_copy(update={"outcome": Outcome.ERROR, "findings": [finding], "blamed": []})
                )
    return dict(out)


def _names(finding: Finding, nodes: Sequence[str]) -> frozenset[str]:
    """Return the nodes that a finding is about, the receiver first among ``nodes``. That a port was not filled may be any sender's, unless it names them."""
    found = frozenset(
        node
        for node in nodes
        if node in finding.nodes or re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])", finding.where)
    )
    return found if finding.code not in _NO_INCAST or found - {nodes[0]} else frozenset()
