"""Figures of the fabrics beside the compute fabric and the node ports that they serve, from the cables of a plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rackready.design.other_fabrics import other_layout
from rackready.design.plan import Laid

STATES = ("cabled", "unused", "not_cabled")


def other_fabrics(plan: Laid) -> list[dict[str, Any]]:
    """Return each fabric with its switches, links and highest oversubscription of a leaf.

    Oversubscription is capacity down to capacity up, Gb/s.
    """
    if not plan.site.other_fabrics:
        return []
    layout = other_layout(plan.site)
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    links: Counter[str] = Counter()
    # Links between the two leafs of a pair do not count as uplinks.
    every = [leafs for groups in layout.groups.values() for leafs in groups.values()]
    pairs = {leaf: leafs for leafs in every for leaf in leafs}
    for cable in plan.cables.cables:
        run = cable.run
        if run.kind in {"in_band", "storage", "oob"}:
            down[run.b.device.name] += run.rate
            links[run.b.device.name] += 1
        elif run.kind.endswith("_trunk") and run.b.device.name not in pairs.get(run.a.device.name, ()):
            up[run.a.device.name] += run.rate
    out: list[dict[str, Any]] = []
    for fabric in plan.site.other_fabrics:
        leafs = [switch.name for switch in layout.of(fabric.name, "leaf")]
        rising = {leaf: up[leaf] if fabric.uplinks else 0 for leaf in leafs}
        fullest = max(
            leafs, key=lambda leaf: (down[leaf] / rising[leaf] if rising[leaf] else down[leaf], leaf), default=""
        )
        out.append(
            {
                "name": fabric.name,
                "network": fabric.role,
                "leafs": len(leafs),
                "spines": fabric.spines,
                "links": sum(links[leaf] for leaf in leafs),
                "uplinks": fabric.uplinks * len(leafs),
                "fullest_leaf": {"name": fullest, "down_gbps": down[fullest], "up_gbps": rising.get(fullest, 0)},
            }
        )
    return out


def node_ports(plan: Laid) -> dict[str, dict[str, int]]:
    """Return the number of node ports outside the compute fabric: cabled, unused on purpose, not cabled; by network."""
    out: dict[str, dict[str, int]] = {}
    for port, count in plan.cables.node_ports:
        out.setdefault(port.network, dict.fromkeys(STATES, 0))[port.state] += count
    return dict(sorted(out.items()))
