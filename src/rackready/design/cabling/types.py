"""Plain data of cabling: places of devices, connected ports, and the parts between them.

Runs and cables are named tuples, because 300,000 of each are created in a third of the time of frozen dataclasses.
Devices and cages are shared objects: such a site has 300,000 ports, but few devices. Create them through ``Racked``,
which returns one object per device and cage; the planner tells cages apart by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from rackready.model.problems import Problem

UNIT_M = 0.04445
"""Height of one rack unit, m (EIA-310-E: 1.75 in)."""


@dataclass(frozen=True, slots=True)
class CablePlace:
    """Position of a rack.

    ``row`` and ``position`` count from 0 or 1, in steps of the hall's pitches; ``height_u`` in rack units.
    """

    hall: str
    row: int
    position: int
    height_u: int = 48


@dataclass(frozen=True, slots=True)
class HallPlan:
    """Distances of one hall, m: between racks of a row, between rows, and from the floor up to the trays."""

    name: str
    rack_pitch_m: float
    row_pitch_m: float
    tray_height_m: float


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """Positions of all racks.

    ``between_halls_m``: length of the cable path from the entry of one hall (row and position 0, at tray height) to
    that of the other, m, by their names in either order. ``slack_m``: spare length at each end of a cable, for dressing
    and for pulling a device out, m: a planning input.
    """

    halls: Mapping[str, HallPlan]
    places: Mapping[str, CablePlace]
    between_halls_m: Mapping[tuple[str, str], float] = field(default_factory=dict)
    slack_m: float = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class CabledDevice:
    """One device in its rack.

    ``unit`` is the rack unit of its ports (the lowest that it occupies, counted from 1). ``cages``: cages requested so
    far.
    """

    name: str
    rack: str
    unit: int
    cages: dict[str, Cage] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Plug:
    """The plug of a cage: one object for all cages that are alike.

    ``form`` is the plug (model.parts.Form). ``connectors``: optical connectors of the module, that is its lanes / 4: 2
    for the twin-port cages of switches and of servers in which two NICs share one, 1 for the cage of one 400 Gb/s NIC.
    """

    form: str
    connectors: int = 1


@dataclass(slots=True, eq=False)
class Cage:
    """One cage of a device. Treat it as immutable.

    It is not frozen, because frozen objects take four times as long to create and there are 300,000.
    """

    device: CabledDevice
    name: str
    plug: Plug

    @property
    def form(self) -> str:
        """Return the form of its plug."""
        return self.plug.form

    @property
    def connectors(self) -> int:
        """Return the number of optical connectors of its module."""
        return self.plug.connectors


@dataclass(frozen=True, slots=True, eq=False)
class CabledLink:
    """Facts that all links of one sort share, in one object.

    ``rate`` in Gb/s over ``lanes`` lanes; ``kind``: compute, trunk, in_band, storage or oob; ``layer``: ethernet or
    infiniband.
    """

    rate: int
    lanes: int
    kind: str
    layer: str


class CableRun(NamedTuple):
    """Two ports to connect. ``a_sub`` and ``b_sub``: first optical connector of the port in its module, from 0."""

    a: Cage
    a_port: str
    a_sub: int
    b: Cage
    b_port: str
    b_sub: int
    link: CabledLink

    @property
    def rate(self) -> int:
        """Return the rate, Gb/s."""
        return self.link.rate

    @property
    def lanes(self) -> int:
        """Return the number of electrical lanes."""
        return self.link.lanes

    @property
    def kind(self) -> str:
        """Return the network: compute, trunk, in_band, storage or oob."""
        return self.link.kind

    @property
    def layer(self) -> str:
        """Return the link layer: ethernet or infiniband."""
        return self.link.layer


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The parts of one cable; one object serves all cables that are alike, compared by identity.

    ``group``: number of the run whose label names the piece when several rows are one assembly, -1 otherwise.
    ``cause``: the common cause of refusals.
    """

    medium: str = ""
    cable_part: str = ""
    stock_m: float = 0.0
    a_part: str = ""
    b_part: str = ""
    group: int = -1
    problem: str = ""
    cause: str = ""


