"""Checks of cables and rails: every end exists, none is used twice, and nodes of a rail can reach each other."""

from __future__ import annotations

from collections import defaultdict

from rackready.design.qos import qos_facts
from rackready.design.site_flaws import RAIL_ADDRESS, Flaw, Lost, Subject
from rackready.design.switch_systems import system_of
from rackready.design.written_ports import Ports, group_ports, ports_of, whole_ports
from rackready.model.base import expand_range
from rackready.model.site import Link, Site
from rackready.profiles import loader

_POLARITY = "B"
"""Polarity of the planned fibres: NVIDIA Interconnect Structured Cabling Requirements, as in ``profiles/parts``."""


def check_links(subject: Subject) -> list[Flaw]:
    """Return problems with cables."""
    site = subject.site
    out: list[Flaw] = []
    ports = _ports(site)
    rails = _rails(site)
    names = {node.name for node in site.nodes()}
    switches = {switch.name for switch in site.switches}
    used: dict[tuple[str, str], str] = {}
    for k, link in enumerate(site.links):
        out += _node_end(k, link, rails, names, subject.lost)
        if link.switch in ports or link.switch not in switches:
            out += _switch_end(k, link, ports, subject.lost)
        listed = ports.get(link.switch, Ports()).listed(link.ports)
        for role, device, parts in (("ports", link.switch, listed), ("rails", link.node, expand_range(link.rails))):
            for part in parts:
                before = used.setdefault((device, f"{role}:{part}"), f"links[{k}]")
                if before != f"links[{k}]":
                    noun = "port" if role == "ports" else "rail"
                    out.append(
                        Flaw(
                            ("links", k, role),
                            f"{noun} {part} of {device} is cabled already.",
                            "Correct one of the two links: each port takes one cable.",
                            kind="cabled",
                        )
                    )
    if not subject.lost.any("links", "nodes", "switches", "topology") and site.topology is None:
        out += _uncabled(site, rails, used) + _split_rails(site)
    return out


def _ports(site: Site) -> dict[str, Ports]:
    """Return the ports of every switch; ports with breakout as their sub-ports (swp1s0, swp1s1, ...).

    A switch whose model is unknown, or does not run its system, is left out: its ports have other names.
    """
    known = set(loader.known("switch"))
    return {
        switch.name: ports_of(switch)
        for switch in site.switches
        if switch.model in known and (not switch.os or switch.os in loader.switch(switch.model).os)
    }


def check_ports(subject: Subject) -> list[Flaw]:
    """Return problems with port settings of switches: ports that do not exist, are given twice or cannot be split."""
    known = set(loader.known("switch"))
    out: list[Flaw] = []
    for s, switch in enumerate(subject.site.switches):
        if switch.model not in known:
            continue
        profile = loader.switch(switch.model)
        offered, seen = whole_ports(switch), set[str]()
        for g, group in enumerate(switch.ports):
            here = ("switches", s, "ports", g)
            ports = group_ports(switch, group)
            missing = [port for port in ports if port not in offered]
            if missing:
                out.append(
                    Flaw.of(
                        (*here, "ports"),
                        f"{switch.name} has no port {', '.join(missing)}",
                        "Correct the range.",
                        expected=f"{offered[0]} to {offered[-1]}",
                    )
                )
            if seen & set(ports):
                out.append(
                    Flaw(
                        (*here, "ports"),
                        f"{group.ports} of {switch.name} is already in another group.",
                        "Keep each port in one group.",
                        kind="twice",
                    )
                )
            if group.breakout != 1 and group.breakout not in profile.breakout:
                ways = ", ".join(str(way) for way in profile.breakout)
                out.append(
                    Flaw.of(
                        (*here, "breakout"),
                        f"a port of {profile.id} cannot be split into {group.breakout}",
                        "Correct it, or describe the switch in a profile of your own.",
                        expected=f"one of {ways}",
                    )
                )
            if group.cage is not None and profile.cage is not None and group.cage != profile.cage:
                out.append(
                    Flaw.of(
                        (*here, "cage"), f"cage of {profile.id}", "Remove it.", expected=profile.cage, actual=group.cage
                    )
                )
            if group.polarity not in {None, _POLARITY}:
                out.append(
                    Flaw.of(
                        (*here, "polarity"),
                        f"polarity {group.polarity}",
                        "Correct it, or leave it out.",
                        expected=f"{_POLARITY}, because the fibres in profiles/parts are crossed over (TIA-568 type "
                        f"{_POLARITY})",
                    )
                )
            seen |= set(ports)
    return out


