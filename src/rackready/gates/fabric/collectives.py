"""The collectives by group: pair, rack, leaf group, cluster. Each has a class, and so an id and a line for reports."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import FinishedRun, GateFacts, Run
from rackready.gates.engine import nodes_without_nics
from rackready.gates.engine.pairs import attribute_whole_nodes, retests_of_whole_nodes, rounds
from rackready.gates.fabric import domains
from rackready.gates.fabric.collective import WORDS, Multi
from rackready.gates.judging.expectation import Collective
from rackready.model.outcome import Verdict


class NcclAllReduceRing(Multi):
    """All GPUs of all nodes reduce over every rail at the bandwidth that NICs and NVLinks give (forced ring)."""

    id = "cluster/fabric/performance/nccl-all-reduce-ring"
    algorithm = "ring"


class NcclPair(Multi):
    """Two nodes reduce over every rail at the bandwidth of their NICs (forced ring: a tree could hide a bad rail)."""

    id = "pair/fabric/performance/nccl-all-reduce-ring"
    after_fail = True
    algorithm = "ring"

    def parts(self, facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002
        """Pair nodes so that every one is measured."""
        return {f"{first}+{second}": (first, second) for pairing in rounds(list(nodes)) for first, second in pairing}

    def follow_up(self, facts: GateFacts, done: Sequence[FinishedRun]) -> list[Run]:
        """Pair each end that a failed pair does not blame with a partner that passed."""
        measured, _ = nodes_without_nics.split_runs(done)
        return [
            self.run(facts, (node, partner), f"{node}+{partner}/again")
            for node, partner in retests_of_whole_nodes(measured)
        ]

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:  # noqa: ARG002
        """Return each node's verdict.

        A blamed node gets what was found on it; a node that passed with another partner is cleared.
        """
        measured, bare = nodes_without_nics.split_runs(done)
        return attribute_whole_nodes(measured) | bare


class _OfRacks(Multi):
    """Return one group per rack."""

    def parts(self, facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the nodes by rack."""
        return domains.by_rack(facts, nodes)


class _OfGroups(Multi):
    """Return one group per leaf group (scalable unit)."""

    def parts(self, facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the nodes by the leaf switches that they are cabled to."""
        return domains.by_leaf_group(facts, nodes)


_SCOPES: dict[str, tuple[type[Multi], str]] = {
    "rack": (_OfRacks, "GPUs of a rack"),
    "group": (_OfGroups, "GPUs of all nodes on the same leaf switches (a scalable unit)"),
    "cluster": (Multi, "GPUs of all nodes"),
}


def _declare(scope: str, collective: Collective) -> type[Multi]:
    kind, who = _SCOPES[scope]
    words = WORDS[collective]
    name = f"Nccl{scope.title()}{''.join(part.title() for part in collective.split('_'))}"
    text = (
        f"All {who} do {words} over every rail, with the algorithm that NCCL chooses, as fast as NICs and "
        "NVLinks allow."
    )
    body = {
        "id": f"{scope}/fabric/performance/nccl-{words}",
        "collective": collective,
        "__doc__": text,
        "__module__": __name__,
    }
    return type(name, (kind,), body)


GATES = tuple(_declare(scope, collective) for scope in _SCOPES for collective in WORDS)
"""Rack, leaf group and cluster, each with four collectives."""