class Cable(NamedTuple):
    """One physical cable: one row of the cable list.

    ``length_m`` is the computed length, ``stock_m`` the ordered one. ``cable_part`` is the fibre or the assembly;
    ``a_part`` and ``b_part`` are the modules at the ends, or the assembly again if its plugs are fixed. ``leader`` is
    the run whose label names the physical cable: rows that share it (legs of a splitter, the two links of a twin-port
    copper cable) are one piece. ``fibre``: number of the fibre in its link, from 0; ``mark``: its text in the label,
    empty if the link has one fibre. ``problem``: why no part is suitable; the parts are then empty.
    """

    run: CableRun
    fibre: int
    length_m: float
    choice: Choice
    leader: CableRun
    mark: str = ""

    @property
    def label(self) -> str:
        """Return both ends and, if there are several fibres, which one."""
        return label_of(self.run) + self.mark

    @property
    def group(self) -> str:
        """Return the label of the physical cable."""
        return label_of(self.leader) + self.mark

    @property
    def is_piece(self) -> bool:
        """Return whether this row stands for its physical cable: each piece has one such row."""
        return self.leader is self.run

    @property
    def medium(self) -> str:
        """Return the medium: copper, multimode, single mode, ... (model.parts.Medium)."""
        return self.choice.medium

    @property
    def stock_m(self) -> float:
        """Return the ordered length, m; 0 if no part is suitable."""
        return self.choice.stock_m

    @property
    def cable_part(self) -> str:
        """Return the part number of the fibre or the assembly."""
        return self.choice.cable_part

    @property
    def a_part(self) -> str:
        """Return the part number at end A."""
        return self.choice.a_part

    @property
    def b_part(self) -> str:
        """Return the part number at end B."""
        return self.choice.b_part

    @property
    def problem(self) -> str:
        """Return why no part is suitable, or empty text."""
        return self.choice.problem

    @property
    def a_sub(self) -> int:
        """Return the connector of the module at end A, from 0."""
        return self.run.a_sub + self.fibre

    @property
    def b_sub(self) -> int:
        """Return the connector of the module at end B, from 0."""
        return self.run.b_sub + self.fibre

    @property
    def a_device(self) -> str:
        """Return the name of the device at end A."""
        return self.run.a.device.name

    @property
    def a_rack(self) -> str:
        """Return the rack of end A."""
        return self.run.a.device.rack

    @property
    def a_unit(self) -> int:
        """Return the rack unit of end A."""
        return self.run.a.device.unit

    @property
    def a_port(self) -> str:
        """Return the port of end A, with its breakout."""
        return self.run.a_port

    @property
    def b_device(self) -> str:
        """Return the name of the device at end B."""
        return self.run.b.device.name

    @property
    def b_rack(self) -> str:
        """Return the rack of end B."""
        return self.run.b.device.rack

    @property
    def b_unit(self) -> int:
        """Return the rack unit of end B."""
        return self.run.b.device.unit

    @property
    def b_port(self) -> str:
        """Return the port of end B, with its breakout."""
        return self.run.b_port


def label_of(run: CableRun) -> str:
    """Return the label of a run: both ends. It stays the same as long as the ports do."""
    return f"{run.a.device.name}:{run.a_port}/{run.b.device.name}:{run.b_port}"


class NodePort(NamedTuple):
    """Facts that ports of nodes beside the compute fabric have in common.

    ``state``: cabled, unused (on purpose) or not_cabled; ``why``: the reason of the latter two. ``declared``: a fabric
    is declared that should serve it.
    """

    platform: str
    port: str
    network: str
    state: str
    why: str
    declared: bool


@dataclass(frozen=True, slots=True)
class CablePlan:
    """All cables in the order of their runs. ``problems`` stop a plan; ``notes`` list omissions and their reasons.

    ``node_ports``: ports of nodes beside the compute fabric, with the number of each kind.
    """

    cables: tuple[Cable, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    node_ports: tuple[tuple[NodePort, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BomLine:
    """One line of the bill of materials: ``needed`` pieces, plus ``spare``."""

    group: str
    part: str
    description: str
    needed: int
    spare: int
    source: str

    @property
    def total(self) -> int:
        """Return the number of pieces to order."""
        return self.needed + self.spare


class Racked:
    """Provides one object per device and per cage, with interned names."""

    def __init__(self) -> None:
        self._devices: dict[str, CabledDevice] = {}
        self._plugs: dict[tuple[str, int], Plug] = {}
        self._links: dict[tuple[int, int, str, str], CabledLink] = {}

    def device(self, name: str, rack: str, unit: int) -> CabledDevice:
        """Return the device of that name; the first call sets its place."""
        found = self._devices.get(name)
        if found is None:
            found = self._devices[name] = CabledDevice(intern(name), intern(rack), unit)
        return found

    def cage(self, device: CabledDevice, name: str, form: str, connectors: int = 1) -> Cage:
        """Return the cage of that name of a device; the first call sets its form and connectors."""
        found = device.cages.get(name)
        if found is None:
            found = device.cages[name] = Cage(device, name, self._plug(form, connectors))
        return found

    def link(self, rate: int, lanes: int, kind: str, layer: str) -> CabledLink:
        """Return the sort of links of that rate (Gb/s), lanes, network and layer."""
        key = (rate, lanes, kind, layer)
        if key not in self._links:
            self._links[key] = CabledLink(*key)
        return self._links[key]

    def _plug(self, form: str, connectors: int) -> Plug:
        key = (form, connectors)
        if key not in self._plugs:
            self._plugs[key] = Plug(*key)
        return self._plugs[key]
