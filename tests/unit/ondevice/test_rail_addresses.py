"""Which manager gets the rails, what is refused, and the way back. The real managers: tests/integration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import rail_addresses
from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.rail_addresses import RailAddresses
from rackready.ondevice.rail_claims import read
from rackready.ondevice.way_in import WayIn

ITEM: dict[str, Any] = {"netdev": "rail1", "pci": "0000:18:00.0", "address": "10.8.1.11/24"}
FILE = "etc/systemd/network/05-rackready-rail1.network"
PROFILES = "etc/NetworkManager/system-connections/*"
SERVICES = {"systemd-networkd.service": "networkd", "NetworkManager.service": "networkmanager"}


@dataclass
class Node:
    """A node whose managers do as they are told, unless something breaks."""

    root: Path
    active: set[str] = field(default_factory=lambda: {"networkd"})
    manages: dict[str, str] = field(default_factory=dict)
    """Interface to the manager that has it."""
    default: str = "eth0"
    have: bool = False
    deaf: bool = False
    cuts_off: bool = False
    blinks: int = 0
    """How often the default route is missing after a reload that configures the management interface again."""
    yaml: str = ""
    sent: list[str] = field(default_factory=list)
    away: int = 0

    def run(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        self.sent.append(line)
        return self._answer(line) or Done(127, f"{argv[0]}: not found")

    def _answer(self, line: str) -> Done | None:
        if line.startswith("systemctl is-active"):
            return Done(0 if SERVICES.get(line.rsplit(maxsplit=1)[-1]) in self.active else 3, "")
        if line == "networkctl reload":  # configures interfaces whose file is new, changed or gone (networkctl(1))
            self.away = self.blinks
            self.default = "gone" if self.cuts_off and "rail1" in read(self.root / FILE) else "eth0"
        if line.startswith("networkctl reconfigure"):
            self.have = not self.deaf
        if line.startswith("networkctl --no-pager"):
            mine = line.endswith("rail1") and (self.root / FILE).exists() and self.have
            other = self.manages.get(line.rsplit(maxsplit=1)[-1]) == "networkd"
            return Done(0, f"  Network File: /{FILE}\n" if mine else "  Network File: /x\n" if other else "")
        if line.startswith("nmcli --get-values GENERAL.CONNECTION"):
            return Done(0, "site\n" if self.manages.get(line.rsplit(maxsplit=1)[-1]) == "networkmanager" else "\n")
        if line.startswith("netplan get"):
            return Done(1, "Traceback\n  x\nnetplan.LibNetplanException: /etc/netplan/9.yaml:3:1: Invalid YAML\n")
        if line.startswith("ifquery --list"):
            return Done(0, "eth0\n") if "ifupdown" in self.active else None
        known = ("networkctl", "nmcli", "ip ", "udevadm")
        return Done(0, self._ip(line)) if line.startswith(known) else None

    def _ip(self, line: str) -> str:
        if line.startswith("nmcli --terse"):
            return "".join(f"/{path.relative_to(self.root)}\n" for path in self.root.glob(PROFILES))
        if line in {"ip -4 route show default", "ip -4 route show dev eth0"}:
            if self.away:
                self.away -= 1
                return ""
            return f"default via 10.0.0.1 dev {self.default}\n" if self.default != "gone" else ""
        if re.search(r"address show dev rail1", line):
            return f"2: rail1    inet {ITEM['address']} scope global\n" if self.have else ""
        return "3: eth0    inet 10.0.0.5/24 scope global eth0\n" if "address show" in line else ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    place = tmp_path / "sys/class/net/rail1"
    place.mkdir(parents=True)
    (place / "mtu").write_text("9000\n")
    monkeypatch.setattr(rail_addresses, "WayIn", lambda run: WayIn(run, "10.0.0.9 50000 10.0.0.5 22"))
    return Node(tmp_path)


def rails(node: Node) -> RailAddresses:
    return RailAddresses(
        [ITEM], 9000, node.run, node.root, node.root / "lock", settle_s=0.05, pause=lambda _seconds: None
    )


def refused(node: Node, wish: str = "auto") -> str:
    with pytest.raises(NodeProblem) as caught:
        rails(node).ensure(wish, 0, "")
    return str(caught.value)


def test_a_dry_run_names_everything_and_changes_nothing(node: Node) -> None:
    found = rails(node).ensure("auto", 0, "", check=True)
    assert [(item.kind, item.name) for item in found] == [
        ("file", f"/{FILE}"),
        ("nic", "rail1 address"),
        ("nic", "rail1 in networkd"),
    ]
    assert not (node.root / "etc").exists()
    assert not [line for line in node.sent if line.startswith(("networkctl re", "ip rule"))]


def test_the_second_run_runs_nothing(node: Node) -> None:
    assert rails(node).ensure("auto", 0, "") != []
    assert node.sent.count("networkctl reload") == 2, "to apply, and once more to prove that a reload keeps it"
    node.sent.clear()
    assert rails(node).ensure("auto", 0, "") == []
    assert not [line for line in node.sent if line.startswith(("networkctl re", "ip rule"))]


def test_an_address_that_does_not_come_is_an_error(node: Node) -> None:
    node.deaf = True
    assert refused(node).startswith(
        "Expected: rail1 address 10.8.1.11/24; rail1 in networkd /etc/systemd/network/05-rackready-rail1.network "
        "Actual: rail1 address none; rail1 in networkd no configuration. Read the journal of networkd"
    )


def test_a_lost_way_in_brings_the_earlier_files_back(node: Node) -> None:
    node.cuts_off = True
    said = refused(node)
    assert "eth0 10.0.0.5/24" in said.partition("Actual:")[0]
    assert "The earlier files are in place again." in said
    assert not (node.root / FILE).exists()
    assert node.default == "eth0"
    (node.root / FILE).write_text("# before\n")
    refused(node)
    assert (node.root / FILE).read_text() == "# before\n"


def test_a_way_in_that_comes_back_by_itself_is_no_obstacle(node: Node) -> None:
    node.blinks = 4
    assert rails(node).ensure("auto", 0, "") != []
    assert (node.root / FILE).exists()
    node.blinks, node.away = 1_000_000, 0
    (node.root / FILE).write_text("# before\n")
    assert "The earlier files are in place again." in refused(node)


@pytest.mark.parametrize("connection", ["10.0.0.9 50000 10.8.1.11 22", ""])
def test_a_rail_that_carries_ssh_or_the_default_route_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch, connection: str
) -> None:
    monkeypatch.setattr(rail_addresses, "WayIn", lambda run: WayIn(run, connection))
    monkeypatch.setattr(node, "_ip", lambda line: f"2: rail1    inet {ITEM['address']}\n" if "oneline" in line else "")
    if not connection:
        node.default = "rail1"
        monkeypatch.setattr(node, "_ip", lambda line: "default dev rail1\n" if "default" in line else "")
    said = refused(node)
    assert "Actual: rail1 has it" in said


def test_a_rail_below_the_management_interface_is_refused(node: Node) -> None:
    place = node.root / "sys/class/net/eth0"
    place.mkdir()
    (place / "lower_eno1").symlink_to("../eno1")
    assert rails(node).ensure("auto", 0, "", check=True) != []
    (place / "lower_rail1").symlink_to("../rail1")
    assert "Actual: rail1 has it" in refused(node)


def test_a_member_of_a_bond_is_refused(node: Node) -> None:
    (node.root / "sys/class/net/bond0").mkdir()
    (node.root / "sys/class/net/rail1/master").symlink_to("../bond0")
    assert refused(node).startswith(
        "Expected: rails that are no part of a bond, bridge or VRF Actual: rail1 in bond0. Take the interface out"
    )


@pytest.mark.parametrize(
    ("active", "manages", "expected"),
    [
        ({"networkd"}, {}, "networkd"),
        ({"networkmanager"}, {}, "networkmanager"),
        ({"networkd", "networkmanager"}, {"eth0": "networkd"}, "networkd"),
        ({"networkd", "networkmanager"}, {"eth0": "networkmanager"}, "networkmanager"),
        (set(), {}, "none"),
    ],
)
def test_the_manager_at_work_is_chosen(node: Node, active: set[str], manages: dict[str, str], expected: str) -> None:
    node.active, node.manages = active, manages
    one = rails(node)
    one.ensure("auto", 0, "", check=True)
    assert one.manager == expected
    assert bool(one.notes) is (expected == "none")


def test_ifupdown_is_at_work_where_it_has_an_interface(node: Node) -> None:
    node.active = {"ifupdown"}
    (node.root / "etc/network").mkdir(parents=True)
    first = node.root / "etc/network/interfaces"
    first.write_text("auto lo\niface lo inet loopback\n")
    one = rails(node)
    one.ensure("auto", 0, "", check=True)
    assert one.manager == "none"
    first.write_text("auto eth0\niface eth0 inet dhcp\n")
    assert "Expected: /etc/network/interfaces that includes interfaces.d Actual: it does not." in refused(node)
    node.active.add("networkd")
    rails(node).ensure("networkd", 0, "", check=True)  # what ifupdown reads does not matter to another manager
    node.active.discard("networkd")
    first.write_text("source interfaces.d/*\nauto eth0\niface eth0 inet dhcp\n")
    one = rails(node)
    one.ensure("auto", 0, "", check=True)
    assert one.manager == "ifupdown"


def test_two_managers_and_no_owner_are_refused(node: Node) -> None:
    node.active = {"networkd", "networkmanager"}
    assert refused(node) == (
        "Expected: one network manager at work Actual: networkd and networkmanager at work. Set fabric.address_manager "
        "in the site file, or stop the manager that is not to set them."
    )


def test_a_manager_that_the_site_names_must_run(node: Node) -> None:
    assert "Expected: ifupdown to set the rails' addresses Actual: not at work; networkd at work." in refused(
        node, "ifupdown"
    )
    one = rails(node)
    one.ensure("networkd", 0, "", check=True)
    assert one.manager == "networkd"


def test_netplan_files_that_netplan_cannot_read_are_refused_by_its_words(node: Node) -> None:
    (node.root / "etc/netplan").mkdir(parents=True)
    (node.root / "etc/netplan/9.yaml").write_text("network: [\n")
    assert "Actual: /etc/netplan/9.yaml:3:1: Invalid YAML. Correct the file" in refused(node)


def test_none_takes_the_files_of_a_manager_away(node: Node) -> None:
    rails(node).ensure("auto", 0, "")
    one = rails(node)
    [gone] = one.ensure("none", 0, "")
    assert (gone.name, gone.expected, one.manager) == (f"/{FILE}", "absent", "none")
    assert not (node.root / FILE).exists()
    assert rails(node).ensure("none", 0, "") == []


def test_a_file_of_somebody_else_is_named(node: Node) -> None:
    folder = node.root / "etc/systemd/network"
    folder.mkdir(parents=True)
    (folder / "20-site.network").write_text("[Match]\nName=rail1\n\n[Network]\nAddress=10.1.1.1/24\n")
    assert refused(node) == (
        "Expected: rail1 10.8.1.11/24, set by rackready alone Actual: rail1 in "
        f"{folder}/20-site.network: 10.1.1.1/24. Remove the interface from that file on the node, then run again. "
        "Nothing was changed."
    )
    (folder / "20-site.network").write_text("[Match]\nName=rail*\n\n[Network]\nDHCP=yes\n")
    assert rails(node).ensure("auto", 0, "") != [], "a pattern that comes later is no obstacle"
    (folder / "00-site.network").write_text("[Match]\nName=rail*\n\n[Network]\nDHCP=yes\n")
    assert "00-site.network: DHCP=yes" in refused(node), "one that comes before is"


def test_a_file_that_only_names_the_interface_is_no_obstacle_unless_it_precedes(node: Node) -> None:
    """As MAAS leaves it for each card, through netplan: match by macaddress, set-name, mtu."""
    named = "[Match]\nPermanentMACAddress=b8:59:9f:00:00:01\nName=rail1\n\n[Link]\nMTUBytes=1500\n\n[Network]\n{}\n"
    (node.root / "sys/class/net/rail1/address").write_text("b8:59:9f:00:00:01\n")
    folder = node.root / "run/systemd/network"
    folder.mkdir(parents=True)
    (folder / "10-netplan-rail1.network").write_text(named.format("LinkLocalAddressing=ipv6"))
    assert rails(node).ensure("auto", 0, "") != []
    (folder / "10-netplan-rail1.network").write_text(named.format("DHCP=ipv4"))
    assert "10-netplan-rail1.network: DHCP=ipv4" in refused(node)
    (folder / "10-netplan-rail1.network").unlink()
    (folder / "00-first.network").write_text(named.format("LinkLocalAddressing=ipv6"))
    assert "00-first.network: no address" in refused(node)


def test_a_profile_without_addresses_is_no_obstacle_to_networkmanager_s_own(node: Node) -> None:
    node.active = {"networkmanager"}
    path = node.root / PROFILES.replace("*", "site.nmconnection")
    path.parent.mkdir(parents=True)
    text = "[connection]\nid=site\ntype=ethernet\ninterface-name=rail1\n[ipv4]\nmethod={}\n"
    path.write_text(text.format("disabled"))
    assert rails(node).ensure("auto", 0, "", check=True) != []
    path.write_text(text.format("auto"))
    assert "site.nmconnection: DHCP" in refused(node)
    path.write_text(text.format("disabled"))
    node.active, node.manages = {"networkmanager", "networkd"}, {"eth0": "networkd"}
    assert "site.nmconnection: no address" in refused(node), "NetworkManager would have the rail beside networkd"
