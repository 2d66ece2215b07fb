"""The summary of one node of a report, which stays in memory for every node of a site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackready.evidence.node_report import Document
from rackready.model.outcome import CONTINUES


@dataclass(frozen=True, slots=True)
class NodePage:
    """A node. ``document``: what the page may show of it; ``pending``: gates whose pass no bound could judge."""

    name: str
    state: str
    reason: str
    outcome: str
    counts: Mapping[str, Sequence[int]]
    gates: Sequence[tuple[str, str]]
    pending: Sequence[str]
    document: Document | None


def node_page(node: Document, *, small: bool) -> NodePage:
    """Return the summary of a node's document for the page."""
    gates = [(str(item["gate"]), str(item["outcome"])) for item in node["gates"]]
    pending = [str(item["gate"]) for item in node["gates"] if item["outcome"] in CONTINUES and item["fleet_pending"]]
    document = node if small or node["outcome"] not in CONTINUES else None
    return NodePage(
        node["name"],
        node["state"],
        node["reason"],
        node["outcome"],
        node["coverage"]["counts"],
        gates,
        pending,
        document,
    )
