"""Makes runs from a site: the links of the compute fabric, and the ports beside it.

Notes list every port that is not cabled, with the number of ports and the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rackready.design.cabling.beside import beside
from rackready.design.cabling.sockets import Socket, SwitchPorts, nic_socket, switch_ports
from rackready.design.cabling.types import (
    CabledDevice,
    CablePlace,
    CableRun,
    Cage,
    FloorPlan,
    HallPlan,
    NodePort,
    Racked,
)
from rackready.design.collector import without_gc
from rackready.design.endpoints import link_rate
from rackready.design.other_fabrics import other_layout
from rackready.design.placement import place_switches
from rackready.design.site_flaws import PLACE
from rackready.design.topology.types import FabricPlan
from rackready.design.wiring import cables as wired
from rackready.model.base import Name
from rackready.model.problems import Problem
from rackready.model.site import Node, Site
from rackready.profiles import loader


@dataclass(slots=True)
class SiteRuns:
    """``runs`` with the floor plan on which they lie, ``problems``, and ``notes`` as texts for people."""

    floor: FloorPlan
    runs: list[CableRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    node_ports: tuple[tuple[NodePort, int], ...] = ()


def floor_plan(site: Site, slack_m: float = 0.5) -> FloorPlan:
    """Return where the site's racks are.

    Racks without hall, row and position have no place: only cables inside them have a length.
    """
    halls = {
        hall.name: HallPlan(hall.name, hall.rack_pitch_m, hall.row_pitch_m, hall.tray_height_m) for hall in site.halls
    }
    rows: dict[str, list[Name]] = {hall.name: hall.rows for hall in site.halls}
    places = {
        rack.name: CablePlace(rack.hall, rows[rack.hall].index(rack.row), rack.position, rack.height_u)
        for rack in site.racks
        if rack.hall in rows and rack.row in rows[rack.hall] and rack.position is not None
    }
    between: dict[tuple[str, str], float] = {
        (hall.name, other): way for hall in site.halls for other, way in hall.ways_m.items()
    }
    return FloorPlan(halls, places, between, slack_m)


def site_runs(site: Site, fabric: FabricPlan | None = None, slack_m: float = 0.5) -> SiteRuns:
    """Return the runs of a checked site. ``fabric`` is that of its topology; None if the site lists its links by hand.

    ``slack_m``: spare length at each end, m. Runs are in the order of the fabric, nodes before trunks, then those
    beside the fabric.
    """
    out = SiteRuns(floor_plan(site, slack_m))
    _Maker(site, fabric, out).make()
    return out


class _Maker:
    """Connects names to devices, cages and ports."""

    def __init__(self, site: Site, fabric: FabricPlan | None, out: SiteRuns) -> None:
        self._site, self._fabric, self._out = site, fabric, out
        self._racked = Racked()
        placement = place_switches(site, fabric or FabricPlan())
        out.problems += placement.problems
        self._places = placement.places
        self._models = {switch.name: switch.model for switch in site.switches}
        self._models |= {switch.name: switch.model for switch in fabric.switches} if fabric else {}
        self._nodes = {node.name: (node, rack.name) for rack in site.racks for node in rack.nodes}
        self._devices = {device.name: device for device in site.devices}
        self._known: dict[str, tuple[SwitchPorts, CabledDevice] | None] = {}
        self._ends: dict[str, tuple[CabledDevice, str]] = {}
        self._sockets: dict[tuple[str, int, int, int], Socket] = {}
        topology = site.topology
        self._planes = topology.planes if topology is not None and topology.planes_by == "port" else 1
        self._unplaced: dict[str, int] = {}
        self._strange: dict[Problem, None] = {}

    def make(self) -> None:
        """Fill the result."""
        with without_gc():
            self._fill()

    def _fill(self) -> None:
        out = self._out
        compute = {switch.name for switch in self._site.switches if switch.role == "compute"} | (
            {*self._models} if self._fabric else set()
        )
        if compute and not any(name in self._places for name in compute):
            out.notes.append(
                f"compute fabric: {len(compute)} switches have no place, so its cables are not listed. "
                "Add switch_slots, or rack and unit of switches."
            )
        elif self._fabric is not None:
            out.runs += self._endpoints(self._fabric)
            out.runs += self._trunks(self._fabric)
        else:
            out.runs += self._written()
        models = self._models | {switch.name: switch.model for switch in other_layout(self._site).switches}
        found = beside(self._site, self._racked, self._places, models)
        out.runs += found.runs
        out.notes += found.notes
        out.problems += found.problems
        out.node_ports = tuple(sorted(found.ports.items()))
        self._leave_out()
        out.problems += self._strange
        out.problems += [
            Problem.of(
                name,
                "place",
                expected="rack and unit",
                actual=f"not given; {count} cables end there",
                next_step="Add its rack and unit.",
            )
            for name, count in sorted(self._unplaced.items())
        ]

    def _leave_out(self) -> None:
        """Remove runs to racks without a position.

        This is one problem of the rack, not one of each cable. Without halls it is a note.
        """
        places, lost = self._out.floor.places, dict[str, int]()
        if all(rack.name in places for rack in self._site.racks):
            return
        kept = []
        for run in self._out.runs:
            ends = {run.a.device.rack, run.b.device.rack}
            homeless = [rack for rack in sorted(ends) if rack not in places] if len(ends) > 1 else []
            if homeless:
                lost[homeless[0]] = lost.get(homeless[0], 0) + 1
            else:
                kept.append(run)
        self._out.runs = kept
        if lost and not self._site.halls:
            text = (
                f"{sum(lost.values())} cables between racks are not listed: the site has no halls, so their "
                "lengths are not known."
            )
            self._out.notes.append(f"{text} Add halls, and the hall, row and position of racks.")
        elif lost:
            self._out.problems += [
                Problem.of(
                    rack,
                    "hall, row and position",
                    expected="given",
                    actual=f"not given; {count} cables leave it",
                    next_step="Add them to the rack.",
                    about=PLACE,
                )
                for rack, count in sorted(lost.items())
            ]

    # --- ends

    def _switch(self, name: str, rate: int) -> tuple[SwitchPorts, CabledDevice] | None:
        """Return the ports of a switch at that rate and its device; note a problem and return None without either."""
        if name in self._known:
            found = self._known[name]
        else:
            found = self._known[name] = self._look_up(name, rate)
        if found is None and name not in self._places:
            self._unplaced[name] = self._unplaced.get(name, 0) + 1
        return found

    def _look_up(self, name: str, rate: int) -> tuple[SwitchPorts, CabledDevice] | None:
        ports, place = switch_ports(self._models[name], rate), self._places.get(name)
        if ports is None:
            self._strange[
                Problem.of(
                    name,
                    f"ports of {rate} Gb/s",
                    expected="at least one",
                    actual=f"{self._models[name]} has none",
                    next_step="Use another model.",
                )
            ] = None
            return None
        if not ports.sockets[0].form:
            self._strange[
                Problem.of(
                    f"switch model {self._models[name]}",
                    "cage",
                    expected="known",
                    actual="not published",
                    next_step="Add it to the profile, with its source.",
                )
            ] = None
            return None
        return (ports, self._racked.device(name, *place)) if place else None

    def _cage(self, device: CabledDevice, socket: Socket) -> Cage:
        return self._racked.cage(device, socket.cage, socket.form, socket.connectors)

    def _end(self, name: str) -> tuple[CabledDevice, str] | None:
        """Return the device of a node and its platform; None if it has no place.

        The platform is empty for a device in a node's place.
        """
        node, rack = self._nodes.get(name, (None, ""))
        if node is not None and node.unit is not None:
            self._ends[name] = self._racked.device(name, rack, node.unit), node.platform
            return self._ends[name]
        device = self._devices.get(name)
        if device is not None and device.rack is not None and device.unit is not None:
            self._ends[name] = self._racked.device(name, device.rack, device.unit), ""
            return self._ends[name]
        self._unplaced[name] = self._unplaced.get(name, 0) + 1
        return None

    def _nic(self, name: str, rail: int, plane: int, lanes: int) -> tuple[Cage, Socket] | None:
        end = self._ends.get(name) or self._end(name)
        if end is None:
            return None
        device, platform = end
        known = self._sockets.get((platform, rail, plane, lanes))
        if known is not None:
            return device.cages.get(known.cage) or self._cage(device, known), known
        # A device in a node's place (a UFM host) has one adapter per port: MMA4Z00-NS400 in RA-11333-001 V11, table 8.
        socket = (
            nic_socket(platform, rail, plane, self._planes, lanes)
            if platform
            else Socket(f"port{rail}", f"port{rail}", 0, 1, "osfp_flat")
        )
        if socket is None:
            self._strange[
                Problem.of(
                    name, f"rail {rail}", expected=f"a NIC of {platform}", actual="none", next_step="Correct the link."
                )
            ] = None
        elif not socket.form:
            self._strange[
                Problem.of(
                    f"platform {platform}",
                    f"cage of rail {rail}",
                    expected="known",
                    actual="not published",
                    next_step="Add it to the profile, with its source.",
                )
            ] = None
        else:
            self._sockets[platform, rail, plane, lanes] = socket
            return device.cages.get(socket.cage) or self._cage(device, socket), socket
        return None

    # --- runs

    def _rate(self) -> int:
        topology = self._site.topology
        platforms = sorted({node.platform for node in self._site.nodes() if node.kind == "metal"})
        rates = [link_rate(loader.platform(name), topology) for name in platforms] if topology is not None else []
        return max(rates, default=0)

    def _endpoints(self, fabric: FabricPlan) -> Iterator[CableRun]:
        rate, known, cage_of, link_of = self._rate(), self._known, self._cage, self._racked.link
        for node, rail, plane, switch, port in fabric.endpoints:
            far = known.get(switch) or self._switch(switch, rate)
            if far is None:
                continue
            ports, device = far
            near = self._nic(node, rail, plane, ports.lanes)
            if near is None:
                continue
            cage, nic = near
            socket = ports.sockets[port - 1]
            there = device.cages.get(socket.cage) or cage_of(device, socket)
            yield CableRun(
                cage,
                nic.port,
                nic.sub,
                there,
                socket.port,
                socket.sub,
                link_of(rate, ports.lanes, "compute", ports.layer),
            )

    def _trunks(self, fabric: FabricPlan) -> Iterator[CableRun]:
        rate, known, cage_of, link_of = self._rate(), self._known, self._cage, self._racked.link
        for lower, lower_port, upper, upper_port in fabric.trunks:
            below, above = known.get(lower) or self._switch(lower, rate), known.get(upper) or self._switch(upper, rate)
            if below is None or above is None:
                continue
            (ports, low), (others, high) = below, above
            a, b = ports.sockets[lower_port - 1], others.sockets[upper_port - 1]
            near, far = low.cages.get(a.cage) or cage_of(low, a), high.cages.get(b.cage) or cage_of(high, b)
            yield CableRun(near, a.port, a.sub, far, b.port, b.sub, link_of(rate, ports.lanes, "trunk", ports.layer))

    def _written(self) -> Iterator[CableRun]:
        """Yield the runs of links in the site file (``links``)."""
        for (name, rail), (switch, port) in wired(self._site).items():
            node: Node = self._site.node(name)
            rate = next((nic.rate for nic in loader.platform(node.platform).nics if nic.rail == rail), 0)
            named = self._named(switch, port, rate)
            far = self._switch(switch, loader.switch(self._models[switch]).rate)
            near = self._nic(name, rail, 1, named[1].lanes) if named else None
            if named and near and far:
                socket, of = named
                yield CableRun(
                    near[0],
                    near[1].port,
                    near[1].sub,
                    self._cage(far[1], socket),
                    socket.port,
                    socket.sub,
                    self._racked.link(rate, of.lanes, "compute", of.layer),
                )

    def _named(self, switch: str, port: str, rate: int) -> tuple[Socket, SwitchPorts] | None:
        """Return the socket of a port by its name.

        It is a sub-port at the link's rate, else a whole port (a port may run slower than it can).
        """
        for speed in (rate, loader.switch(self._models[switch]).rate):
            found = switch_ports(self._models[switch], speed)
            socket = next((item for item in found.sockets if item.port == port), None) if found else None
            if found and socket:
                slower = rate != speed and found.lanes * rate // speed
                return socket, SwitchPorts(found.sockets, slower or found.lanes, found.layer)
        self._strange[
            Problem.of(
                switch,
                f"port {port}",
                expected=f"a port of {self._models[switch]}",
                actual="none",
                next_step="Correct the link.",
            )
        ] = None
        return None
