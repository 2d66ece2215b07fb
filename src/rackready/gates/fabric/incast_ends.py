"""Attribution of an incast's findings: they belong to the nodes that they name, not to all that took part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rackready.gates.base import FinishedRun
from rackready.gates.engine.pairs import unmeasured
from rackready.gates.engine.runner import JUDGEMENT_BROKE
from rackready.gates.fabric import incast_findings as kinds
from rackready.gates.judging.judge import NOTHING_JUDGED
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.place import Place

_NO_INCAST = frozenset(kind.code for kind in (kinds.NOT_SIDE_BY_SIDE, kinds.NOT_FILLED, kinds.NOT_ALL_WROTE))
"""Findings of a run in which the senders together did not fill the port."""
_OF_RUN = frozenset(kind.code for kind in (JUDGEMENT_BROKE, NOTHING_JUDGED))
"""Findings about the whole run, which is named after its receiver."""


def attribute(done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
    """Return each node's verdicts; of a bad run, a node gets what was found on itself.

    A receiver without a finding was not measured by a bad run. A sender without one is measured in the runs into that
    node. A finding that names nobody applies to all.
    """
    out: dict[str, list[Verdict]] = defaultdict(list)
    received = {(item.run.about["receiver"], item.run.about["rail"]) for item in done}
    for item in done:
        nodes, verdict, rail = item.run.nodes, item.verdict, item.run.about["rail"]
        named = {node: [finding for finding in verdict.findings if node in _about(finding, nodes)] for node in nodes}
        open_ = (
            verdict.outcome is Outcome.PASS
            or not verdict.findings
            or any(not _about(finding, nodes) for finding in verdict.findings)
        )
        bad = [node for node in nodes if named[node]]
        for node in nodes:
            if open_:
                out[node].append(verdict)
            elif named[node]:
                out[node].append(verdict.model_copy(update={"findings": named[node], "blamed": [node]}))
            elif node == nodes[0] or (node, rail) not in received:
                finding = unmeasured(Place(node, f"rail {rail}"), bad)
                out[node].append(
                    verdict.model_copy(update={"outcome": Outcome.ERROR, "findings": [finding], "blamed": []})
                )
    return dict(out)


def _about(finding: Finding, nodes: Sequence[str]) -> frozenset[str]:
    """Return the nodes that a finding is about.

    The receiver is first among ``nodes``. A port that was not filled may be any sender's fault, unless senders are
    named.
    """
    if finding.code in _OF_RUN:
        return frozenset(nodes[:1])
    found = frozenset({finding.node, *finding.nodes} & set(nodes))
    return found if finding.code not in _NO_INCAST or found - {nodes[0]} else frozenset()
