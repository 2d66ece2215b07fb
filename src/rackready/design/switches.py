"""The configuration of one switch as plain data: the input of templates, and the reference for a read-back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface

from rackready.design.adaptive_routing import adaptive_problems, wants_adaptive
from rackready.design.addresses_fabric import SwitchAddresses, switch_addresses
from rackready.design.ecn import EcnThresholds, at_speed
from rackready.design.facts import SwitchFacts, node_facts, switch_facts
from rackready.design.overlay import Vrf, isolated, unable
from rackready.design.qos import QosFacts, qos_facts
from rackready.design.switch_systems import system_of
from rackready.design.topology.ports import breakout_of, port_names
from rackready.design.wiring import TrunkEnd, compute_rate, topology_fabric, trunk_ends
from rackready.design.written_ports import group_ports, own_ports, whole_ports
from rackready.model.network import Tenant
from rackready.model.problems import Problem, RackreadyError
from rackready.model.site import Site

MARK = "(rackready)"
"""End of the description of every port that rackready configures, so that operators and rackready recognize it."""
_RS_FROM = 100


class QosUnsupportedError(RackreadyError):
    """The site asks for QoS values that the switch's system cannot apply."""


class UnderlayUnsupportedError(RackreadyError):
    """The switch's system does not route over the site's kind of links between switches."""


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One cabled port, after breakout. ``mtu`` in bytes.

    A port to a NIC has ``node``, ``netdev`` and ``rail``, and is an access port of ``vlan``. A port to another switch
    has ``peer``, ``peer_port`` and ``peer_asn``, and is routed (``vlan`` None): numbered with ``address`` (with its
    prefix length) and ``peer_address``, else unnumbered.
    """

    name: str
    node: str
    netdev: str
    rail: int
    vlan: int | None
    mtu: int
    description: str
    speed: int | None = None
    """Gb/s per direction; None: the switch negotiates it."""
    fec: str | None = None
    """rs, fc or off; None: the switch's own choice."""
    peer: str = ""
    peer_port: str = ""
    peer_asn: int = 0
    address: str = ""
    peer_address: str = ""
    ecn: EcnThresholds | None = None
    """ECN thresholds of its RoCE queue: the site's for its speed, else those of the switch system; None: not known."""

    @property
    def far_end(self) -> str:
        """Return the device and port at the other end of the cable."""
        return f"{self.peer} {self.peer_port}" if self.peer else f"{self.node} {self.netdev}"

    @property
    def nodes(self) -> list[str]:
        """Return the node at the other end, if there is one."""
        return [self.node] if self.node else []


