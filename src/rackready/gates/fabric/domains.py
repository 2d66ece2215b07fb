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
    """Return the nodes by NVLink domain (``name``), or each node alone where its NVLinks end inside it."""
    out: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        found = facts.nodes[node]
        out.setdefault(name(found) if spans_nodes(found) else ("node", node), []).append(node)
    return [tuple(members) for members in out.values()]


def name(facts: NodeFacts) -> tuple[str, str]:
    """Return kind and name of a node's NVLink domain: that of the site file (nvlink_domains), else its rack."""
    return ("domain", facts.domain) if facts.domain else ("rack", facts.rack)


def size(facts: NodeFacts) -> tuple[int, str]:
    """Return how many nodes a node's NVLink domain has, and the source of that number."""
    if facts.domain:
        return facts.domain_nodes, f"site file: nodes of NVLink domain {facts.domain}"
    platform = facts.platform
    whole = (platform.nvlink_domain or platform.gpus) // platform.gpus
    return whole, "platform profile: NVLink domain / GPUs of a server"


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