def _rails(site: Site) -> dict[str, list[int]]:
    known = set(loader.known("platform"))
    # A virtual node has no NIC that a cable could end on; its host has.
    return {
        node.name: [nic.rail for nic in loader.platform(node.platform).nics] if node.kind == "metal" else []
        for node in site.nodes()
        if node.platform in known
    }


def _node_end(k: int, link: Link, rails: dict[str, list[int]], known: set[str], lost: Lost) -> list[Flaw]:
    """Return the problems of a cable's end at a node. A node of ``known`` without rails has an unknown server model."""
    out = []
    if link.node in rails:
        for rail in expand_range(link.rails):
            if not rail.isdigit() or int(rail) not in rails[link.node]:
                have = f"{min(rails[link.node])} to {max(rails[link.node])}" if rails[link.node] else "none"
                out.append(
                    Flaw.of(
                        ("links", k, "rails"), f"{link.node} has no rail {rail}", "Correct the rail.", expected=have
                    )
                )
    elif link.node not in known and not lost.of("nodes")(link.node):
        out.append(Flaw(("links", k, "node"), f"no node is called {link.node}.", "Correct the name."))
    return out


def _switch_end(k: int, link: Link, ports: dict[str, Ports], lost: Lost) -> list[Flaw]:
    """Return the problems of a cable's end at a switch whose ports are known, or which is not in the site file."""
    out = []
    listed = ports.get(link.switch, Ports()).listed(link.ports)
    if link.switch in ports:
        offered = ports[link.switch].names
        missing = [port for port in listed if port not in offered]
        if missing:
            out.append(
                Flaw.of(
                    ("links", k, "ports"),
                    f"{link.switch} has no port {', '.join(missing)}",
                    "Correct the port.",
                    expected=f"{offered[0]} to {offered[-1]}",
                )
            )
    elif not lost.of("switches")(link.switch):
        out.append(Flaw(("links", k, "switch"), f"no switch is called {link.switch}.", "Correct the name."))
    if len(expand_range(link.rails)) != len(listed):
        text = f"{len(expand_range(link.rails))} rails, but {len(listed)} ports."
        out.append(Flaw(("links", k), text, "List as many ports as rails."))
    return out


def _uncabled(site: Site, rails: dict[str, list[int]], used: dict[tuple[str, str], str]) -> list[Flaw]:
    out = []
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            bare = [rail for rail in rails.get(node.name, []) if (node.name, f"rails:{rail}") not in used]
            if bare:
                text = f"rail {', '.join(str(rail) for rail in bare)} of {node.name} has no cable."
                out.append(Flaw(("racks", r, "nodes", n), text, "Add it to links."))
    return out


def _split_rails(site: Site) -> list[Flaw]:
    """Return rails that end on several leafs.

    Without a spine, nodes can reach each other within a rail only if the whole rail ends on one switch.
    """
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for k, link in enumerate(site.links):
        for rail in expand_range(link.rails):
            ends[rail].setdefault(link.switch, k)
    return [
        Flaw(
            ("links", max(switches.values()), "switch"),
            f"rail {rail} ends on {', '.join(sorted(switches))}, and no spine connects them.",
            "Cable each rail to one leaf.",
            kind="split",
        )
        for rail, switches in sorted(ends.items())
        if len(switches) > 1
    ]


