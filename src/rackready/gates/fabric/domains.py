"""NVLink domains and leaf switches of a run's nodes, from the site's racks, platforms and cables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackready.design.facts import NodeFacts
from rackready.gates.base import GateFacts
from rackready.gates.judging import node_topology
from rackready.gates.judging.expectation import Domain


def spans_nodes(facts: NodeFacts) -> bool:
    """Return whether a node's NVLink domain spans several nodes (NVL72)."""
    return facts.platform.nvlink_domain is not None and facts.platform.nvlink_domain > facts.platform.gpus


def groups(facts: GateFacts, nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the nodes by NVLink domain: those of one rack where the domain spans nodes, or each node alone."""
    out: dict[str, list[str]] = {}
    for node in nodes:
        found = facts.nodes[node]
        out.setdefault(f"rack {found.rack}" if spans_nodes(found) else f"node {node}", []).append(node)
    return [tuple(members) for members in out.values()]


def of_run(facts: GateFacts, nodes: Sequence[str]) -> Domain | None:
    """Return the hardware that a run over these nodes uses; None where its domains are unequal: they have no bound."""
    parts = groups(facts, nodes)
    per_node = {(facts.nodes[node].platform.id, facts.nodes[node].platform.gpus) for node in nodes}
    if len({len(part) for part in parts}) != 1 or len(per_node) != 1:
        return None
    boards = len(parts[0])
    one = node_topology.domain(facts.nodes[nodes[0]], len(parts))
    return replace(one, gpus=one.gpus * boards, boards=boards)


def ranks(facts: GateFacts, nodes: Sequence[str]) -> int:
    """Return how many GPUs take part."""
    return sum(facts.nodes[node].platform.gpus for node in nodes)


def models(facts: GateFacts, nodes: Sequence[str]) -> frozenset[str]:
    """Return the model names of the GPUs, as NVML and CUDA print them."""
    return frozenset(facts.nodes[node].gpu.product_name for node in nodes)


def by_rack(facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return rack -> its nodes."""
    return _by(nodes, [facts.nodes[node].rack for node in nodes])


def by_leaf_group(facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes by the leaf switches that their NICs are cabled to: the scalable unit as built."""
    return _by(
        nodes,
        [
            "+".join(sorted({nic.switch for nic in facts.nodes[node].nics if nic.switch})) or "one fabric"
            for node in nodes
        ],
    )


def _by(nodes: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    out: dict[str, list[str]] = {}
    for node, name in zip(nodes, names, strict=True):
        out.setdefault(name, []).append(node)
    return {name: tuple(members) for name, members in out.items()}
