"""Files that give the rails of a node their addresses, in the words of each network manager; text alone.

Words: systemd.network(5), netplan(5) 0.106, nm-settings-keyfile(5) 1.42, interfaces(5) of ifupdown 0.8.41. No file has
a default route of the node or a name server, and none makes a boot wait for a rail without a link.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

HEAD = "# Written by rackready (role host_roce). The next run replaces changes.\n"
Files = Mapping[str, "tuple[str, int]"]
"""Path to text and mode."""

NETWORKD = "/etc/systemd/network/05-rackready-{}.network"
"""networkd takes the first file, in lexical order, that matches an interface: before 10-netplan-* and installers'."""
NETPLAN = "/etc/netplan/95-rackready-rails.yaml"
NETPLAN_ID = "000-rackready-{}"
"""netplan makes 10-netplan-ID.network of it, which sorts before those of other definitions."""
PROFILE = "/etc/NetworkManager/system-connections/rackready-{}.nmconnection"
PROFILE_ID = "rackready-{}"
DEVICES = "/etc/NetworkManager/conf.d/95-rackready-rails.conf"
STANZAS = "/etc/network/interfaces.d/rackready-rails"
FOREIGN = "/etc/systemd/networkd.conf.d/95-rackready-rails.conf"


@dataclass(frozen=True)
class Way:
    """A route of a rail. ``via`` is empty for a neighbour, ``table`` and ``metric`` are 0 where the system's apply."""

    to: str
    via: str = ""
    table: int = 0
    metric: int = 0


@dataclass(frozen=True)
class HostRail:
    """What one compute interface is to have; ``gateway`` is empty where the fabric is not routed.

    ``path``: udev's ID_PATH, pci-ADDRESS, where it is that of the declared card; else empty.
    """

    netdev: str
    address: str
    mtu: int
    gateway: str = ""
    routes: Sequence[str] = ()
    table: int = 0
    path: str = ""

    @classmethod
    def of(cls, item: Mapping[str, Any], mtu: int, path: str = "") -> HostRail:
        """Return the rail of an entry of host_roce_interfaces."""
        routes, table = item.get("routes", ()), int(item.get("table", 0))
        return cls(item["netdev"], item["address"], mtu, str(item.get("gateway", "")), tuple(routes), table, path)

    @property
    def source(self) -> str:
        """Return the address without its prefix length."""
        return self.address.split("/", maxsplit=1)[0]

    @property
    def ways(self) -> list[Way]:
        """Return the routes: the rail's own table, and the fabric by this rail, with the table's number as metric."""
        if not self.gateway:
            return []
        near = Way(str(ip_interface(self.address).network), table=self.table)
        far = [Way(str(prefix), self.gateway, metric=self.table) for prefix in self.routes]
        return [near, Way("0.0.0.0/0", self.gateway, self.table), *far]

    @property
    def config(self) -> dict[str, Any]:
        """Return the same in the form of roce.py."""
        own = {"gateway": self.gateway, "routes": list(self.routes), "table": self.table} if self.gateway else {}
        return {"netdev": self.netdev, "rdma_device": "", "address": self.address, "mtu": self.mtu, **own}


def networkd(rails: Sequence[HostRail]) -> Files:
    """Return a .network file for each rail.

    ConfigureWithoutCarrier keeps the address while the link is down, and RequiredForOnline lets a boot go on.
    """
    return {NETWORKD.format(rail.netdev): (_network(rail), 0o644) for rail in rails}


def _network(rail: HostRail) -> str:
    sections = [
        ["[Match]", f"Name={rail.netdev}", *([f"Path={rail.path}"] if rail.path else [])],
        ["[Link]", f"MTUBytes={rail.mtu}", "RequiredForOnline=no"],
        ["[Network]", "DHCP=no", "LinkLocalAddressing=ipv6", "IPv6AcceptRA=no", "ConfigureWithoutCarrier=yes"],
    ]
    sections[-1].append(f"Address={rail.address}")
    for way in rail.ways:
        section = ["[Route]", f"Destination={way.to}", f"Gateway={way.via}" if way.via else "Scope=link"]
        section += [f"Table={way.table}"] if way.table else []
        sections.append([*section, *([f"Metric={way.metric}"] if way.metric else [])])
    if rail.gateway:
        rule = [f"From={rail.source}/32", f"Table={rail.table}", f"Priority={rail.table}"]
        sections.append(["[RoutingPolicyRule]", *rule])
    return HEAD + "\n".join("".join(f"{line}\n" for line in section) for section in sections)


def netplan(rails: Sequence[HostRail]) -> Files:
    """Return one netplan file; netplan has no match by PCI address."""
    text = HEAD + "network:\n  version: 2\n  ethernets:\n" + "".join(_definition(rail) for rail in rails)
    return {NETPLAN: (text, 0o600)} if rails else {}