@dataclass(frozen=True, slots=True)
class Breakout:
    """A port that is split. ``speed``: Gb/s of each of its ``ways`` sub-ports, which ``sub_ports`` names in order."""

    port: str
    ways: int
    speed: int
    sub_ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The switch's own address in the subnet of a VLAN, with prefix length: the gateway of that rail's NICs.

    ``vrf``: the tenant's; empty: the fabric's own.
    """

    vlan: int
    address: str
    vrf: str = ""


@dataclass(frozen=True, slots=True)
class Routing:
    """eBGP between the switches (RFC 7938): one session per cable, BFD, all paths used (ECMP).

    A switch announces its ``loopback`` (/32; empty: none) and the subnets of its gateways, nothing else.
    """

    asn: int
    loopback: str
    bfd_interval_ms: int = 300
    bfd_multiplier: int = 3
    """3 x 300 ms: NVIDIA's Config Manager, SuperPOD templates (vrf.j2 @52f4a837)."""


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """Intent of one switch. ``routing`` is None where rails are L2 only and nothing connects the leafs."""

    name: str
    os: str
    vlans: tuple[int, ...]
    ports: tuple[PortConfig, ...]
    qos: QosFacts
    breakouts: tuple[Breakout, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    routing: Routing | None = None
    adaptive_routing: bool = False
    """Whether the ports to other switches choose the path of each packet by their load."""
    overlay: bool = False
    """Whether the fabric isolates tenants: all its switches pass on the routes of VRFs."""
    vrfs: tuple[Vrf, ...] = ()
    """Those of the tenants with nodes at the switch."""

    @property
    def ecn_profiles(self) -> tuple[EcnThresholds, ...]:
        """Return the site's ECN thresholds that a port of the switch has, by speed."""
        used = {port.ecn for port in self.ports}
        return tuple(one for one in self.qos.ecn if one in used)

    @property
    def announced(self) -> tuple[str, ...]:
        """Return the prefixes that the switch announces: its loopback and the subnets of its gateways."""
        loopback = (f"{self.routing.loopback}/32",) if self.routing is not None and self.routing.loopback else ()
        own = [gateway for gateway in self.gateways if not gateway.vrf]
        return (*loopback, *(str(IPv4Interface(gateway.address).network) for gateway in own))


def switch_config(site: Site, name: str) -> SwitchConfig:
    """Return the desired state of one switch.

    Raises KeyError if unknown, QosUnsupportedError and UnderlayUnsupportedError for what its system does not support.
    """
    facts = switch_facts(site, name)
    qos = qos_facts(site.fabric.qos)
    system = system_of(facts.switch.os)
    problems = system.problems(facts.switch.os, qos) if system is not None else []
    if problems:
        raise QosUnsupportedError.of(
            Problem.of(f"fabric.qos.{one.key}", one.what, one.hint, expected=one.expected, actual=one.actual)
            for one in problems
        )
    if system is not None and trunk_ends(site).get(name):
        _check_underlay(site, facts.switch.os, system.underlay)
    refused = [*adaptive_problems(site, frozenset({name})), *unable(site, frozenset({name}))]
    if refused:
        raise UnderlayUnsupportedError.of(refused)
    lines, owners = _port_lines(site, facts), isolated(site)
    order = {port: place for place, port in enumerate(lines.order)}
    ports = [
        PortConfig(
            port.port,
            port.node,
            port.netdev,
            port.rail,
            port.vlan,
            facts.mtu,
            f"{port.description} {MARK}",
            *lines.of(port.port),
        )
        for port in facts.ports
    ] + [_trunk(site, end, facts.mtu, lines) for end in trunk_ends(site).get(name, [])]
    ports = sorted((_with_ecn(site, facts, qos, port) for port in ports), key=lambda port: order[port.name])
    return SwitchConfig(
        name,
        facts.switch.os,
        facts.vlans,
        tuple(ports),
        qos,
        lines.breakouts({port.name for port in ports}),
        gateways_of(site, name, dict.fromkeys(port.node for port in facts.ports)),
        routing_of(site, name),
        adaptive_routing=wants_adaptive(site) and bool(trunk_ends(site).get(name)),
        overlay=bool(owners) and bool(trunk_ends(site).get(name)),
        vrfs=_vrfs(owners[port.node] for port in facts.ports if port.node in owners),
    )


def _vrfs(owners: Iterable[Tenant]) -> tuple[Vrf, ...]:
    found = {Vrf(tenant.vrf, tenant.vni) for tenant in owners if tenant.vrf is not None and tenant.vni is not None}
    return tuple(sorted(found, key=lambda vrf: vrf.name))


def _with_ecn(site: Site, facts: SwitchFacts, qos: QosFacts, port: PortConfig) -> PortConfig:
    """Return a port with its ECN thresholds. One whose speed is negotiated has that of its NIC, if it can."""
    system = system_of(facts.switch.os)
    nics = node_facts(site, port.node).nics if port.node and port.speed is None and qos.ecn else ()
    rate = next((min(nic.rate, facts.profile.rate) for nic in nics if nic.netdev == port.netdev), port.speed or 0)
    own = system.own_ecn if system is not None else None
    return replace(port, ecn=at_speed(rate, qos.ecn) or own)


def _check_underlay(site: Site, os: str, supported: frozenset[str]) -> None:
    links = site.networks.underlay.links if site.networks is not None else "unnumbered"
    if links not in supported:
        raise UnderlayUnsupportedError(
            "networks.underlay.links",
            f"rackready does not route over these links with {os}",
            expected=" or ".join(sorted(supported)),
            actual=links,
            next_step="Use the other kind, or switches of another system.",
        )


def _trunk(site: Site, end: TrunkEnd, mtu: int, lines: _PortLines) -> PortConfig:
    speed, fec = lines.of(end.port)
    return PortConfig(
        end.port,
        "",
        "",
        0,
        None,
        mtu,
        f"{end.peer} {end.peer_port} {MARK}",
        speed,
        fec,
        end.peer,
        end.peer_port,
        as_numbers(site).get(end.peer, 0),
        end.address,
        end.peer_address,
    )


@dataclass(frozen=True, slots=True)
class _PortLines:
    """Speed, FEC and breakout of a switch's ports."""

    order: tuple[str, ...]
    settings: dict[str, tuple[int | None, str | None]]
    split: tuple[Breakout, ...]

    def of(self, port: str) -> tuple[int | None, str | None]:
        return self.settings.get(port, (None, None))

    def breakouts(self, used: set[str]) -> tuple[Breakout, ...]:
        """Return the splits that the cables need: a port without a cable stays as it is."""
        return tuple(one for one in self.split if used.intersection(one.sub_ports))


def _port_lines(site: Site, facts: SwitchFacts) -> _PortLines:
    return _planned_lines(site, facts) if site.topology is not None else _written_lines(facts)


def _planned_lines(site: Site, facts: SwitchFacts) -> _PortLines:
    """Return them for a topology: every port has the rate of its links, and RS-FEC.

    From 100 Gb/s on, links use RS-FEC: 100GBASE-CR4/SR4 (IEEE 802.3 clause 91), and all PAM4 links (clause 119).
    """
    rate, profile = compute_rate(site), facts.profile
    ways = breakout_of(profile, rate) or 1
    whole, names = port_names(profile, 1, facts.switch.os), port_names(profile, ways, facts.switch.os)
    fec = "rs" if rate >= _RS_FROM else None
    split = tuple(
        Breakout(port, ways, rate, names[place * ways : (place + 1) * ways])
        for place, port in enumerate(whole)
        if ways > 1
    )
    return _PortLines(names, dict.fromkeys(names, (rate, fec)), split)


def _written_lines(facts: SwitchFacts) -> _PortLines:
    switch, profile = facts.switch, facts.profile
    whole = list(whole_ports(switch))
    settings: dict[str, tuple[int | None, str | None]] = {}
    split = []
    for group in switch.ports:
        names = port_names(profile, group.breakout, switch.os)
        for port in group_ports(switch, group):
            first = whole.index(port) * group.breakout
            subs = names[first : first + group.breakout]
            speed = group.speed or (profile.rate // group.breakout if group.breakout > 1 else None)
            settings |= dict.fromkeys(subs, (speed, group.fec))
            if group.breakout > 1:
                split.append(Breakout(port, group.breakout, speed or 0, subs))
    return _PortLines(tuple(own_ports(switch)), settings, tuple(split))


def gateways_of(site: Site, name: str, nodes: Iterable[str]) -> tuple[Gateway, ...]:
    """Return the gateways of a leaf's rails; none where no tier above connects the leafs. ``nodes``: its nodes."""
    if not trunk_ends(site).get(name):
        return ()
    found: dict[int, Gateway] = {}
    owners = isolated(site)
    for node in nodes:
        owner = owners.get(node)
        for nic in node_facts(site, node).nics:
            if nic.switch == name and nic.gateway:
                vrf = (owner.vrf if owner is not None else None) or ""
                found[nic.vlan] = Gateway(nic.vlan, f"{nic.gateway}/{nic.prefix}", vrf)
    return tuple(found[vlan] for vlan in sorted(found))


def as_numbers(site: Site) -> dict[str, int]:
    """Return switch -> its AS number, of all switches of the plan."""
    return {own.name: own.asn for own in _addresses(site)}


def _addresses(site: Site) -> tuple[SwitchAddresses, ...]:
    return site.remember("switch addresses", lambda: switch_addresses(site, topology_fabric(site))[0])


def routing_of(site: Site, name: str) -> Routing | None:
    """Return the routing of a switch of the plan; None where nothing connects it with other switches."""
    if not trunk_ends(site).get(name):
        return None
    own = next(item for item in _addresses(site) if item.name == name)
    return Routing(own.asn, own.loopback)
