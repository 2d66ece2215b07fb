"""Peers for the rail checks of role host_roce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_interface
from itertools import islice
from typing import Any

Play = Mapping[str, list[str]]
"""``hosts``: those still in this play; ``known``: other hosts that are known to be up."""


def rail_request(
    interfaces: list[dict[str, Any]], node: str, play: Play, hostvars: Mapping[str, Any], mtu: int, count: int
) -> dict[str, Any]:
    """Return the request for rail_ping.py: for each interface, peers of its rail, in a ring over the play's hosts.

    A rail without another host in the play gets peers among the site's hosts that are known to be up, if there are any.
    In a routed fabric, peers of other subnets are an entry of their own: both must answer. Nodes of another tenant are
    no peers: the fabric keeps them apart.
    """
    ring = sorted(play["hosts"])
    start = ring.index(node) + 1
    peers = [*ring[start:], *ring[: start - 1]]
    known = [name for name in sorted(play["known"]) if name in hostvars and name not in ring]
    rails: list[dict[str, Any]] = []
    for mine in interfaces:
        # Ansible computes a host's variables on access, so no host beyond the last peer is read.
        found = _peers(mine, peers, hostvars, count) or _peers(mine, known, hostvars, count)
        far = _peers(mine, [*peers[len(peers) // 2 :], *known], hostvars, _FAR, far=True) if mine.get("gateway") else []
        entry = {"rail": mine["rail"], "netdev": mine["netdev"]}
        rails += [{**entry, "peers": found}] if found or not far else []
        rails += [{**entry, "peers": far, "far": True}] if far else []
    return {"mtu": mtu, "rails": rails}


_FAR, _READ = 2, 64
"""Peers across the spines, and hosts whose variables are read to find them."""


def _peers(
    mine: dict[str, Any], names: list[str], hostvars: Mapping[str, Any], count: int, *, far: bool = False
) -> list[dict[str, str]]:
    """Return peers of a rail; in a routed fabric those of the own subnet, or with ``far`` of the others."""
    if not mine.get("gateway"):
        return list(islice(_of_rail(mine, names, hostvars), count))
    network = ip_interface(mine["address"]).network
    found = _of_rail(mine, names[:_READ], hostvars)
    return list(islice((peer for peer in found if (ip_interface(peer["address"]).ip not in network) is far), count))


def _of_rail(mine: dict[str, Any], peers: list[str], hostvars: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    own = (mine["rail"], mine.get("tenant"))
    found = (
        (peer, theirs)
        for peer in peers
        for theirs in hostvars[peer]["host_roce_interfaces"]
        if (theirs["rail"], theirs.get("tenant")) == own
    )
    return ({"node": peer, "address": str(theirs["address"]).split("/")[0]} for peer, theirs in found)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {"rackready_rail_request": rail_request}
