"""Files for each network manager, line by line; the real programs read them in test_rail_managers.py."""

from __future__ import annotations

from typing import Any

import yaml

from rackready.ondevice import rail_files
from rackready.ondevice.rail_files import HostRail

ITEM: dict[str, Any] = {
    "netdev": "enp24s0np0",
    "pci": "0000:18:00.0",
    "address": "10.8.1.11/24",
    "gateway": "10.8.1.1",
    "routes": ["10.8.0.0/16"],
    "table": 20001,
}
ROUTED = HostRail.of(ITEM, 9000, "pci-0000:18:00.0")
FLAT = HostRail.of({key: ITEM[key] for key in ("netdev", "address")}, 4200)


def text(files: rail_files.Files, mode: int) -> list[str]:
    """Return the lines of the one file, whose mode is right."""
    [(found, has)] = files.values()
    assert has == mode
    assert found.startswith(rail_files.HEAD)
    return found.removeprefix(rail_files.HEAD).splitlines()


def test_networkd_matches_name_and_card_and_needs_no_link() -> None:
    assert list(rail_files.networkd([ROUTED])) == ["/etc/systemd/network/05-rackready-enp24s0np0.network"]
    assert text(rail_files.networkd([ROUTED]), 0o644) == [
        "[Match]",
        "Name=enp24s0np0",
        "Path=pci-0000:18:00.0",
        "",
        "[Link]",
        "MTUBytes=9000",
        "RequiredForOnline=no",
        "",
        "[Network]",
        "DHCP=no",
        "LinkLocalAddressing=ipv6",
        "IPv6AcceptRA=no",
        "ConfigureWithoutCarrier=yes",
        "Address=10.8.1.11/24",
        "",
        "[Route]",
        "Destination=10.8.1.0/24",
        "Scope=link",
        "Table=20001",
        "",
        "[Route]",
        "Destination=0.0.0.0/0",
        "Gateway=10.8.1.1",
        "Table=20001",
        "",
        "[Route]",
        "Destination=10.8.0.0/16",
        "Gateway=10.8.1.1",
        "Metric=20001",
        "",
        "[RoutingPolicyRule]",
        "From=10.8.1.11/32",
        "Table=20001",
        "Priority=20001",
    ]


def test_netplan_is_yaml_that_only_root_reads() -> None:
    document = yaml.safe_load("\n".join(text(rail_files.netplan([ROUTED]), 0o600)))
    assert document == {
        "network": {
            "version": 2,
            "ethernets": {
                "000-rackready-enp24s0np0": {
                    "match": {"name": "enp24s0np0"},
                    "optional": True,
                    "ignore-carrier": True,
                    "dhcp4": False,
                    "dhcp6": False,
                    "accept-ra": False,
                    "link-local": ["ipv6"],
                    "mtu": 9000,
                    "addresses": ["10.8.1.11/24"],
                    "routes": [
                        {"to": "10.8.1.0/24", "scope": "link", "table": 20001},
                        {"to": "0.0.0.0/0", "via": "10.8.1.1", "table": 20001},
                        {"to": "10.8.0.0/16", "via": "10.8.1.1", "metric": 20001},
                    ],
                    "routing-policy": [{"from": "10.8.1.11/32", "table": 20001, "priority": 20001}],
                }
            },
        }
    }


def test_networkmanager_has_a_profile_and_keeps_it_without_a_link() -> None:
    lines = text(rail_files.profiles([ROUTED]), 0o600)
    assert [line for line in lines if not line.startswith("uuid=")] == [
        "[connection]",
        "id=rackready-enp24s0np0",
        "type=ethernet",
        "interface-name=enp24s0np0",
        "autoconnect=true",
        "autoconnect-priority=100",
        "",
        "[match]",
        "path=pci-0000:18:00.0",
        "",
        "[ethernet]",
        "mtu=9000",
        "",
        "[ipv4]",
        "method=manual",
        "address1=10.8.1.11/24",
        "never-default=true",
        "route1=10.8.1.0/24",
        "route1_options=table=20001,scope=253",
        "route2=0.0.0.0/0,10.8.1.1",
        "route2_options=table=20001",
        "route3=10.8.0.0/16,10.8.1.1,20001",
        "routing-rule1=priority 20001 from 10.8.1.11/32 table 20001",
        "",
        "[ipv6]",
        "method=link-local",
        "addr-gen-mode=eui64",
    ]
    assert text(rail_files.devices([ROUTED]), 0o644) == [
        "[device-rackready-rails]",
        "match-device=interface-name:=enp24s0np0",
        "managed=1",
        "ignore-carrier=1",
    ]


def test_ifupdown_does_by_ip_what_it_has_no_word_for() -> None:
    assert text(rail_files.stanzas([ROUTED]), 0o644) == [
        "auto enp24s0np0",
        "allow-hotplug enp24s0np0",
        "iface enp24s0np0 inet static",
        "    address 10.8.1.11/24",
        "    mtu 9000",
        "    up ip route replace 10.8.1.0/24 dev $IFACE scope link table 20001",
        "    up ip route replace 0.0.0.0/0 via 10.8.1.1 dev $IFACE table 20001",
        "    up ip route replace 10.8.0.0/16 via 10.8.1.1 dev $IFACE metric 20001",
        "    pre-up while ip rule del from 10.8.1.11 lookup 20001 priority 20001 2>/dev/null; do :; done",
        "    up ip rule add from 10.8.1.11 lookup 20001 priority 20001",
        "    down while ip rule del from 10.8.1.11 lookup 20001 priority 20001 2>/dev/null; do :; done",
    ]


def test_a_fabric_without_routing_has_addresses_alone() -> None:
    every = [rail_files.networkd, rail_files.netplan, rail_files.profiles, rail_files.stanzas]
    for made in every:
        [(found, _)] = made([FLAT]).values()
        assert "10.8.1.11/24" in found
        assert "4200" in found
        assert not [word for word in ("oute", "rule", "policy", "via") if word in found.removeprefix(rail_files.HEAD)]


def test_no_file_has_a_default_route_of_the_node_or_a_name_server() -> None:
    """A default route is in the rail's own table alone."""
    [(network, _)] = rail_files.networkd([ROUTED]).values()
    assert "Destination=0.0.0.0/0\nGateway=10.8.1.1\nTable=20001" in network
    assert network.count("0.0.0.0/0") == 1
    for made in (rail_files.networkd, rail_files.netplan, rail_files.profiles, rail_files.stanzas):
        [(found, _)] = made([ROUTED]).values()
        assert "dns" not in found.lower()


def test_without_rails_there_are_no_files() -> None:
    every = [rail_files.networkd, rail_files.netplan, rail_files.profiles, rail_files.devices, rail_files.stanzas]
    assert [dict(made([])) for made in [*every, rail_files.foreign]] == [{}] * 6
    assert rail_files.foreign([FLAT]) == {}, "without rules networkd has nothing to remove"
