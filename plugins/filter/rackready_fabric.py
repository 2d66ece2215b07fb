"""Peers for the rail checks of role host_roce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

Play = Mapping[str, list[str]]
"""``hosts``: those still in this play; ``known``: other hosts that are known to be up."""


def rail_request(
    interfaces: list[dict[str, Any]], node: str, play: Play, hostvars: Mapping[str, Any], mtu: int, count: int
) -> dict[str, Any]:
    """Return the request for rail_ping.py: for each interface, peers of its rail, in a ring over the play's hosts.

    A rail without another host in the play gets peers among the site's hosts that are known to be up, if there are any.
    """
    ring = sorted(play["hosts"])
    start = ring.index(node) + 1
    peers = [*ring[start:], *ring[: start - 1]]
    known = [name for name in sorted(play["known"]) if name in hostvars and name not in ring]
    rails = []
    for mine in interfaces:
        # Ansible computes a host's variables on access, so no host beyond the last peer is read.
        found = list(islice(_of_rail(mine["rail"], peers, hostvars), count)) or list(
            islice(_of_rail(mine["rail"], known, hostvars), count)
        )
        rails.append({"rail": mine["rail"], "netdev": mine["netdev"], "peers": found})
    return {"mtu": mtu, "rails": rails}


def _of_rail(rail: int, peers: list[str], hostvars: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    found = (
        (peer, theirs) for peer in peers for theirs in hostvars[peer]["host_roce_interfaces"] if theirs["rail"] == rail
    )
    return ({"node": peer, "address": str(theirs["address"]).split("/")[0]} for peer, theirs in found)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {"rackready_rail_request": rail_request}
