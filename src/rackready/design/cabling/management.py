"""Cables of management ports of switches and devices, and of other device ports in the site file.

The out-of-band switch of their rack serves management ports, from its last port down by rack unit (unit 1 has the
last), since no two share a unit. Their plug and rate are in the switch's profile or in the site file. Ports below
are reserved for ``rack_slots`` nodes. In a rack without such a switch the out-of-band fabric serves them, if
one is declared: devices after the nodes in the order of the site file, switches from the end of the rack's window by
rack unit, with free slots counted if the window has room for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rackready.design.cabling.other import Near, OtherWiring
from rackready.design.cabling.sockets import Socket, SwitchPorts, switch_ports
from rackready.design.cabling.types import CableRun, Racked
from rackready.design.names import listed
from rackready.design.nic_use import used_ports
from rackready.design.other_fabrics import CALLED, Served
from rackready.model.base import expand_range
from rackready.model.profile import ManagementPort
from rackready.model.site import Rack, Site, Switch
from rackready.profiles import loader

_SHOWN = 4


class Managed(NamedTuple):
    """Data that the steps share.

    ``serving``: (rack, network) -> the switches that the site file puts there; ``places``: switch -> (rack, unit).
    """

    site: Site
    racked: Racked
    serving: Mapping[tuple[str, str], Sequence[Switch]]
    wiring: OtherWiring
    places: Mapping[str, tuple[str, int]]


class _Item(NamedTuple):
    """An item managed out of band: its place, its port, and the reason if it has none."""

    name: str
    rack: str
    unit: int
    port: ManagementPort | None
    why: str
    switch: bool


def management(work: Managed, models: Mapping[str, str]) -> tuple[list[CableRun], list[str]]:
    """Return the runs of management and device ports, and notes on missing ones. ``models``: switch -> model."""
    runs: list[CableRun] = []
    missing: dict[str, list[str]] = {}
    in_rack = _InRack(work)
    far: dict[str, list[_Item]] = defaultdict(list)
    for item in _items(work, models):
        found = in_rack.run(item)
        if isinstance(found, CableRun):
            runs.append(found)
        elif found is None:
            far[item.rack].append(item)
        else:
            missing.setdefault(found, []).append(item.name)
    notes = [
        f"out-of-band: management ports of {_some(names)} are not cabled: {why}." for why, names in missing.items()
    ]
    left: dict[tuple[str, str], list[str]] = {}
    told = _device_ports(work.site)
    for rack in work.site.racks:
        for role in ("in_band", "storage", "oob"):
            items = far.get(rack.name, []) if role == "oob" else []
            wanted = [
                *told.get((rack.name, role), []),
                *((item.name, [_near(item)]) for item in items if not item.switch),
            ]
            if wanted or items:
                runs += _window(work, (rack, role), wanted, items, left)
    return runs, notes + [
        f"{CALLED[role]}: ports of {_some(names)} are not cabled: {why}." for (role, why), names in left.items()
    ]


def _items(work: Managed, models: Mapping[str, str]) -> Iterator[_Item]:
    """Yield switches, those of all fabrics included, and devices.

    Out-of-band switches are left out: they are managed over their own network.
    """
    roles = {switch.name: switch.role for switch in work.site.switches} | work.wiring.roles()
    for name, model in models.items():
        if roles.get(name) != "oob":
            rack, unit = work.places.get(name, ("", 0))
            why = f"the management port of {model} is not published in its profile"
            yield _Item(name, rack, unit, loader.switch(model).management, why, switch=True)
    for device in work.site.devices:
        if device.kind != "patch_panel":
            why = f"the site does not define the management port of devices of kind {device.kind} (management)"
            yield _Item(device.name, device.rack or "", device.unit or 0, device.management, why, switch=False)


class _InRack:
    """The out-of-band switch in a rack, and its first port that no node takes."""

    def __init__(self, work: Managed) -> None:
        self._work = work
        self._first = {rack: switches[0] for (rack, role), switches in work.serving.items() if role == "oob"}
        racks = [rack for rack in work.site.racks if rack.name in self._first]
        self._below = {
            rack.name: _node_ports(work.site, rack, len(work.serving.get((rack.name, "oob"), []))) for rack in racks
        }

    def run(self, item: _Item) -> CableRun | str | None:
        """Return the run of an item, the reason if it has none, or None if a declared fabric serves it."""
        switch = self._first.get(item.rack)
        if switch is None:
            if item.rack and self._work.wiring.served("oob", item.rack) is not None:
                return None if item.port is not None else item.why
            return (
                "no out-of-band switch is in their rack, and no declared fabric serves it"
                if item.rack
                else "the site does not place them in a rack"
            )
        if item.port is None or not item.unit:
            return item.why if item.port is None else "they have no unit in their rack"
        found = self._socket(switch, item.port, item)
        return found if isinstance(found, str) else self._joined(item, item.port, switch, found)

    def _socket(self, switch: Switch, port: ManagementPort, item: _Item) -> tuple[SwitchPorts, Socket] | str:
        ports = switch_ports(switch.model, port.rate)
        number = len(ports.sockets) - item.unit if ports is not None else -1
        if ports is None or ports.sockets[0].form != port.cage:
            return f"{switch.model} has no {port.cage} ports of {port.rate} Gb/s"
        if number < self._below[item.rack]:
            return f"{switch.name} has {len(ports.sockets)} ports, too few for its rack"
        return ports, ports.sockets[number]

    def _joined(self, item: _Item, port: ManagementPort, switch: Switch, found: tuple[SwitchPorts, Socket]) -> CableRun:
        (ports, socket), racked = found, self._work.racked
        near = racked.cage(racked.device(item.name, item.rack, item.unit), port.name, port.cage)
        far = racked.cage(
            racked.device(switch.name, item.rack, switch.unit or 0), socket.cage, socket.form, socket.connectors
        )
        return CableRun(
            near, port.name, 0, far, socket.port, socket.sub, racked.link(port.rate, ports.lanes, "oob", ports.layer)
        )


def _node_ports(site: Site, rack: Rack, switches: int) -> int:
    """Return how many ports of one out-of-band switch are reserved for a rack's nodes."""
    metal = [(node.slot or place, node) for place, node in enumerate(rack.nodes, 1) if node.kind == "metal"]
    most = max((sum(role == "oob" for _, role in used_ports(site, node)) for _, node in metal), default=0)
    slots = (
        site.networks.rack_slots if site.networks is not None and metal else max((slot for slot, _ in metal), default=0)
    )
    return slots * -(-most // max(1, switches))


ZERO_U = 1
"""Unit from which the cable of a device beside the units (a zero-U PDU) is measured.

The foot of the rack has the longest way to the tray. Judgement.
"""


_Wanted = Sequence[tuple[str, list[Near]]]
"""Devices by name, each with its ports."""


def _window(
    work: Managed, at: tuple[Rack, str], wanted: _Wanted, items: Sequence[_Item], left: dict[tuple[str, str], list[str]]
) -> Iterator[CableRun]:
    """Yield the runs of a rack's devices and switches in its window of the leafs that serve it in one network."""
    rack, role = at
    served = work.wiring.served(role, rack.name)
    switches = sorted((item for item in items if item.switch), key=lambda item: (item.unit, item.name))
    if served is None:
        why = f"no declared fabric of the {CALLED[role]} network serves their rack"
        left.setdefault((role, why), []).extend(name for name, _ in wanted)
        return
    offsets, end = _offsets(served, work.wiring.reserved_ports(served, rack), wanted)
    if not work.wiring.note_need(served, rack.name, end + -(-len(switches) // served.fabric.leafs)):
        return  # a problem of the fabric, reported once for all racks
    found: list[tuple[str, CableRun | str]] = []
    for offset, (name, ports) in zip(offsets, wanted, strict=True):
        found += [(name, work.wiring.device(served, offset, place, near)) for place, near in enumerate(ports)]
    kept = _units(work.site, rack.name) | {item.unit for item in switches}
    # With a port reserved for every slot of the rack, a switch added later moves no cable of another.
    by_slot = work.wiring.fits(served, end + -(-len(kept) // served.fabric.leafs))
    places = (
        {unit: place for place, unit in enumerate(sorted(kept))}
        if by_slot
        else {item.unit: place for place, item in enumerate(switches)}
    )
    found += [(item.name, work.wiring.top(served, places[item.unit], _near(item))) for item in switches]
    for name, run in found:
        if isinstance(run, str):
            left.setdefault((role, run), []).append(name)
        else:
            yield run


def _units(site: Site, rack: str) -> set[int]:
    """Return the units of a rack reserved for switches that are managed out of band."""
    oob = {fabric.name for fabric in site.other_fabrics if fabric.role == "oob"}
    slots = [slot for slot in site.switch_slots if slot.rack == rack and slot.fabric not in oob]
    return {int(unit) for slot in slots for unit in expand_range(slot.units)[:: slot.step]}


def _offsets(served: Served, first: int, wanted: _Wanted) -> tuple[list[int], int]:
    """Return the first port of each device in the window, and the end of the last. Single ports alternate leafs."""
    out, place = [], first * served.fabric.leafs
    for _, ports in wanted:
        if len(ports) > 1:
            place = -(-place // served.fabric.leafs) * served.fabric.leafs
        out.append(place)
        place += len(ports)
    return out, -(-place // served.fabric.leafs)


def _device_ports(site: Site) -> dict[tuple[str, str], list[tuple[str, list[Near]]]]:
    """Return the device ports in the site file, by rack and network."""
    out: dict[tuple[str, str], list[tuple[str, list[Near]]]] = {}
    for device in site.devices:
        by_role: dict[str, list[Near]] = {}
        for port in device.ports:
            by_role.setdefault(port.network, []).append(
                Near(device.name, device.rack or "", device.unit or ZERO_U, port.name, port.rate, port.cage)
            )
        for role, ports in by_role.items():
            out.setdefault((device.rack or "", role), []).append((device.name, ports))
    return out


def _near(item: _Item) -> Near:
    port = item.port
    return Near(
        item.name,
        item.rack,
        item.unit or ZERO_U,
        port.name if port else "",
        port.rate if port else 0,
        port.cage if port else "",
    )


def _some(names: list[str]) -> str:
    """Return a few names as they are; many as their number with the first."""
    return listed(names) if len(names) <= _SHOWN else f"{len(names)} switches and devices ({names[0]}, ...)"
