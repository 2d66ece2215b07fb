"""The waves of a deploy: a canary, then waves that stay within one failure domain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rackready.design.wiring import cables
from rackready.model.site import Site

Waves = tuple[tuple[str, ...], ...]


def waves_of(site: Site, nodes: Sequence[str]) -> Waves:
    """Return the nodes in waves, as `campaign` of the site file cuts them.

    The canary, the first ``canary`` nodes of the first domain, goes alone. Each later wave has at most ``wave_size``
    nodes, of one rack or of the same leaf switches where ``wave_by`` says so. Each node is in exactly one wave. The
    waves of a domain are of nearly one size: a last node alone would have no partner in gates of several nodes.
    """
    limits = site.campaign
    out: list[tuple[str, ...]] = []
    for place, group in enumerate(_domains(site, nodes)):
        first = min(limits.canary, len(group)) if place == 0 else 0
        out += [group[:first]] if first else []
        out += _even(group[first:], limits.wave_size)
    return tuple(out)


def _even(nodes: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    count = max(-(-len(nodes) // size), 1)
    ends = [len(nodes) * place // count for place in range(count + 1)]
    return [nodes[begin:end] for begin, end in pairwise(ends) if end > begin]


def cut(nodes: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    """Return nodes in pieces of a size; the last may be smaller."""
    return [nodes[start : start + size] for start in range(0, len(nodes), size)]


def leafs_of(site: Site) -> dict[str, frozenset[str]]:
    """Return node -> the leaf switches that its network cards are cabled to."""
    found: dict[str, set[str]] = {}
    for (node, _), (switch, _) in cables(site).items():
        found.setdefault(node, set()).add(switch)
    return {node: frozenset(names) for node, names in found.items()}


def _domains(site: Site, nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the nodes by failure domain, in the order in which the site file names their first nodes."""
    by = site.campaign.wave_by
    if by == "site":
        return [tuple(nodes)] if nodes else []
    leafs = leafs_of(site) if by == "leaf" else {}
    found: dict[object, list[str]] = {}
    for node in nodes:
        domain: object = leafs.get(node, frozenset()) if by == "leaf" else site.rack_of(node).name
        found.setdefault(domain, []).append(node)
    return [tuple(names) for names in found.values()]
