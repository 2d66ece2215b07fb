"""Readings for role host_roce: which peers a rail is proven against, and what a script on the node found, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

Play = Mapping[str, list[str]]
"""``hosts`` of this play that are still in it, and those ``known`` to be up beside them."""


def rail_request(
    interfaces: list[dict[str, Any]], node: str, play: Play, hostvars: Mapping[str, Any], mtu: int, count: int
) -> dict[str, Any]:
    """Return what rail_ping.py is asked: for each interface, its peers of the same rail on the next hosts of the play, in a ring.

    A rail on which the play has no other host is proven against hosts of the site that are known to be up, where there
    are any.
    """
    ring = sorted(play["hosts"])
    start = ring.index(node) + 1
    peers = [*ring[start:], *ring[: start - 1]]
    known = [name for name in sorted(play["known"]) if name in hostvars and name not in ring]
    rails = []
    for mine in interfaces:
        # Ansible works a host's variables out when they are asked for: no host beyond the last peer is looked up.
        found = list(islice(_of_rail(mine["rail"], peers, hostvars), count)) or list(
            islice(_of_rail(mine["rail"], known, hostvars), count)
        )
        rails.append({"rail": mine["rail"], "netdev": mine["netdev"], "peers": found})
    return {"mtu": mtu, "rails": rails}


def rails_unmeasured(result: Mapping[str, Any]) -> list[str]:
    """Return, in words, the rails that rail_ping.py could not measure; an unreadable answer is the check's to refuse."""
    return [str(text) for text in _document(result).get("unmeasured", [])]


def _document(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a script printed, empty when it is no JSON."""
    try:
        return dict(json.loads(result.get("stdout") or "{}"))
    except ValueError:
        return {}


def _of_rail(rail: int, peers: list[str], hostvars: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    found = (
        (peer, theirs) for peer in peers for theirs in hostvars[peer]["host_roce_interfaces"] if theirs["rail"] == rail
    )
    return ({"node": peer, "address": str(theirs["address"]).split("/")[0]} for peer, theirs in found)


def roce_bad(result: Mapping[str, Any]) -> list[str]:
    """Return the interfaces that roce.py found not to be as wanted; a reading that failed says nothing."""
    return [str(item["netdev"]) for item in _document(result).get("interfaces", []) if item["problems"]]


def roce_words(result: Mapping[str, Any], side: str) -> str:
    """Return what a script's document says is wrong, the ``expected`` or the ``actual`` of every problem."""
    try:
        document = json.loads(result.get("stdout") or "")
    except ValueError:
        said = result.get("stderr") or result.get("stdout") or "no output"
        return "a reading of the interfaces" if side == "expected" else str(said).strip()
    flat = [("", problem) for problem in document.get("problems", [])] + _problems(document)
    return "; ".join(f"{where}{problem['what']} {problem[side]}" for where, problem in flat)


def roce_differs(result: Mapping[str, Any]) -> list[str]:
    """Return what roce.py found otherwise than wanted, an entry a setting; a reading that failed says nothing."""
    return [
        f"{where}{problem['what']} {problem['actual']}, wanted {problem['expected']}"
        for where, problem in _problems(_document(result))
    ]


def _problems(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{item['netdev']} ", problem) for item in document.get("interfaces", []) for problem in item["problems"]]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        roce = {
            "rackready_roce_words": roce_words,
            "rackready_roce_bad": roce_bad,
            "rackready_roce_differs": roce_differs,
        }
        return {"rackready_rail_request": rail_request, "rackready_rails_unmeasured": rails_unmeasured, **roce}
