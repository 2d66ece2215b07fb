"""The fabric as UFM sees it, in the form of an ibnetdiscover reading: the same judges compare it with the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackready.drivers.ib.discover import FarPort, IbFabric, IbNode, IbPort
from rackready.drivers.ufm.errors import unknown
from rackready.drivers.ufm.read import LINKED, UfmPort


def fabric_of(ports: Mapping[str, UfmPort], links: Sequence[tuple[str, str]]) -> IbFabric:
    """Return the fabric of UFM's ports and links. A link to a port that UFM does not list is left out.

    Such a link leads to the aggregation node inside a switch, and is no cable; a planned cable would be missing.
    Raises UfmAnswerError where both do not agree: one of them is cut off, or the fabric changed meanwhile.
    """
    known = [link for link in links if link[0] in ports and link[1] in ports]
    if any(link[0] not in ports and link[1] not in ports for link in links):
        raise unknown("resources/links", "ports that are listed", "a link with two ports that are not")
    far = {end: other for link in known for end, other in (link, link[::-1])}
    if len(far) != 2 * len(known):
        raise unknown("resources/links", "one link for each port", "a port with several")
    _agree(ports, far)
    guids = _node_guids(ports)
    sizes: dict[int, int] = {}
    for port in ports.values():
        sizes[guids[port.name]] = max(sizes.get(guids[port.name], 0), port.number)
    nodes: dict[int, IbNode] = {}
    for port in ports.values():
        guid = guids[port.name]
        # A switch's description names the port; its system has the name.
        description = port.system_name if port.kind == "switch" else port.description
        lid = port.lid if port.kind == "switch" else 0
        node = nodes.setdefault(guid, IbNode(port.kind, guid, description, sizes[guid], lid))
        if port.name in far:
            other = ports[far[port.name]]
            node.ports[port.number] = IbPort(
                port.number,
                FarPort(guids[other.name], other.number),
                port.width,
                port.speed,
                0 if port.kind == "switch" else port.guid,
                port.lid,
            )
    return IbFabric(nodes)


def _agree(ports: Mapping[str, UfmPort], far: Mapping[str, str]) -> None:
    for name, other in far.items():
        port = ports[name]
        if port.physical != LINKED:
            raise unknown("resources/links", "ports with a link at both ends", f"{name} of the link to {other}")
        if port.peer and port.peer != other:
            raise unknown("resources/ports", f"peer {other} of {name}, as its link says", port.peer)
    for port in ports.values():
        if port.physical == LINKED and port.peer in ports and port.name not in far:
            raise unknown("resources/links", f"the link of {port.name} to {port.peer}", "none")


def _node_guids(ports: Mapping[str, UfmPort]) -> dict[str, int]:
    """Return port name -> GUID of its node: of an adapter, whose own GUID UFM does not tell, that of its first port."""
    first: dict[tuple[str, str], int] = {}
    for port in ports.values():
        if port.kind != "switch":
            key = (port.system, port.description)
            first[key] = min(first.get(key, port.guid), port.guid)
    return {
        port.name: port.guid if port.kind == "switch" else first[port.system, port.description]
        for port in ports.values()
    }
