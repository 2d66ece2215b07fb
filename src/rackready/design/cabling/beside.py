"""Cables of ports beside the compute fabric: in-band, storage and out-of-band.

A node's port is served by a switch of its network in the node's own rack (one that the site file lists), else by the
fabric of its network that serves the rack (``other_fabrics``). Both rules depend on nothing else, so an added rack
moves no cable. In its own rack node slot ``s`` (its number in the rack) with ``k`` ports on a switch takes the switch's
ports from ``(s - 1) x k + 1``; for a fabric's leafs see ``other_ports``. A port that has neither, or has another rate,
is counted in a note; if a fabric is declared, it is a problem. Ports that are unused on purpose are counted too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rackready.design.cabling.management import Managed, management
from rackready.design.cabling.other import Near, OtherWiring
from rackready.design.cabling.sockets import flat, switch_ports
from rackready.design.cabling.types import CableRun, NodePort, Racked
from rackready.design.names import listed
from rackready.design.nic_use import ROLES, unused_ports, used_ports
from rackready.design.other_fabrics import CALLED, Served
from rackready.model.problems import Problem
from rackready.model.profile import OtherNic
from rackready.model.site import Node, Rack, Site, Switch
from rackready.profiles import loader

_Places = Mapping[str, tuple[str, int]]


@dataclass(slots=True)
class Beside:
    """Runs and notes. ``ports``: number of node ports cabled, unused on purpose, or not cabled, by shared facts."""

    runs: list[CableRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ports: Counter[NodePort] = field(default_factory=Counter)


def beside(site: Site, racked: Racked, places: _Places, models: Mapping[str, str]) -> Beside:
    """Return the cables beside the compute fabric. ``places``: switch -> (rack, unit); ``models``: switch -> model."""
    serving: dict[tuple[str, str], list[Switch]] = defaultdict(list)
    for switch in site.switches:
        if switch.rack is not None and switch.unit is not None and switch.role != "compute":
            serving[switch.rack, switch.role].append(switch)
    wiring = OtherWiring(site, racked, dict(places))
    work = _Work(site, racked, serving, wiring, Beside())
    for rack in site.racks:
        _rack(work, rack)
    runs, notes = management(Managed(site, racked, serving, wiring, places), models)
    out = work.out
    out.runs += runs
    out.runs += wiring.trunks()
    out.notes += [*_left(work), *notes, *wiring.finish()]
    out.problems += wiring.problems
    return out


class _Work(NamedTuple):
    """Data that the steps share."""

    site: Site
    racked: Racked
    serving: Mapping[tuple[str, str], Sequence[Switch]]
    wiring: OtherWiring
    out: Beside


def _left(work: _Work) -> Iterator[str]:
    """Yield notes on ports without a cable; ports that a declared fabric should serve are added to the problems."""
    out = work.out
    unused: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    missing: Counter[tuple[str, str, bool]] = Counter()
    for port, count in out.ports.items():
        if port.state == "unused":
            names = unused[port.network, port.why]
            names[f"{port.port} of {port.platform}"] = names.get(f"{port.port} of {port.platform}", 0) + count
        elif port.state == "not_cabled":
            missing[port.network, port.why, port.declared] += count
    for (role, why, declared), count in sorted(missing.items()):
        text = f"{CALLED[role]}: {count} ports of nodes are not cabled: {why}."
        if declared:
            hint = "Correct the fabric, or declare the ports unused in a NIC plan."
            out.problems.append(Problem("other_fabrics", f"{text} {hint}"))
        else:
            yield text
    for (role, why), names in sorted(unused.items()):
        yield f"{CALLED[role]}: {sum(names.values())} ports of nodes are unused on purpose ({listed(names)}): {why}"


def _rack(work: _Work, rack: Rack) -> None:
    for place, node in enumerate(rack.nodes, 1):
        if node.kind == "virtual":
            continue
        for name, why in unused_ports(work.site, node).items():
            nic = next(nic for nic in loader.platform(node.platform).other_nics if nic.name == name)
            work.out.ports[NodePort(node.platform, name, ROLES[nic.role], "unused", why, declared=False)] += 1
        by_role: dict[str, list[OtherNic]] = defaultdict(list)
        for nic, network in used_ports(work.site, node):
            by_role[network].append(nic)
        for role, nics in by_role.items():
            _ports(work, rack, (node, node.slot or place), role, nics)


def _ports(work: _Work, rack: Rack, at: tuple[Node, int], role: str, nics: list[OtherNic]) -> None:
    """Cable the ports of one node in one network, and count them."""
    node, slot = at
    switches = work.serving.get((rack.name, role), [])
    served = None if switches else work.wiring.served(role, rack.name)
    # Missing slots and racks that do not fit are already problems of the fabric.
    declared = (
        served is not None
        and work.wiring.placed(served)
        and work.wiring.note_need(served, rack.name, work.wiring.reserved_ports(served, rack))
    )
    own = _Own(role, switches, -(-len(nics) // len(switches))) if switches else None
    for count, nic in enumerate(nics):
        if own is not None:
            found = _in_rack(work, rack, (node, slot), own, (count, nic))
        elif served is not None:
            found = _from_fabric(work, rack, (node, slot), served, (len(nics), count, nic))
        else:
            found = f"no {CALLED[role]} switch is in their rack, and no declared fabric serves it"
        if isinstance(found, str):
            work.out.ports[NodePort(node.platform, nic.name, role, "not_cabled", found, declared=declared)] += 1
        else:
            work.out.runs.append(found)
            work.out.ports[NodePort(node.platform, nic.name, role, "cabled", "", declared=False)] += 1


def _from_fabric(
    work: _Work, rack: Rack, at: tuple[Node, int], served: Served, port: tuple[int, int, OtherNic]
) -> CableRun | str:
    (node, slot), (ports, count, nic) = at, port
    if node.unit is None:
        return "their node has no unit"
    if not work.wiring.note_need(served, rack.name, work.wiring.reserved_ports(served, rack)):
        return f"{served.fabric.name} has too few ports of their rate for its racks"
    return work.wiring.node(
        served, slot, ports, count, Near(node.name, rack.name, node.unit, nic.name, nic.rate, nic.cage or "")
    )


class _Own(NamedTuple):
    """Switches of one network in the rack itself. ``each``: ports of one node on each of them."""

    role: str
    switches: Sequence[Switch]
    each: int


def _in_rack(work: _Work, rack: Rack, at: tuple[Node, int], own: _Own, port: tuple[int, OtherNic]) -> CableRun | str:
    (node, slot), (count, nic) = at, port
    switch = own.switches[count % len(own.switches)]
    number = (slot - 1) * own.each + count // len(own.switches)
    ports = switch_ports(switch.model, nic.rate)
    if ports is None:
        return f"{switch.model} has no ports of {nic.rate} Gb/s"
    if number >= len(ports.sockets):
        return f"{switch.name} has {len(ports.sockets)} ports, too few for its rack"
    if node.unit is None or switch.unit is None:
        return "their node has no unit"
    socket = ports.sockets[number]
    if not nic.cage or not socket.form:
        return f"the cage of {node.platform} or of {switch.model} is not published"
    racked = work.racked
    near = racked.cage(
        racked.device(node.name, rack.name, node.unit), nic.name, flat(nic.cage), max(1, ports.lanes // 4)
    )
    far = racked.cage(racked.device(switch.name, rack.name, switch.unit), socket.cage, socket.form, socket.connectors)
    return CableRun(
        near, nic.name, 0, far, socket.port, socket.sub, racked.link(nic.rate, ports.lanes, own.role, ports.layer)
    )