def check_fabric(subject: Subject) -> list[Flaw]:
    """Return problems with rails, subnets, VLANs and MTU."""
    site = subject.site
    out: list[Flaw] = []
    fabric = site.fabric
    highest = max((site.position_of(node.name) for node in site.nodes()), default=0)
    if fabric.mtu > fabric.switch_mtu:
        text = (
            f"{fabric.mtu} bytes on hosts is more than {fabric.switch_mtu} on switch ports: switches would drop large "
            "frames."
        )
        hint = "Lower it, or raise fabric.switch_mtu."
        out.append(Flaw(("fabric", "mtu"), text, hint, (("fabric", "switch_mtu"),)))
    out += _qos(site) + _switch_mtu(site)
    for noun, key in (("rail", "rail"), ("VLAN", "vlan")):
        seen: set[int] = set()
        for k, rail in enumerate(fabric.rails):
            value = getattr(rail, key)
            if value in seen:
                out.append(
                    Flaw(("fabric", "rails", k, key), f"{noun} {value} is given twice.", "Give each rail its own.")
                )
            seen.add(value)
    for k, rail in enumerate(fabric.rails):
        clash = next((other for other in fabric.rails[:k] if other.subnet.overlaps(rail.subnet)), None)
        if clash:
            text = f"subnet {rail.subnet} overlaps the subnet of rail {clash.rail} ({clash.subnet})."
            where, step = ("fabric", "rails", k, "subnet"), "Give each rail its own subnet."
            out.append(Flaw(where, text, step, about=RAIL_ADDRESS, kind="overlap"))
        room = rail.subnet.num_addresses - 2 - 10
        if len(site.nodes()) > room:
            text = f"subnet {rail.subnet} has room for {max(room, 0)} nodes, but the site has {len(site.nodes())}."
            out.append(Flaw(("fabric", "rails", k, "subnet"), text, "Give the rail a larger subnet."))
        elif highest > room:
            text = f"subnet {rail.subnet} has room for node numbers up to {room}, but the site has {highest}."
            out.append(Flaw(("fabric", "rails", k, "subnet"), text, "Give the rail a larger subnet."))
    wanted = {rail for rails in _rails(site).values() for rail in rails}
    missing = sorted(wanted - {rail.rail for rail in fabric.rails})
    planned = fabric.kind == "infiniband" or (site.networks is not None and site.networks.compute is not None)
    if missing and not subject.lost.any("rails") and not planned:
        out.append(
            Flaw(
                ("fabric", "rails"),
                f"rail {', '.join(str(rail) for rail in missing)} of the platform is missing.",
                "Add the rail with its VLAN and subnet.",
                (("fabric", "kind"), ("networks", "compute")),
            )
        )
    return out


def _switch_mtu(site: Site) -> list[Flaw]:
    known = {os: system_of(os) for os in sorted({switch.os for switch in site.switches})}
    return [
        Flaw.of(
            ("fabric", "switch_mtu"),
            f"ports of {os} do not take this MTU",
            "Lower it; fabric.mtu must not be more.",
            expected=f"at most {system.most_mtu} bytes",
            actual=site.fabric.switch_mtu,
        )
        for os, system in known.items()
        if system is not None and site.fabric.switch_mtu > system.most_mtu
    ]


def _qos(site: Site) -> list[Flaw]:
    """Return QoS values that a switch of the site cannot apply, so that they are reported before the fabric phase."""
    qos, out = site.fabric.qos, []
    if qos.dscp == qos.cnp_dscp and qos.priority != qos.cnp_priority:
        out.append(
            Flaw.of(
                ("fabric", "qos", "cnp_dscp"),
                f"DSCP {qos.dscp} has two priorities ({qos.priority} for data, {qos.cnp_priority} for congestion "
                "notification)",
                "Give congestion notification its own DSCP.",
                expected="a DSCP other than dscp",
                actual=qos.cnp_dscp,
                reads=tuple(("fabric", "qos", key) for key in ("dscp", "priority", "cnp_priority")),
            )
        )
    systems = [(os, system_of(os)) for os in sorted({switch.os for switch in site.switches if switch.os})]
    return out + [
        Flaw.of(
            ("fabric", "qos", problem.key),
            problem.what,
            problem.hint,
            expected=problem.expected,
            actual=problem.actual,
        )
        for os, system in systems
        if system is not None
        for problem in system.problems(os, qos_facts(qos))
    ]
