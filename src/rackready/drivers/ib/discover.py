"""Reads ibnetdiscover: nodes, ports and links of one fabric.

Shapes: rdma-core infiniband-diags/ibnetdiscover.c (out_ids, out_switch, out_switch_port, out_ca, out_ca_port), with
``-g`` and ``-f`` too. Anything else is refused, and so is a text that was cut off: each link has two ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rackready.drivers.ib.text import LANE_GBPS, IbTextError, guid_of, unknown

_TOOL = "ibnetdiscover"
NodeType = Literal["switch", "ca", "router"]
_TYPES: dict[str, NodeType] = {"Switch": "switch", "Ca": "ca", "Rt": "router"}
_LETTER = {"S": "switch", "H": "ca", "R": "router"}

_IDS = re.compile(r"(?:vendid|devid|sysimgguid)=0x[0-9a-f]+(?:\s+# Chassis .*)?$|# .*|#$|Chassis \d+ |Hostname: ")
_GUID = re.compile(r"(switch|ca|rt)guid=0x([0-9a-f]+)(?:\([0-9a-f]+\))?(?:\s+#.*)?$")
_HEAD = re.compile(
    r'(?P<type>Switch|Ca|Rt)\s+(?P<ports>\d+)\s+"(?P<letter>[SHR])-(?P<guid>[0-9a-f]{16})"\s+# "(?P<name>.*)"'
    r"(?P<rest>(?: (?:enhanced|base) port 0 lid (?P<lid>\d+) lmc \d+)?)(?: \(scp\))?$"
)
_PORT = re.compile(
    r"\[(?P<port>\d+)\](?:\[ext \d+\])?(?:\((?P<own>[0-9a-f]+)\))?\s+"
    r'"(?P<letter>[SHR])-(?P<guid>[0-9a-f]{16})"\[(?P<far>\d+)\](?:\[ext \d+\])?\s*(?:\((?P<far_guid>[0-9a-f]+)\))?\s+'
    r'# (?:lid (?P<lid>\d+) lmc \d+ )?"(?P<name>.*)" lid (?P<far_lid>\d+) (?P<width>\d+)x(?P<speed>[A-Z0-9]+)'
    r"(?: s=\d+ w=\d+ v=\d+(?: e=\d+)?)?(?: slot \d+)?(?: \(scp\))?$"
)


class FarPort(NamedTuple):
    """The far end of a link."""

    node: int
    """GUID of its node."""
    port: int


@dataclass(frozen=True, slots=True)
class IbPort:
    """One port with a link. ``guid``: port GUID, 0 for a switch; ``width``: lanes; ``speed``: name, ``NDR``."""

    number: int
    far: FarPort
    width: int
    speed: str
    guid: int = 0
    lid: int = 0

    @property
    def rate(self) -> int:
        """Return the data rate, Gb/s, rounded down: 400 for 4xNDR."""
        return int(self.width * LANE_GBPS[self.speed])

    @property
    def words(self) -> str:
        """Return width and speed as the tool prints them."""
        return f"{self.width}x{self.speed}"


@dataclass(frozen=True, slots=True)
class IbNode:
    """One switch, channel adapter or router. ``lid``: of a switch; 0 for others, whose ports have one each."""

    type: NodeType
    guid: int
    description: str
    size: int
    """Number of its ports, those without a link included."""
    lid: int = 0
    ports: dict[int, IbPort] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IbFabric:
    """All nodes that the discovery reached, by GUID."""

    nodes: dict[int, IbNode]

    def links(self) -> list[tuple[IbNode, IbPort, IbNode, IbPort]]:
        """Return every link once: the end of the smaller (GUID, port) first."""
        out = []
        for node in self.nodes.values():
            for port in node.ports.values():
                if (node.guid, port.number) < port.far:
                    far = self.nodes[port.far.node]
                    out.append((node, port, far, far.ports[port.far.port]))
        return out


def read_ibnetdiscover(text: str) -> IbFabric:
    """Return the fabric of an ibnetdiscover text.

    Raises IbTextError for an unknown line, a node given twice, a link with one end only, or a text without links.
    """
    nodes: dict[int, IbNode] = {}
    node: IbNode | None = None
    announced = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip()
        if not line:
            node = None
        elif found := _GUID.match(line):
            announced = guid_of(found[2])
        elif line[0] == "[":
            _add_port(node, number, line)
        elif found := _HEAD.match(line):
            node = _node(found, number, line, announced)
            if nodes.setdefault(node.guid, node) is not node:
                raise unknown(_TOOL, number, line, "each node once")
        elif not _IDS.match(line):
            raise unknown(_TOOL, number, line, "a line of a switch, channel adapter or router")
    return _whole(IbFabric(nodes))


def _node(found: re.Match[str], number: int, line: str, announced: int) -> IbNode:
    guid, kind = guid_of(found["guid"]), _TYPES[found["type"]]
    if guid != announced or _LETTER[found["letter"]] != kind:
        raise unknown(_TOOL, number, line, f"the node of GUID {announced:#x}, as its guid line says")
    return IbNode(kind, guid, found["name"], int(found["ports"]), int(found["lid"] or 0))


def _add_port(node: IbNode | None, number: int, line: str) -> None:
    found = _PORT.match(line)
    if found is None or node is None:
        raise unknown(_TOOL, number, line, "a port below its node, with its far end, width and speed")
    if found["speed"] not in LANE_GBPS:
        raise unknown(_TOOL, number, line, f"one of the speeds {', '.join(LANE_GBPS)}")
    far = FarPort(guid_of(found["guid"]), int(found["far"]))
    own, lid = guid_of(found["own"] or "0"), int(found["lid"] or 0)
    port = IbPort(int(found["port"]), far, int(found["width"]), found["speed"], own, lid)
    if node.ports.setdefault(port.number, port) is not port or not 1 <= port.number <= node.size:
        raise unknown(_TOOL, number, line, f"each port of 1 to {node.size} once")


def _whole(fabric: IbFabric) -> IbFabric:
    """Return the fabric if every link has both of its ends: a text that was cut off has not."""
    for node in fabric.nodes.values():
        for port in node.ports.values():
            far = fabric.nodes.get(port.far.node)
            back = far.ports.get(port.far.port) if far is not None else None
            if back is None or back.far != (node.guid, port.number):
                ends = f"{node.description} [{port.number}] to {port.far.node:#x} [{port.far.port}]"
                raise IbTextError(
                    "output of ibnetdiscover",
                    "link",
                    expected="both ends listed",
                    actual=f"one end of {ends}",
                    next_step="The text is cut off, or the fabric changed meanwhile: run ibnetdiscover again.",
                )
    if not any(node.ports for node in fabric.nodes.values()):
        raise unknown(_TOOL, 0, "", "at least one link")
    return fabric