def _definition(rail: HostRail) -> str:
    lines = [f"match: {{name: {_quoted(rail.netdev)}}}", "optional: true", "ignore-carrier: true", "dhcp4: false"]
    lines += ["dhcp6: false", "accept-ra: false", "link-local: [ipv6]", f"mtu: {rail.mtu}"]
    lines.append(f"addresses: [{_quoted(rail.address)}]")
    if rail.gateway:
        lines += ["routes:", *(f"- {{{_way(way)}}}" for way in rail.ways), "routing-policy:"]
        lines.append(f"- {{from: {_quoted(rail.source + '/32')}, table: {rail.table}, priority: {rail.table}}}")
    return f"    {NETPLAN_ID.format(rail.netdev)}:\n" + "".join(f"      {line}\n" for line in lines)


def _way(way: Way) -> str:
    words = [f"to: {_quoted(way.to)}", f"via: {_quoted(way.via)}" if way.via else "scope: link"]
    words += [f"table: {way.table}"] if way.table else []
    return ", ".join([*words, *([f"metric: {way.metric}"] if way.metric else [])])


def _quoted(text: str) -> str:
    return f'"{text}"'


def devices(rails: Sequence[HostRail]) -> Files:
    """Return NetworkManager's settings of the rails' devices.

    ignore-carrier keeps a static address while the link is down (NetworkManager.conf(5)); without it a profile ends a
    few seconds after its link.
    """
    names = ",".join(f"interface-name:={rail.netdev}" for rail in rails)
    text = f"{HEAD}[device-rackready-rails]\nmatch-device={names}\nmanaged=1\nignore-carrier=1\n"
    return {DEVICES: (text, 0o644)} if rails else {}


def profiles(rails: Sequence[HostRail]) -> Files:
    """Return a NetworkManager profile for each rail; it prefers them to others of the same device by their priority."""
    return {PROFILE.format(rail.netdev): (_profile(rail), 0o600) for rail in rails}


def _profile(rail: HostRail) -> str:
    name = PROFILE_ID.format(rail.netdev)
    four = ["method=manual", f"address1={rail.address}", "never-default=true"]
    for number, way in enumerate(rail.ways, 1):
        words = [way.to, *([way.via] if way.via else []), *([str(way.metric)] if way.metric else [])]
        four.append(f"route{number}={','.join(words)}")
        if way.table:  # scope 253 is link (rt_scopes of iproute2)
            four.append(f"route{number}_options=table={way.table}{'' if way.via else ',scope=253'}")
    if rail.gateway:
        four.append(f"routing-rule1=priority {rail.table} from {rail.source}/32 table {rail.table}")
    base = [f"id={name}", f"uuid={uuid.uuid5(uuid.NAMESPACE_DNS, name)}", "type=ethernet"]
    sections = {
        "connection": [*base, f"interface-name={rail.netdev}", "autoconnect=true", "autoconnect-priority=100"],
        "match": [f"path={rail.path}"] if rail.path else [],
        "ethernet": [f"mtu={rail.mtu}"],
        "ipv4": four,
        "ipv6": ["method=link-local", "addr-gen-mode=eui64"],
    }
    return HEAD + "\n".join(
        f"[{section}]\n" + "".join(f"{line}\n" for line in lines) for section, lines in sections.items() if lines
    )


def stanzas(rails: Sequence[HostRail]) -> Files:
    """Return one file of ifupdown.

    auto: at boot; allow-hotplug: when it appears after a reset. Neither needs a link, so a boot does not wait.
    """
    return {STANZAS: (HEAD + "\n".join(_stanza(rail) for rail in rails), 0o644)} if rails else {}


def _stanza(rail: HostRail) -> str:
    lines = [f"address {rail.address}", f"mtu {rail.mtu}"]
    for way in rail.ways:
        words = f"via {way.via} dev $IFACE" if way.via else "dev $IFACE scope link"
        where = f"table {way.table}" if way.table else f"metric {way.metric}"
        lines.append(f"up ip route replace {way.to} {words} {where}")
    if rail.gateway:
        rule = f"from {rail.source} lookup {rail.table} priority {rail.table}"
        gone = f"while ip rule del {rule} 2>/dev/null; do :; done"
        lines += [f"pre-up {gone}", f"up ip rule add {rule}", f"down {gone}"]
    return f"auto {rail.netdev}\nallow-hotplug {rail.netdev}\niface {rail.netdev} inet static\n" + "".join(
        f"    {x}\n" for x in lines
    )


def foreign(rails: Sequence[HostRail]) -> Files:
    """Return networkd's settings where it runs and does not have the rails.

    By default it removes rules and routes of others when it starts (networkd.conf(5)).
    """
    text = f"{HEAD}[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n"
    return {FOREIGN: (text, 0o644)} if any(rail.gateway for rail in rails) else {}
