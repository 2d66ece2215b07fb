"""What gates know of a site: facts of its nodes, and of what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackready.design.facts import node_facts
from rackready.gates.base import GateFacts, Passed
from rackready.model.site import Site


def site_facts(site: Site, nodes: Sequence[str], passed: Mapping[tuple[str, str], Passed] | None = None) -> GateFacts:
    """Return what gates know of these nodes of a site. ``passed``: (gate, node) -> its last pass, for gates that judge what is new."""
    return GateFacts(
        nodes={name: node_facts(site, name) for name in nodes},
        fabric=site.fabric,
        fleet=len(site.nodes()),
        launcher=site.gates.launcher,
        passed=passed or {},
        devices=tuple(site.devices),
        liquid=frozenset(name for name in nodes if (cooling := site.rack_of(name).cooling) is not None and cooling.kind != "air"),
    )
