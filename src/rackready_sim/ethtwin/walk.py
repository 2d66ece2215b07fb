"""Routes of the twin: the kernels' tables, walked from switch to switch over every equal path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rackready_sim.ethtwin.underlay import Router

Tables = Mapping[str, Mapping[str, frozenset[str]]]
"""Switch -> prefix -> interfaces of its route; "" is the switch's own address."""


def pairs(routers: Mapping[str, Router], *, leafs: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (switch, owner, prefix) of every pair that must reach, of all switches or of ``leafs`` alone.

    Switches of one AS never learn each other's routes, by design (RFC 7938, 5.2.1): such pairs are left out.
    """
    for owner, far in routers.items():
        for name, router in routers.items():
            if leafs and (router.tier != "leaf" or far.tier != "leaf"):
                continue
            if router.routing.asn != far.routing.asn:
                yield from ((name, owner, prefix) for prefix in far.prefixes)


def lost_pairs(routers: Mapping[str, Router], tables: Tables, *, leafs: bool) -> list[tuple[str, str, str]]:
    """Return the pairs of which at least one equal path does not end at the owner."""
    known: dict[str, dict[str, bool]] = {}
    hops = {(name, port.interface): port.peer for name, router in routers.items() for port in router.ports}
    out = []
    for name, owner, prefix in pairs(routers, leafs=leafs):
        if not _reaches(name, owner, prefix, tables, hops, known.setdefault(prefix, {})):
            out.append((name, owner, prefix))
    return out


def _reaches(
    name: str,
    owner: str,
    prefix: str,
    tables: Tables,
    hops: Mapping[tuple[str, str], str],
    known: dict[str, bool],
) -> bool:
    """Return whether all paths of a switch to a prefix end at its owner. A loop counts as lost."""
    if name in known:
        return known[name]
    devices = tables[name].get(prefix, frozenset())
    if "" in devices or not devices:
        known[name] = bool(devices) and name == owner
        return known[name]
    known[name] = False
    known[name] = all(
        (name, device) in hops and _reaches(hops[name, device], owner, prefix, tables, hops, known)
        for device in devices
    )
    return known[name]


def spread(routers: Mapping[str, Router], tables: Tables) -> dict[str, tuple[int, int]]:
    """Return leaf -> the fewest and most equal paths that it has to another leaf's prefixes."""
    found: dict[str, list[int]] = {}
    for name, _, prefix in pairs(routers, leafs=True):
        found.setdefault(name, []).append(len(tables[name].get(prefix, ())))
    return {name: (min(counts), max(counts)) for name, counts in found.items()}
