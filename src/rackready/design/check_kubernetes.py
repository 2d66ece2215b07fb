"""Checks of a handover to Kubernetes: every node has a name of its own in the cluster."""

from __future__ import annotations

from rackready.design.check_names import Loc, unknown
from rackready.design.flaw import Flaw, Subject
from rackready.model.kubernetes import KubernetesHandover

_HERE: Loc = ("handover", "node_names")
_LONGEST = 253
"""Characters of a Node's name: an RFC 1123 subdomain."""


def check_kubernetes(subject: Subject) -> list[Flaw]:
    """Return names of nodes that do not exist, that two nodes share, or that are too long for Kubernetes."""
    handover = subject.site.handover
    if not isinstance(handover, KubernetesHandover):
        return []
    nodes = [node.name for node in subject.site.nodes()]
    out: list[Flaw] = []
    for node in handover.node_names:
        out += unknown(node, nodes, (*_HERE, node), "node", subject.lost.of("nodes"))
    owner: dict[str, str] = {}
    for node in nodes:
        name = handover.node_name(node)
        before = owner.setdefault(name, node)
        loc = (*_HERE, node) if node in handover.node_names else ("handover", "node_suffix")
        if before != node:
            # only a name of its own can be equal to another: the suffix is the same for all
            loc = (*_HERE, node if node in handover.node_names else before)
            out.append(Flaw(loc, f"{before} and {node} have the name {name} in Kubernetes.", "Give each its own."))
        if len(name) > _LONGEST:
            expected, actual = f"at most {_LONGEST} characters", f"{len(name)}"
            out.append(Flaw.of(loc, f"name of {node} in Kubernetes", "Shorten it.", expected=expected, actual=actual))
    return out
