"""Planned cables of an InfiniBand site, with the port numbers that its switches use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rackready.design.cabling.sockets import switch_ports
from rackready.design.placement import place_switches
from rackready.design.plan import Laid
from rackready.design.wiring import compute_rate, fabric_links, switch_port_names
from rackready.design.written_ports import mixed_ports, own_ports, ways_of
from rackready.drivers.cabling_check.types import End, PlannedCable, PlannedEnd
from rackready.model.problems import RackreadyError
from rackready.model.profile import PlatformNic
from rackready.profiles import loader


@dataclass(frozen=True, slots=True)
class IbPlan:
    """The compute fabric as InfiniBand sees it.

    ``ports``: switch -> names of its ports; port number 1 is the first. ``hcas``: node -> its planned HCAs.
    ``unnumbered``: devices in the places of nodes, whose ports the plan only counts.
    """

    cables: tuple[PlannedCable, ...]
    ports: Mapping[str, tuple[str, ...]]
    hcas: Mapping[str, frozenset[str]]
    unnumbered: frozenset[str] = frozenset()

    def switch_end(self, switch: str, number: int) -> End:
        """Return the port of a switch by its number, from 1; ``port N`` for one beyond those of its front panel."""
        names = self.ports[switch]
        return End(switch, names[number - 1] if 1 <= number <= len(names) else f"port {number}")

    def number(self, end: End) -> int:
        """Return the number of a switch port, from 1. Raises ValueError for an unknown one."""
        return self.ports[end.device].index(end.port) + 1


class IbPlanError(RackreadyError):
    """The plan's cables cannot be compared with an InfiniBand fabric."""


def planned_cables(laid: Laid) -> IbPlan:
    """Return the cables of the compute fabric: between nodes and leafs, and between switches.

    Raises IbPlanError for a site whose fabric is not InfiniBand, that has problems, or whose NICs feed several planes
    by their ports.
    """
    _refuse(laid)
    maker = _Maker(laid)
    cables = (*maker.endpoints(), *maker.trunks())
    hcas: dict[str, set[str]] = {}
    for cable in cables:
        if cable.a.device not in maker.ports:
            hcas.setdefault(cable.a.device, set()).add(cable.a.port)
    unnumbered = frozenset(hcas) - {node.name for node in laid.site.nodes()}
    return IbPlan(cables, maker.ports, {node: frozenset(names) for node, names in hcas.items()}, unnumbered)


def _refuse(laid: Laid) -> None:
    site = laid.site
    if site.fabric.kind != "infiniband":
        raise IbPlanError(
            "fabric.kind",
            expected="infiniband",
            actual=site.fabric.kind,
            next_step="Use a site whose compute fabric is InfiniBand.",
        )
    if mixed := mixed_ports(site):
        raise IbPlanError.of([mixed], head="compute fabric: ports have unknown numbers; nothing was compared.")
    if laid.fabric.problems:
        raise IbPlanError.of(laid.fabric.problems, head="compute fabric: the plan has problems; nothing was compared.")
    topology = site.topology
    if topology is not None and topology.planes > 1 and topology.planes_by == "port":
        raise IbPlanError(
            "topology.planes",
            expected="1, or planes_by: rail",
            actual=f"{topology.planes} by port",
            next_step="rackready does not know yet which HCA of a NIC feeds which plane.",
        )


class _Maker:
    """Makes cables from the names of a plan."""

    def __init__(self, laid: Laid) -> None:
        self._laid, site = laid, laid.site
        self._switches = {switch.name: switch for switch in laid.fabric.switches}
        self._places = place_switches(site, laid.fabric).places
        self._places |= {node.name: (rack.name, node.unit or 0) for rack in site.racks for node in rack.nodes}
        self._places |= {device.name: (device.rack or "", device.unit or 0) for device in site.devices}
        self._platforms = {node.name: node.platform for node in site.nodes()}
        self._topology = site.topology is not None
        self._rate = compute_rate(site)
        self.ports: dict[str, tuple[str, ...]] = (
            switch_port_names(site, laid.fabric)
            if self._topology
            else {switch.name: tuple(own_ports(switch)) for switch in site.switches if switch.name in self._switches}
        )
        self._ways = {} if self._topology else {switch.name: ways_of(switch) for switch in site.switches}

    def endpoints(self) -> Iterator[PlannedCable]:
        for node, rail, _plane, switch, port in fabric_links(self._laid.site, self._laid.fabric):
            if switch in self._switches:
                rate = self._rate or self._written_rate(node, rail, switch)
                yield PlannedCable(self._nic(node, rail), self._switch(switch, port), rate, self._lanes(switch, rate))

    def trunks(self) -> Iterator[PlannedCable]:
        for trunk in self._laid.fabric.trunks:
            low = self._switch(trunk.lower, self.ports[trunk.lower][trunk.lower_port - 1])
            high = self._switch(trunk.upper, self.ports[trunk.upper][trunk.upper_port - 1])
            yield PlannedCable(low, high, self._rate, self._lanes(trunk.lower, self._rate))

    def _switch(self, name: str, port: str) -> PlannedEnd:
        rack, unit = self._places.get(name, ("", 0))
        return PlannedEnd(name, port, rack, unit, self._switches[name].rail)

    def _nic(self, node: str, rail: int) -> PlannedEnd:
        rack, unit = self._places.get(node, ("", 0))
        nic = self._profile(node, rail)
        if nic is None or not nic.rdma_device:
            return PlannedEnd(node, f"rail{rail}", rack, unit, rail)
        return PlannedEnd(node, nic.rdma_device, rack, unit, rail, nic.port)

    def _profile(self, node: str, rail: int) -> PlatformNic | None:
        platform = self._platforms.get(node)
        nics = loader.platform(platform).nics if platform is not None else []
        return next((nic for nic in nics if nic.rail == rail), None)

    def _written_rate(self, node: str, rail: int, switch: str) -> int:
        """Return the rate of a cable that is written by hand, Gb/s: that of the NIC, or of a slower sub-port."""
        nic = self._profile(node, rail)
        port = loader.switch(self._switches[switch].model).rate // max(self._ways[switch], default=1)
        return min(nic.rate, port) if nic is not None else 0

    def _lanes(self, switch: str, rate: int) -> int:
        ports = switch_ports(self._switches[switch].model, rate)
        return ports.lanes if ports is not None else 0
