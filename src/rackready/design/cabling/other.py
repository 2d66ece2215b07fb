"""Cables of the fabrics beside the compute fabric: ports of nodes and devices, uplinks, peer links.

``other_ports`` assigns the ports of a leaf. Uplinks of one leaf go to the spines in turn; spine ports follow from the
leaf's number. Uplinks into another fabric take the ports that it reserves for them (``downlinks``), in the order of the
fabrics in the site file, then of the leafs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from rackready.design.cabling.other_ports import LeafPorts, leaf_ports, plug, rate_of, uplink_ports
from rackready.design.cabling.sockets import Socket, SwitchPorts, flat, switch_ports
from rackready.design.cabling.types import CableRun, Cage, Racked
from rackready.design.names import listed
from rackready.design.nic_use import used_ports
from rackready.design.other_fabrics import OtherSwitch, Served, other_layout, rack_slots, racks_of_fabric
from rackready.model.other_fabric import OtherFabric
from rackready.model.problems import Problem
from rackready.model.site import Rack, Site
from rackready.profiles import loader

Places = dict[str, tuple[str, int]]
"""Switch -> (rack, lowest unit)."""


class Near(NamedTuple):
    """The port of a node or device to be cabled. ``rate``: its highest rate, Gb/s; ``cage``: empty if not published."""

    name: str
    rack: str
    unit: int
    port: str
    rate: int
    cage: str


class OtherWiring:
    """Connects ports to the leafs that serve their racks. ``problems`` fill as cables are requested."""

    def __init__(self, site: Site, racked: Racked, places: Places) -> None:
        self._site, self._racked, self._places = site, racked, places
        self._layout = other_layout(site)
        self._slots = rack_slots(site)
        self._racks = {fabric.name: racks_of_fabric(site, fabric) for fabric in site.other_fabrics}
        self._rates = {fabric.name: rate_of(site, fabric, self._racks[fabric.name]) for fabric in site.other_fabrics}
        self._ports: dict[str, LeafPorts | None] = {
            fabric.name: leaf_ports(fabric, self._rates[fabric.name]) for fabric in site.other_fabrics
        }
        self._fabrics = {fabric.name: fabric for fabric in site.other_fabrics}
        self._downs: Counter[str] = Counter()
        self._kept: dict[tuple[str, str], int] = {}
        self._full: dict[str, dict[str, int]] = {}
        self.problems: list[Problem] = []

    def served(self, role: str, rack: str) -> Served | None:
        """Return how a rack is served in a network; None if no declared fabric serves it."""
        return self._layout.racks.get((role, rack))

    def roles(self) -> dict[str, str]:
        """Return the network of every switch of these fabrics."""
        return {switch.name: switch.role for switch in self._layout.switches}

    def placed(self, served: Served) -> bool:
        """Return whether all leafs that serve a rack have a place. Missing slots are a problem of the placement."""
        return all(leaf in self._places for leaf in served.leafs)

    # --- ports of nodes and devices

    def reserved_ports(self, served: Served, rack: Rack) -> int:
        """Return how many ports of a rack's window are reserved for its nodes, on each leaf."""
        key = (served.fabric.name, rack.name)
        if key not in self._kept:
            ports = [sum(role == served.fabric.role for _, role in used_ports(self._site, node)) for node in rack.nodes]
            self._kept[key] = self._each(served, max(ports, default=0)) * self._slots
        return self._kept[key]

    @staticmethod
    def _each(served: Served, ports: int) -> int:
        return -(-ports // served.fabric.leafs)

    def node(self, served: Served, slot: int, count: int, place: int, near: Near) -> CableRun | str:
        """Return the run of a node's port, number ``place`` (from 0) of ``count`` in this network; or why not."""
        return self._join(served, place, (slot - 1) * self._each(served, count) + place // served.fabric.leafs, near)

    def device(self, served: Served, first: int, place: int, near: Near) -> CableRun | str:
        """Return the run of a device's port, number ``place`` of the device; or why it has none.

        ``first``: place of the device's first port, over all leafs in turn.
        """
        return self._join(served, first + place, (first + place) // served.fabric.leafs, near)

    def top(self, served: Served, place: int, near: Near) -> CableRun | str:
        """Return the run of port number ``place`` (from 0) counted from the end of the window; or why it has none."""
        return self._join(served, place, -1 - place // served.fabric.leafs, near)

    def fits(self, served: Served, ports: int) -> bool:
        """Return whether a rack's window has that many ports on each leaf."""
        of = self._ports[served.fabric.name]
        return of is not None and ports <= of.window

    def note_need(self, served: Served, rack: str, ports: int) -> bool:
        """Return whether a rack has that many ports of each leaf; if not, record its need."""
        fits = self.fits(served, ports)
        if not fits and self._ports[served.fabric.name] is not None:
            self._full.setdefault(served.fabric.name, {})[rack] = ports
        return fits

    def _join(self, served: Served, place: int, offset: int, near: Near) -> CableRun | str:
        fabric, of = served.fabric, self._ports[served.fabric.name]
        leaf = served.leafs[place % fabric.leafs]
        if of is None:
            return f"{fabric.leaf} has no ports of {self._rates[fabric.name]} Gb/s"
        if near.rate < of.rate:
            return f"they run at most {near.rate} Gb/s, but links of {fabric.name} run {of.rate}"
        if not near.cage:
            return "their cage is not published"
        if leaf not in self._places:
            return f"{leaf} has no place"
        socket = of.ports.sockets[of.number(served, offset)]
        lanes = of.ports.lanes
        cage = self._racked.cage(
            self._racked.device(near.name, near.rack, near.unit),
            near.port,
            plug(flat(near.cage), of.rate, lanes),
            max(1, lanes // 4),
        )
        link = self._racked.link(of.rate, lanes, fabric.role, of.ports.layer)
        return CableRun(cage, near.port, 0, self._cage(leaf, socket), socket.port, socket.sub, link)

    def _cage(self, switch: str, socket: Socket) -> Cage:
        return self._racked.cage(
            self._racked.device(switch, *self._places[switch]), socket.cage, socket.form, socket.connectors
        )

    # --- links between switches

    def trunks(self) -> Iterator[CableRun]:
        """Yield uplinks and peer links of all fabrics, by fabric and leaf. A link without a port is a problem."""
        for fabric in self._site.other_fabrics:
            of = self._ports[fabric.name]
            if of is None:
                self.problems.append(self._no_ports(fabric, fabric.leaf, self._rates[fabric.name]))
                continue
            if not of.ports.sockets[0].form or of.window == 0:
                self.problems.append(self._too_small(fabric, of))
                continue
            for leaf in self._layout.of(fabric.name, "leaf"):
                yield from self._uplinks(fabric, of, leaf)
            for pair in self._layout.groups[fabric.name].values():
                yield from self._peers(fabric, of, pair)

    def _no_ports(self, fabric: OtherFabric, model: str, rate: int) -> Problem:
        return Problem.of(
            self._where(fabric),
            f"ports of {model}",
            expected=f"some of {rate} Gb/s",
            actual="none",
            next_step="Use another model, or set rate.",
        )

    def _too_small(self, fabric: OtherFabric, of: LeafPorts) -> Problem:
        if not of.ports.sockets[0].form:
            return Problem.of(
                self._where(fabric),
                f"cage of {fabric.leaf}",
                expected="known",
                actual="not published",
                next_step="Add it to the profile, with its source.",
            )
        room = len(of.ports.sockets) - of.top
        return Problem.of(
            self._where(fabric),
            "racks_per_leaf",
            expected=f"at most {max(0, room)}, because {fabric.leaf} has {room} ports for racks",
            actual=fabric.racks_per_leaf,
            next_step="Lower it, or use a larger leaf.",
        )

    def _where(self, fabric: OtherFabric) -> str:
        return f"other_fabrics[{self._site.other_fabrics.index(fabric)}] ({fabric.name})"

    def _own(self, fabric: OtherFabric, of: LeafPorts, number: int) -> tuple[Socket, SwitchPorts] | None:
        """Return uplink or peer port ``number`` (from 0) of a leaf: an uplink port, else one of the last main ports."""
        special = uplink_ports(fabric.leaf)
        if special is None:
            return of.ports.sockets[len(of.ports.sockets) - 1 - number], of.ports
        return (special.sockets[number], special) if number < len(special.sockets) else None

    def _uplinks(self, fabric: OtherFabric, of: LeafPorts, leaf: OtherSwitch) -> Iterator[CableRun]:
        above = self._above(fabric, leaf)
        for number in range(fabric.uplinks):
            lower = self._own(fabric, of, number)
            if lower is None or not above:
                self._say(
                    fabric,
                    f"uplinks - Expected: at most {number} Actual: {fabric.uplinks}, more than {fabric.leaf} has "
                    "ports for. Lower uplinks.",
                )
                return
            upper = above[number % len(above)]
            rate = of.rate if of.own_uplinks else _uplink_rate(fabric.leaf)
            found = self._upper(fabric, leaf, upper, (number, rate))
            if isinstance(found, str):
                self._say(fabric, found)
                return
            yield from self._trunk(fabric, leaf.name, lower, (upper.name, *found), rate)

    def _say(self, fabric: OtherFabric, text: str) -> None:
        problem = Problem(self._where(fabric), text)
        if problem not in self.problems:
            self.problems.append(problem)

    def _above(self, fabric: OtherFabric, leaf: OtherSwitch) -> list[OtherSwitch]:
        """Return the switches that a leaf's uplinks go to, in turn."""
        if fabric.uplink_to is None:
            return self._layout.of(fabric.name, "spine")
        spines = self._layout.of(fabric.uplink_to, "spine")
        if spines:
            return spines
        # Leafs that serve the same racks, else those of the first group: out-of-band switches of network racks
        # have no such leafs.
        target, groups = self._fabrics[fabric.uplink_to], self._layout.groups[fabric.uplink_to]
        first = (leaf.index - 1) // fabric.leafs * fabric.racks_per_leaf
        names = groups.get(first // target.racks_per_leaf + 1) or next((groups[group] for group in sorted(groups)), ())
        return [switch for switch in self._layout.of(target.name, "leaf") if switch.name in names]

    def _upper(
        self, fabric: OtherFabric, leaf: OtherSwitch, upper: OtherSwitch, link: tuple[int, int]
    ) -> tuple[Socket, SwitchPorts] | str:
        """Return the port at the upper end of uplink ``link`` (its number, its rate), or the problem."""
        number, rate = link
        target = self._fabrics[upper.fabric]
        ports = switch_ports(upper.model, rate)
        if ports is None:
            return (
                f"ports of {upper.model} - Expected: some of {rate} Gb/s, like uplinks of {fabric.leaf} Actual: none. "
                "Use another model."
            )
        if fabric.uplink_to is None:
            each = fabric.uplinks // fabric.spines
            place = (leaf.index - 1) * each + number // fabric.spines
            if place >= len(ports.sockets) - target.downlinks:
                room = (len(ports.sockets) - target.downlinks) // each
                return (
                    f"leafs - Expected: numbers up to {room}, because {upper.model} has no more ports "
                    f"Actual: {leaf.name}. Use more spines, or fewer uplinks."
                )
            return ports.sockets[place], ports
        taken = self._downs[upper.name]
        self._downs[upper.name] += 1
        if taken >= target.downlinks:
            need = self._need(target)
            text = (
                f"ports that {target.name} reserves for uplinks of others - Expected: at least {need} on {upper.name} "
                f"Actual: {target.downlinks}"
            )
            return f"{text}. Raise downlinks of {target.name} to {need}."
        of = self._ports[target.name]
        above = target.uplinks + target.peer_links if upper.tier == "leaf" and of is not None and of.own_uplinks else 0
        return ports.sockets[len(ports.sockets) - 1 - above - taken], ports

    def _need(self, target: OtherFabric) -> int:
        """Return how many ports every switch must reserve for uplinks of other fabrics: the need of the busiest one."""
        ends: Counter[str] = Counter()
        for fabric in self._site.other_fabrics:
            for leaf in self._layout.of(fabric.name, "leaf") if fabric.uplink_to == target.name else ():
                above = self._above(fabric, leaf)
                ends.update(above[number % len(above)].name for number in range(fabric.uplinks) if above)
        return max(ends.values(), default=0)

    def _peers(self, fabric: OtherFabric, of: LeafPorts, pair: tuple[str, ...]) -> Iterator[CableRun]:
        rate = of.rate if of.own_uplinks else _uplink_rate(fabric.leaf)
        for number in range(fabric.peer_links):
            own = self._own(fabric, of, fabric.uplinks + number)
            if own is None:
                self._say(
                    fabric,
                    f"peer_links - Expected: at most {number} beside the uplinks Actual: {fabric.peer_links}. "
                    "Lower one of the two.",
                )
                return
            yield from self._trunk(fabric, pair[0], own, (pair[1], *own), rate)

    def _trunk(
        self,
        fabric: OtherFabric,
        lower: str,
        own: tuple[Socket, SwitchPorts],
        upper: tuple[str, Socket, SwitchPorts],
        rate: int,
    ) -> Iterator[CableRun]:
        (near, ports), (name, far, _) = own, upper
        if lower in self._places and name in self._places:
            link = self._racked.link(rate, ports.lanes, f"{fabric.role}_trunk", ports.layer)
            yield CableRun(self._cage(lower, near), near.port, near.sub, self._cage(name, far), far.port, far.sub, link)

    # --- problems and notes

    def finish(self) -> list[str]:
        """Record racks whose ports do not fit their windows; return notes on fabrics whose leafs are not connected."""
        for name, racks in self._full.items():
            fabric, of = self._fabrics[name], self._ports[name]
            if of is not None and of.window:
                need, total = max(racks.values()), len(of.ports.sockets) - of.top
                text = (
                    f"ports of {listed(racks)} on a leaf - Expected: at most {of.window} ({total} for "
                    f"{fabric.racks_per_leaf} racks) Actual: {need}"
                )
                self._say(fabric, f"{text}. Lower racks_per_leaf to {total // need}, or use a larger leaf.")
        return [
            f"{fabric.name}: nothing connects its leafs to each other. Add spines, or uplink_to with uplinks, "
            "unless your own network connects them."
            for fabric in self._site.other_fabrics
            if not fabric.uplinks and len(self._layout.of(fabric.name, "leaf")) > (2 if fabric.peer_links else 1)
        ]


def _uplink_rate(model: str) -> int:
    """Return the rate of a model's uplink ports, Gb/s; 0 if not known."""
    return loader.switch(model).uplink_rate or 0
