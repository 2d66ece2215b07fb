"""Writes the planned cables as a topology of ibsim: the shape of ibnetdiscover, as ibsim/sim_net.c reads it.

ibsim ignores the GUIDs in node ids: a ``switchguid=`` or ``caguid=`` line before each node sets its GUID. The port GUID
of an adapter is its node GUID plus the port number, that of a switch its node GUID (build_nodes_sim of sim_net.c).
Width and speed are read from the whole comment of ibnetdiscover alone. ibsim 0.10 (Debian 12) knows speeds up to HDR
and makes SDR of NDR without a word; the twin declares the fastest that it knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from rackready.drivers.cabling_check.types import End, PlannedCable
from rackready.drivers.ib.planned import IbPlan
from rackready.drivers.ib.text import LANE_GBPS

_SWITCH_GUIDS = 0x0200_0001_0000_0000
_CA_GUIDS = 0x0200_0002_0000_0000
"""First GUIDs: the locally administered bit is set, so that none is one of a real device (IEEE 802, EUI-64)."""
_SWITCH_STEP, _CA_STEP = 0x100, 0x10
_FASTEST = "HDR"
_WIDTHS = (1, 4, 8, 12)
"""Lanes that ibsim reads (parse_port_link_width_and_speed of sim_net.c)."""


@dataclass(frozen=True, slots=True)
class TwinPort:
    """A port of the twin: the id of its node in ibsim, as ``S-0200...``, and its number."""

    node: str
    number: int

    def __str__(self) -> str:
        return f'"{self.node}"[{self.number}]'


@dataclass(slots=True)
class TwinLink:
    """One link of the twin. ``words``: width and speed, ``4xHDR``."""

    a: TwinPort
    b: TwinPort
    words: str


@dataclass(slots=True)
class Twin:
    """A fabric for ibsim. ``names``: node id -> description; ``sizes``: number of its ports."""

    plan: IbPlan
    names: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    links: list[TwinLink] = field(default_factory=list)
    switches: dict[str, str] = field(default_factory=dict)
    """Switch of the plan -> node id."""
    adapters: dict[End, str] = field(default_factory=dict)
    """HCA of the plan -> node id."""
    slower: str = ""
    """The planned speed that ibsim does not know; empty if it knows all."""

    def port(self, end: End) -> TwinPort:
        """Return the twin's port for a port of the plan. Raises KeyError or ValueError for an unknown one."""
        if end.device in self.switches:
            return TwinPort(self.switches[end.device], self.plan.number(end))
        return TwinPort(self.adapters[end], 1)

    def port_guids(self) -> dict[End, int]:
        """Return the port GUID of each adapter."""
        return {end: guid(node) + 1 for end, node in self.adapters.items()}


def twin_of(plan: IbPlan) -> Twin:
    """Return the twin of a plan: its switches with all their ports, and every planned adapter and link."""
    twin = Twin(plan)
    for place, (name, ports) in enumerate(sorted(plan.ports.items())):
        node = twin.switches[name] = f"S-{_SWITCH_GUIDS + place * _SWITCH_STEP:016x}"
        twin.names[node], twin.sizes[node] = f"MF0;{name}:rackready/U1", len(ports)
    ends = sorted({cable.a.end for cable in plan.cables if cable.a.device not in plan.ports})
    for place, end in enumerate(ends):
        node = twin.adapters[end] = f"H-{_CA_GUIDS + place * _CA_STEP:016x}"
        twin.names[node], twin.sizes[node] = f"{end.device} {end.port}", 1
    for cable in plan.cables:
        words, known = _speed(cable)
        twin.slower = twin.slower or ("" if known else f"{cable.rate} Gb/s over {cable.lanes} lanes")
        twin.links.append(TwinLink(twin.port(cable.a.end), twin.port(cable.b.end), words))
    return twin


def as_declared(plan: IbPlan) -> IbPlan:
    """Return the plan with the rates that its twin can have."""
    return replace(plan, cables=tuple(_declared(cable) for cable in plan.cables))


def _declared(cable: PlannedCable) -> PlannedCable:
    width, speed = _speed(cable)[0].split("x")
    return replace(cable, rate=int(int(width) * LANE_GBPS[speed]), lanes=int(width))


def _speed(cable: PlannedCable) -> tuple[str, bool]:
    """Return width and speed to declare, and whether they are the planned ones."""
    width = cable.lanes if cable.lanes in _WIDTHS else 4
    lane = cable.rate / (cable.lanes or 4)
    names = list(LANE_GBPS)
    for name in names[: names.index(_FASTEST) + 1]:
        if name != "FDR10" and LANE_GBPS[name] == lane and width == cable.lanes:
            return f"{width}x{name}", True
    return f"{width}x{_FASTEST}", False


def guid(node: str) -> int:
    """Return the node GUID of a node id."""
    return int(node.partition("-")[2], 16)


def net_text(twin: Twin, first: str = "") -> str:
    """Return the topology file. ``first``: node id that comes first: clients attach there by default."""
    peers: dict[str, dict[int, tuple[TwinPort, str]]] = defaultdict(dict)
    for link in twin.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            peers[here.node][here.number] = (there, link.words)
    order = sorted(twin.names, key=lambda node: (node != first, node))
    return "\n".join(line for node in order for line in _node(twin, node, peers[node])) + "\n"


def _node(twin: Twin, node: str, peers: dict[int, tuple[TwinPort, str]]) -> Iterator[str]:
    digits = node.partition("-")[2]
    if node[0] == "S":
        yield f"switchguid=0x{digits}({digits})"
        yield f'Switch\t{twin.sizes[node]} "{node}"\t\t# "{twin.names[node]}" enhanced port 0 lid 0 lmc 0'
        for number, (far, words) in sorted(peers.items()):
            port = f"({guid(far.node) + far.number:x})" if far.node[0] == "H" else ""
            yield f'[{number}]\t{far}{port}\t\t# "{twin.names[far.node]}" lid 0 {words}'
    else:
        yield f"caguid=0x{digits}"
        yield f'Ca\t{twin.sizes[node]} "{node}"\t\t# "{twin.names[node]}"'
        for number, (far, words) in sorted(peers.items()):
            own = f"{guid(node) + number:x}"
            yield f'[{number}]({own})\t{far}\t\t# lid 0 lmc 0 "{twin.names[far.node]}" lid 0 {words}'
    yield ""


def limits(twin: Twin) -> list[str]:
    """Return ibsim's options for the size of a twin: its defaults hold 2,048 nodes, 256 switches and 13,312 ports."""
    ports = sum(size + 1 for size in twin.sizes.values())
    return ["-N", str(len(twin.names) + 16), "-S", str(len(twin.switches) + 16), "-P", str(ports + 1024)]


def ends_of(ports: Iterable[TwinPort], twin: Twin) -> list[str]:
    """Return ports in the names of the plan, for messages."""
    return [f"{twin.names[port.node]} [{port.number}]" for port in ports]
