"""Order in which switches are changed: one first, then waves that leave every node and every leaf a path."""

from __future__ import annotations

from collections.abc import Iterable

from rackready.design.wiring import cables, topology_fabric, trunk_ends
from rackready.model.site import Site

_TIERS = ("core", "spine", "leaf")
"""From the top down: what a leaf announces needs a way up first."""


def with_uppers(site: Site, names: Iterable[str]) -> list[str]:
    """Return these switches and all above them, by trunks of the topology; sorted."""
    tiers = _tiers(site)
    found, new = set[str](), set(names)
    while new:
        found |= new
        ups = {end.peer for name in new for end in trunk_ends(site).get(name, []) if _above(tiers, end.peer, name)}
        new = ups - found
    return sorted(found)


def lower_leafs(site: Site, name: str) -> set[str]:
    """Return the leafs whose traffic can pass a switch; the switch itself if it is one."""
    tiers = _tiers(site)
    found, new = set[str](), {name}
    while new:
        found |= new
        new = {end.peer for one in new for end in trunk_ends(site).get(one, []) if _above(tiers, one, end.peer)} - found
    return {one for one in found if tiers.get(one, "leaf") == "leaf"}


def waves(site: Site, names: Iterable[str], at_once: int) -> list[list[str]]:
    """Return switches in waves, in order.

    The first of each tier is alone. Switches of a wave are of one tier, at most ``at_once``, and no two share a node
    (leafs) or a switch below (spines, cores): each node keeps a leaf, and each leaf a spine, that is not in the wave.
    """
    tiers, below = _tiers(site), _below(site)
    out: list[list[str]] = []
    for tier in _TIERS:
        left = sorted(name for name in names if tiers.get(name, "leaf") == tier)
        if left:
            out.append([left.pop(0)])
        while left:
            wave = _next(left, below, at_once)
            left = [name for name in left if name not in wave]
            out.append(wave)
    return out


def _next(left: list[str], below: dict[str, set[str]], at_once: int) -> list[str]:
    wave: list[str] = []
    taken = set[str]()
    for name in left:
        if len(wave) < at_once and not taken & below.get(name, set()):
            wave.append(name)
            taken |= below.get(name, set())
    return wave


def _tiers(site: Site) -> dict[str, str]:
    return site.remember("tiers", lambda: {switch.name: switch.tier for switch in topology_fabric(site).switches})


def _above(tiers: dict[str, str], upper: str, lower: str) -> bool:
    return _TIERS.index(tiers[upper]) < _TIERS.index(tiers[lower])


def _below(site: Site) -> dict[str, set[str]]:
    """Return switch -> what would lose a path with it: the nodes at a leaf, the switches below a spine or core."""
    out: dict[str, set[str]] = {}
    for (node, _), (switch, _) in cables(site).items():
        out.setdefault(switch, set()).add(node)
    tiers = _tiers(site)
    for name, ends in trunk_ends(site).items():
        out.setdefault(name, set()).update(end.peer for end in ends if _above(tiers, name, end.peer))
    return out
