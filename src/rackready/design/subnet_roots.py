"""Roots of up/down routing: the switches of a topology's top tier, which opensm is told by their GUIDs.

Left alone, opensm takes every switch from which one hop count holds over 90 % of all adapters and no other one over 5 %
(linux-rdma/opensm opensm/osm_ucast_updn.c, updn_find_root_nodes_by_min_hop): a leaf with few of the adapters is a root
then, too. In a fabric of roots alone, leafs lose each other with some of their uplinks, and opensm says SUBNET UP.
"""

from __future__ import annotations

from collections import Counter

from rackready.design.names import listed
from rackready.design.wiring import topology_fabric
from rackready.model.problems import Message
from rackready.model.site import Site

_MOST_LEAFS = 18
"""A leaf with fewer than one in 18 adapters (5.6 %) may be taken for a root: 5 %, less those of a few nodes that are
off. Judgement."""
_SHOWN = 5


def root_names(site: Site) -> list[str]:
    """Return the switches to which others lead and that lead to none; empty without trunks, or if opensm has no use.

    Of upstream opensm's engines ``updn`` reads them. ftree does, too, and finds them by itself (osm_ucast_ftree.c).
    """
    own = site.fabric.infiniband
    if own is None or own.subnet_manager != "opensm" or own.routing_engine != "updn":
        return []
    trunks = topology_fabric(site).trunks
    return sorted({trunk.upper for trunk in trunks} - {trunk.lower for trunk in trunks})


def root_guids(site: Site) -> list[str]:
    """Return the GUIDs of all roots, 0x and 16 hex digits; empty unless the site gives that of each.

    With some of them, ways over the others would be lost.
    """
    known = {switch.name: switch.guid for switch in site.switches if switch.guid is not None}
    names = root_names(site)
    return sorted(known[name] for name in names) if known.keys() >= set(names) else []


def root_problems(site: Site) -> list[Message]:
    """Return the roots that opensm must be told and whose GUIDs the site does not give."""
    names = root_names(site)
    if not names or root_guids(site) or not _mistaken(site):
        return []
    known = {switch.name for switch in site.switches if switch.guid is not None}
    lost = [name for name in names if name not in known]
    step = (
        "Add each to switches, with its guid (`ibnetdiscover -S` on a node prints them, before opensm runs, too), "
        "or choose another routing_engine. opensm takes leafs with few of the adapters for roots."
    )
    return [Message(listed(lost, _SHOWN), "guid", "known: a root of updn", "not given", next_step=step)]


def _mistaken(site: Site) -> bool:
    """Return whether opensm may take a leaf for a root."""
    total: Counter[int] = Counter()
    own: Counter[tuple[int, str]] = Counter()
    for link in topology_fabric(site).endpoints:
        total[link.plane] += 1
        own[link.plane, link.switch] += 1
    return any(count * _MOST_LEAFS < total[plane] for (plane, _), count in own.items())
