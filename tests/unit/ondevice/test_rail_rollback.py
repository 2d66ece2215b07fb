"""Nothing of rackready's stays where a manager refuses it, where the way in is lost, or where a run was killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rackready.ondevice import rail_addresses
from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.rail_claims import read
from rackready.ondevice.rail_files import HostRail
from rackready.ondevice.way_in import WayIn
from tests.unit.ondevice.test_rail_addresses import ITEM, Node, rails, refused

PROFILE = "etc/NetworkManager/system-connections/rackready-rail1.nmconnection"
DEVICES = "etc/NetworkManager/conf.d/95-rackready-rails.conf"
YAML = "etc/netplan/95-rackready-rails.yaml"
MADE = "run/systemd/network/10-netplan-000-rackready-rail1.network"
STANZAS = "etc/network/interfaces.d/rackready-rails"
BY_MANAGER = {
    "networkd": ["etc/systemd/network/05-rackready-rail1.network"],
    "networkmanager": [PROFILE, DEVICES],
    "netplan": [YAML, MADE],
    "ifupdown": [STANZAS],
}
"""The files of the rails, those that netplan makes with them."""
INSTALLED = {
    "netplan": ("etc/netplan/50-cloud-init.yaml", "network: {ethernets: {eth0: {dhcp4: true}}}\n"),
    "ifupdown": ("etc/network/interfaces", "source interfaces.d/*\niface eth0 inet dhcp\n"),
}
"""What an installer left."""
REFUSED = "/etc/netplan/95-rackready-rails.yaml:7:7: Error in network definition: unknown key 'ignore-carrier'"
"""Of netplan 0.106 for a key that it does not know."""


@dataclass
class Site(Node):
    """A node on which a rail that comes up takes the way in away, if it ``cuts_off``; down it gives it back."""

    old_netplan: bool = False
    named: str = ""
    """What netplan generates of somebody else's definition of the rail."""
    broken: str = ""
    """A command that fails."""
    kills: str = ""
    """A command before which rackready is killed, once."""

    def _answer(self, line: str) -> Done | None:
        if line == self.kills:
            self.kills = ""
            raise KeyboardInterrupt
        if self.broken and line.startswith(self.broken):
            return Done(1, "failed")
        own = self._netplan(line) or self._nmcli(line) or self._ifup(line)
        if line == "networkctl reload":
            self._carry(up="rail1" in read(self.root / MADE) or "rail1" in read(self.root / BY_MANAGER["networkd"][0]))
            return Done(0, "")
        return own or super()._answer(line)

    def _carry(self, *, up: bool) -> None:
        self.default = "gone" if self.cuts_off and up else "eth0"

    def _netplan(self, line: str) -> Done | None:
        if line.startswith("netplan get"):
            return Done(0, "networkd\n")
        if not line.startswith("netplan generate"):
            return None
        into = Path(line.rpartition(" ")[2])
        text = read(into / YAML)
        if self.old_netplan and "ignore-carrier" in text:
            return Done(1, f"{into}{REFUSED}\n")
        (into / MADE).parent.mkdir(parents=True)
        if self.named:
            (into / MADE).with_name("10-netplan-rail1.network").write_text(self.named)
        for rail in ("rail1", "rail2"):
            if f'"{rail}"' in text:
                (into / MADE.replace("rail1", rail)).write_text(f"[Match]\nName={rail}\n")
        return Done(0, "")

    def _nmcli(self, line: str) -> Done | None:
        """EXIT STATUS 10 of nmcli(1): no such connection."""
        if line.startswith("nmcli --wait 30 connection up id rackready-rail1"):
            there = (self.root / PROFILE).exists()
            self._carry(up=there)
            return Done(0, "") if there else Done(10, "Error: unknown connection 'rackready-rail1'.")
        if line == "nmcli connection reload" and not (self.root / PROFILE).exists():
            self._carry(up=False)
        return None

    def _ifup(self, line: str) -> Done | None:
        if line == "ifdown --force rail1":
            self._carry(up=False)
            return Done(0, "")
        if line == "ifup rail1":
            there = "iface rail1 " in read(self.root / STANZAS)
            self._carry(up=there)
            return Done(0, "") if there else Done(1, "ifup: unknown interface rail1")
        return None


def site(root: Path, monkeypatch: pytest.MonkeyPatch, manager: str) -> Site:
    """Return a node as a manager's installer left it."""
    place = root / "sys/class/net/rail1"
    place.mkdir(parents=True)
    (place / "mtu").write_text("9000\n")
    if manager in INSTALLED:
        path, text = INSTALLED[manager]
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
    monkeypatch.setattr(rail_addresses, "WayIn", lambda run: WayIn(run, "10.0.0.9 50000 10.0.0.5 22"))
    return Site(root, {"networkd" if manager == "netplan" else manager})


def left(node: Site) -> list[str]:
    """Return what is there of rackready's files."""
    return [path for paths in BY_MANAGER.values() for path in paths if (node.root / path).exists()]


@pytest.mark.parametrize("manager", sorted(BY_MANAGER))
def test_the_first_run_that_loses_the_way_in_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    node = site(tmp_path, monkeypatch, manager)
    node.cuts_off = True
    said = refused(node)
    assert said.startswith("Expected: the way into the node as before: eth0 10.0.0.5/24, default via"), said
    assert said.endswith("The earlier files are in place again. Attach the journal of the network manager to a report.")
    assert left(node) == []
    assert node.default == "eth0", "the way in is back"


