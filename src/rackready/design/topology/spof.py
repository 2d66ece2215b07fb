"""Single points of failure: the loss with any one switch in numbers, and articulation points."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter

from rackready.design.topology.graph import Adjacency
from rackready.design.topology.types import EndpointLink, Loss, TopoSwitch


def losses(
    switches: Sequence[TopoSwitch],
    endpoints: Sequence[EndpointLink],
    up: Adjacency,
    down: Adjacency,
    devices: Collection[str] = (),
) -> tuple[Loss, ...]:
    """Return the losses with one switch, like switches together; those that cut off a rail or nodes come first.

    ``up`` and ``down`` are the trunks as ``graph`` has them. ``devices``: endpoints that are not nodes (UFM hosts).
    """
    found = (
        _leafs(switches, endpoints, frozenset(devices))
        + _uppers(switches, up)
        + _articulations(switches, endpoints, up, down)
    )
    return tuple(sorted(found, key=lambda loss: not loss.cuts_off))


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} switches), each"


def _leafs(switches: Sequence[TopoSwitch], endpoints: Sequence[EndpointLink], devices: frozenset[str]) -> list[Loss]:
    """Group leafs by the loss of their nodes: links, and rails that no other leaf carries for them."""
    links = Counter(map(itemgetter(0), endpoints))
    rails = Counter(map(itemgetter(0, 1), endpoints))
    nics = Counter(map(itemgetter(0), rails))
    rows: dict[str, list[EndpointLink]] = defaultdict(list)
    for link in endpoints:
        rows[link[3]].append(link)
    groups: dict[tuple[int, int, int, int, int, int], list[str]] = defaultdict(list)
    for switch in switches:
        if switch.tier == "leaf" and rows[switch.name]:
            lost = Counter(map(itemgetter(0), rows[switch.name]))
            gone = Counter([node for node, nic, _, _, _ in rows[switch.name] if rails[node, nic] == 1])
            # The loss of most nodes. A device among them with one cable is named by the articulation points.
            usual = Counter([(lost[node], links[node], gone[node], nics[node]) for node in lost]).most_common(1)[0][0]
            beside = len(devices & lost.keys())
            groups[len(lost) - beside, beside, *usual].append(switch.name)
    return [_leaf_loss(names, *key) for key, names in groups.items()]


def counted(nodes: int, devices: int) -> str:
    """Return the number of nodes and of other devices in words."""
    beside = f"{devices} device{'s' if devices > 1 else ''}" if devices else ""
    return " and ".join(
        part for part in (f"{nodes} node{'s' if nodes != 1 else ''}" if nodes or not devices else "", beside) if part
    )


def _leaf_loss(names: list[str], nodes: int, devices: int, lost: int, had: int, gone: int, rails: int) -> Loss:  # noqa: PLR0913, PLR0917 - the key of a group
    share, who = 100 * lost / had, counted(nodes, devices)
    if lost == had:
        text = f"{_span(names)}: the only path of {who}: its loss cuts them off (100 % of their links)."
    elif gone:
        what = "a rail" if gone == 1 else f"{gone} rails"
        text = (
            f"{_span(names)}: the only leaf of {what} for {who}: after its loss they keep {rails - gone} of "
            f"{rails} rails ({share:.1f} % lost)."
        )
    else:
        text = f"{_span(names)}: {who} keep all rails and {had - lost} of {had} links ({share:.1f} % lost)."
    return Loss(tuple(names), text, nodes, round(share, 2), cuts_off=bool(gone) or lost == had)


def _uppers(switches: Sequence[TopoSwitch], up: Adjacency) -> list[Loss]:
    """Group spines by the spines of their pod, cores by those of their plane: one takes its share of the capacity."""
    count = Counter((switch.tier, switch.plane, switch.pod) for switch in switches)
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for switch in switches:
        if switch.tier != "leaf":
            groups[switch.tier, count[switch.tier, switch.plane, switch.pod]].append(switch.name)
    reach = Counter(upper for row in up.values() for upper in row)
    out = []
    for (tier, beside), names in groups.items():
        if beside == 1:
            continue  # the only one: an articulation point, if it separates anything
        share, of = 100 / beside, "a pod's leafs" if tier == "spine" else "all pods"
        below = max(reach[name] for name in names)
        text = (
            f"{_span(names)}: one of {beside} {tier}s between {of}: its loss takes {share:.2f} % of that capacity "
            f"from {below} switches below."
        )
        out.append(Loss(tuple(names), text, 0, round(share, 2), cuts_off=False))
    return out


def _articulations(
    switches: Sequence[TopoSwitch], endpoints: Iterable[EndpointLink], up: Adjacency, down: Adjacency
) -> list[Loss]:
    """Return switches that separate the leafs of a plane, and leafs that are the only path of single devices."""
    homes: dict[str, set[str]] = defaultdict(set)
    for node, _, _, switch, _ in endpoints:
        homes[node].add(switch)
    beside = Counter(leaf for leafs in homes.values() for leaf in leafs)
    single: dict[str, list[str]] = defaultdict(list)
    for node, leafs in homes.items():
        if len(leafs) == 1:
            single[next(iter(leafs))].append(node)
    out = []
    for leaf, nodes in sorted(single.items()):
        # If all nodes of a leaf have only that leaf, the line of the leafs reports it already.
        if len(nodes) < beside[leaf]:
            text = f"{leaf}: articulation point: {', '.join(sorted(nodes))} - no other leaf: its loss cuts them off."
            out.append(Loss((leaf,), text, len(nodes), 100.0, cuts_off=True))
    return out + [
        Loss(
            (name,),
            f"{name}: articulation point: its loss separates the leafs into {parts} parts.",
            0,
            100.0,
            cuts_off=True,
        )
        for name, parts in sorted(_parting(switches, up, down).items())
    ]


def _parting(switches: Sequence[TopoSwitch], up: Adjacency, down: Adjacency) -> dict[str, int]:
    """Return switches whose loss separates leafs of their plane: switch -> parts. Nodes forward no traffic.

    A switch with a twin (the same neighbours) is no articulation point, since every path through it has one through the
    twin. So two of each kind of twins are enough to find the others, and the graph is small however large the fabric.
    """
    import networkx as nx  # noqa: PLC0415 - a quarter of a second, which only a fabric that is proved pays

    twins: dict[frozenset[str], list[TopoSwitch]] = defaultdict(list)
    for switch in switches:
        twins[frozenset((*up.get(switch.name, ()), *down.get(switch.name, ())))].append(switch)
    kept = {switch.name: switch for alike in twins.values() for switch in alike[:2]}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(kept)
    graph.add_edges_from((name, upper) for name in kept for upper in up.get(name, ()) if upper in kept)
    found = {name: _parts(switches, up, kept[name]) for name in nx.articulation_points(graph)}
    return {name: parts for name, parts in found.items() if parts > 1}


def _parts(switches: Sequence[TopoSwitch], up: Adjacency, lost: TopoSwitch) -> int:
    """Return the number of parts of the leafs of a plane without one switch."""
    import networkx as nx  # noqa: PLC0415 - a quarter of a second, which only a fabric that is proved pays

    tiers = {switch.name: switch.tier for switch in switches if switch.plane == lost.plane and switch.name != lost.name}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(tiers)
    graph.add_edges_from((lower, upper) for lower in tiers for upper in up.get(lower, ()) if upper in tiers)
    return sum(any(tiers[name] == "leaf" for name in part) for part in nx.connected_components(graph))
