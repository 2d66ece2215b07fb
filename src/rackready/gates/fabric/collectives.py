"""The collectives by what runs them together: pair, rack, leaf group, cluster. One class for each, so that each has an id and a line for reports."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import Done, GateFacts, Run
from rackready.gates.engine import nodes_without_nics
from rackready.gates.engine.pairs import attribute_whole_nodes, retests_of_whole_nodes, rounds
from rackready.gates.fabric import domains
from rackready.gates.fabric.collective import WORDS, Multi
from rackready.gates.judging.expectation import Collective
from rackready.model.outcome import Verdict


class NcclAllReduceRing(Multi):
    """All GPUs of all nodes reduce together over every rail at the bandwidth that NICs and NVLinks give (forced ring)."""

    id = "cluster/fabric/performance/nccl-all-reduce-ring"
    algorithm = "ring"


class NcclPair(Multi):
    """Two nodes reduce together over every rail at the bandwidth that their NICs give (forced ring, which no tree can hide a bad rail from)."""

    id = "pair/fabric/performance/nccl-all-reduce-ring"
    after_fail = True
    algorithm = "ring"

    def parts(self, facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002
        """Pair nodes so that every one is measured."""
        return {f"{first}+{second}": (first, second) for pairing in rounds(list(nodes)) for first, second in pairing}

    def follow_up(self, facts: GateFacts, done: Sequence[Done]) -> list[Run]:
        """Give each end that a failed pair does not name a partner that passed."""
        measured, _ = nodes_without_nics.split_runs(done)
        return [
            self.run(facts, (node, partner), f"{node}+{partner}/again")
            for node, partner in retests_of_whole_nodes(measured)
        ]

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:  # noqa: ARG002
        """A node that is named gets what was found on it; one that passed with some partner is acquitted."""
        measured, bare = nodes_without_nics.split_runs(done)
        return attribute_whole_nodes(measured) | bare


class _OfRacks(Multi):
    """Every rack for itself."""

    def parts(self, facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the nodes by rack."""
        return domains.by_rack(facts, nodes)


class _OfGroups(Multi):
    """Every leaf group (scalable unit) for itself."""

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
        f"All {who} do {words} together over every rail, by the algorithm that NCCL chooses, as fast as NICs and "
        "NVLinks give."
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