@pytest.mark.parametrize("manager", sorted(BY_MANAGER))
def test_a_later_run_that_loses_the_way_in_starts_the_earlier_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    node = site(tmp_path, monkeypatch, manager)
    earlier = HostRail.of({**ITEM, "address": "10.8.1.12/24"}, 9000)
    [chosen] = [one(node.run, node.root) for one in rail_addresses._ALL if one.name == manager]
    for path, (text, _mode) in chosen.files([earlier]).items():
        (node.root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (node.root / path.lstrip("/")).write_text(text)
    node.cuts_off = True
    assert refused(node).startswith("Expected: the way into the node as before:")
    for path, (text, _mode) in chosen.files([earlier]).items():
        assert read(node.root / path.lstrip("/")) == text
    start = {
        "networkmanager": "nmcli --wait 30 connection up id rackready-rail1 ifname rail1",
        "ifupdown": "ifup rail1",
    }.get(manager, "networkctl reconfigure rail1")
    assert node.sent.count(start) == 2, "for the new files, and for the earlier ones"


@pytest.mark.parametrize(
    ("manager", "broken"),
    [
        ("networkd", "networkctl reconfigure"),
        ("netplan", "networkctl reload"),
        ("networkmanager", "nmcli connection load"),
        ("networkmanager", "nmcli --wait 30 connection up"),
        ("ifupdown", "ifup "),
    ],
)
def test_files_that_a_manager_refuses_do_not_wait_for_the_next_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, broken: str
) -> None:
    node = site(tmp_path, monkeypatch, manager)
    node.broken = broken
    said = refused(node)
    assert said.startswith(f"Expected: `{broken.strip()}"), said
    assert "Actual: exit 1: failed. The earlier files are in place again. Run `" in said
    assert left(node) == []


@pytest.mark.parametrize("check", [True, False])
def test_netplan_is_asked_before_its_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, check: bool
) -> None:
    node = site(tmp_path, monkeypatch, "netplan")
    assert rails(node).ensure("auto", 0, "", check=True) != [], "a netplan that knows every word"
    node.old_netplan = True
    written = []
    monkeypatch.setattr(rail_addresses, "replace_file", lambda path, *_rest, **_more: written.append(path))
    with pytest.raises(NodeProblem) as caught:
        rails(node).ensure("auto", 0, "", check=check)
    assert caught.value.check == {
        "expected": "netplan files that netplan accepts",
        "actual": REFUSED,
        "next_step": "Update netplan on the node, or set fabric.address_manager: none in the site file.",
    }
    assert (left(node), written) == ([], [])
    assert not [line for line in node.sent if line.startswith(("networkctl re", "ip rule"))]


def test_a_card_that_netplan_only_names_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What netplan 0.106 makes of MAAS's `match: {macaddress: ...}, set-name: rail1, mtu: 1500`."""
    node = site(tmp_path, monkeypatch, "netplan")
    (node.root / "sys/class/net/rail1/address").write_text("b8:59:9f:00:00:01\n")
    node.named = "[Match]\nPermanentMACAddress=b8:59:9f:00:00:01\nName=rail1\n\n[Link]\nMTUBytes=1500\n\n[Network]\n"
    assert rails(node).ensure("auto", 0, "", check=True) != []
    node.named += "Address=10.1.1.1/24\n"
    assert "rail1 in " in refused(node)


def test_another_netplan_file_that_is_refused_is_to_be_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = site(tmp_path, monkeypatch, "netplan")

    def run(argv: Sequence[str]) -> Done:
        return Done(1, "/etc/netplan/9.yaml:1:1: Error") if argv[:2] == ["netplan", "generate"] else node.run(argv)

    one = rails(node)
    one.run = run
    with pytest.raises(NodeProblem, match="Correct the file that `netplan generate` names"):
        one.ensure("auto", 0, "")


RELOADS = {
    "networkd": "networkctl reload",
    "netplan": "networkctl reload",
    "networkmanager": "nmcli connection reload",
}
"""What tells a manager that a file is gone."""


@pytest.mark.parametrize("wish", ["auto", "none"])
@pytest.mark.parametrize("manager", sorted(RELOADS))
def test_a_manager_hears_of_files_that_a_killed_run_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, wish: str
) -> None:
    node = site(tmp_path, monkeypatch, manager)
    have(node, monkeypatch)
    both = rails(node)
    both.rails = [ITEM, {**ITEM, "netdev": "rail2", "address": "10.8.2.11/24"}]
    assert both.ensure("auto", 0, "") != []
    node.kills = "nmcli general reload conf" if manager == "networkmanager" else "networkctl reload"
    with pytest.raises(KeyboardInterrupt):
        rails(node).ensure(wish, 0, "")
    (tmp_path / "lock/install.json").write_text('{"state": "done"}')  # of another role, in between
    node.sent.clear()
    assert rails(node).ensure(wish, 0, "", check=True) == []
    assert RELOADS[manager] not in node.sent, "a dry run tells nobody"
    one = rails(node)
    assert one.ensure(wish, 0, "") == []
    assert [note for note in one.notes if "interrupted" in note] == [
        "an earlier run (token 0) was interrupted here: its effect is observed first"
    ]
    assert RELOADS[manager] in node.sent
    assert not [path for path in left(node) if "rail2" in read(node.root / path)]
    assert not list(tmp_path.glob("run/systemd/network/*rail2*"))
    node.sent.clear()
    assert rails(node).ensure(wish, 0, "") == []
    assert RELOADS[manager] not in node.sent, "a run that ended is not repeated"


def have(node: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the manager hold both rails, as far as rackready asks."""
    (node.root / "sys/class/net/rail2").mkdir()
    (node.root / "sys/class/net/rail2/mtu").write_text("9000\n")
    monkeypatch.setattr(rail_addresses.RailAddresses, "_unheld", lambda *_: [])
