"""The real network managers keep what rackready gave them: reloads, restarts, links that go, cards that come anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.project import cannot_run
from tests.integration.rail_node import FLAT, NETWORKS, RAILS, RailNode, image, node

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NAMES = {"netplan-nm": "networkmanager"}
"""Way of the installer to the manager that is chosen, where they differ."""
RELOADS = {
    "networkd": ("networkctl reload", "systemctl restart systemd-networkd.service"),
    "netplan": ("networkctl reload", "netplan apply 2>&1", "systemctl restart systemd-networkd.service"),
    "networkmanager": ("nmcli connection reload", "systemctl restart NetworkManager.service"),
    "netplan-nm": ("netplan apply 2>&1", "systemctl restart NetworkManager.service"),
    "ifupdown": ("ifup --all 2>&1", "systemctl restart networking.service"),
}
"""What an administrator does with each."""
BY_IP = (
    "ip link set {netdev} mtu 9000 up; ip address add {address} dev {netdev}; "
    "ip route replace default via {gateway} dev {netdev} table {table}; "
    "ip rule add from {source} lookup {table} priority {table}"
)
"""What roce.py sets without a manager, in part."""


@pytest.fixture(scope="module")
def managers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image."""
    if reason := cannot_run():
        pytest.skip(reason)
    with image(tmp_path_factory.mktemp("managers") / "build") as name:
        yield name


@pytest.fixture(scope="module", params=sorted(NETWORKS))
def machine(request: pytest.FixtureRequest, managers: str) -> Iterator[RailNode]:
    """A machine for each way; its rails have what `ip` set before, as on a node of an earlier rackready."""
    with node(managers, request.param) as made:
        for rail in RAILS:
            made.sh(BY_IP.format(**rail, source=str(rail["address"]).split("/")[0]))
        yield made


def test_the_manager_takes_the_rails_and_the_second_run_finds_nothing(machine: RailNode) -> None:
    machine.sh("ip address add 10.99.0.77/24 dev eth0")
    before = machine.way_in()
    assert machine.ensure(check=True)["differs"], "nothing is there yet"
    done = machine.ensure()
    assert done.get("manager") == NAMES.get(machine.way, machine.way), done
    assert machine.ensure() == {"manager": done["manager"], "differs": [], "notes": []}
    assert machine.way_in() == before, "the management interface was not configured again"
    rules = machine.sh("ip -4 rule show")
    assert [rules.count(f"lookup {rail['table']}") for rail in RAILS] == [1, 1], "one rule for each rail, not two"


def test_what_an_administrator_reloads_leaves_everything(machine: RailNode) -> None:
    for command in RELOADS[machine.way]:
        machine.sh(command)
        assert machine.differs() == [], command


def test_a_link_that_goes_leaves_everything(machine: RailNode) -> None:
    machine.sh("ip link set far-rail1 down; sleep 8")  # NetworkManager waits up to 6 s for a lost link
    assert machine.differs() == []
    machine.sh("ip link set far-rail1 up")
    assert machine.differs() == []


def test_a_card_that_comes_anew_gets_everything(machine: RailNode) -> None:
    if machine.way == "ifupdown":
        pytest.skip("ifup@.service needs systemd's units of devices, which a container does not have")
    machine.sh("ip link delete rail2; sleep 1")
    machine.plug("rail2")
    assert machine.differs() == []


def test_a_reboot_brings_everything(machine: RailNode) -> None:
    machine.restart()
    assert machine.differs() == []


def test_a_flush_and_an_edited_file_are_seen_and_put_right(machine: RailNode) -> None:
    machine.sh("ip address flush dev rail2; ip rule delete priority 20002; ip link set rail2 mtu 1500")
    found = machine.ensure(check=True)["differs"]
    assert {"rail2 address", "rail2 rule for source 192.168.2.11", "rail2 MTU"} <= set(found)
    assert not [item for item in found if item.startswith("rail1")]
    machine.ensure()
    assert machine.differs() == []
    path = next(iter(_own(machine)))
    machine.sh(f"sed -i s/9000/1400/ '{path}'")
    assert machine.ensure(check=True)["differs"] == [path]
    machine.ensure()
    assert machine.differs() == []


def test_a_fabric_without_routing_gets_no_routes_and_no_rules(machine: RailNode) -> None:
    machine.ensure(rails=FLAT)
    assert machine.ensure(rails=FLAT)["differs"] == []
    assert "lookup 2000" not in machine.sh("ip -4 rule show")
    assert "table 2000" not in machine.sh("ip -4 route show table all")
    machine.ensure()
    assert machine.differs() == []


def test_the_default_route_is_no_rail(machine: RailNode) -> None:
    machine.sh("ip route add default via 192.168.1.1 dev rail1 metric 9999")
    said = machine.ensure()["problem"]
    machine.sh("ip route delete default via 192.168.1.1 dev rail1 metric 9999")
    assert said.startswith("Expected: a way into the node, and a default route, by none of its rails Actual: rail1 has")
    assert machine.differs() == []


OTHERS = {
    "networkd": ("/etc/systemd/network/20-site.network", "[Match]\\nName=rail1\\n\\n[Network]\\nAddress={}\\n"),
    "netplan": ("/etc/netplan/60-site.yaml", "network:\\n  ethernets:\\n    rail1:\\n      addresses: [{}]\\n"),
    "networkmanager": (
        "/etc/NetworkManager/system-connections/site.nmconnection",
        "[connection]\\nid=site\\ntype=ethernet\\ninterface-name=rail1\\n[ipv4]\\nmethod=manual\\naddress1={}\\n",
    ),
}
"""A file of somebody else that names a rail."""


def test_a_file_of_somebody_else_is_named_and_nothing_is_changed(machine: RailNode) -> None:
    if machine.way == "ifupdown":
        machine.sh("printf 'iface rail1 inet dhcp\\n' > /etc/network/interfaces.d/site")
        said = machine.ensure()["problem"]
        machine.sh("rm /etc/network/interfaces.d/site")
        assert "rail1 in /etc/network/interfaces.d/site: dhcp" in said
        return
    place, text = OTHERS[NAMES.get(machine.way, machine.way)]
    for address, refused in (("10.1.1.1/24", True), ("192.168.1.11/24", False)):
        machine.sh(f"printf '{text.format(address)}' > {place}; chmod 600 {place}; {_seen(machine)}")
        said = machine.ensure(check=True).get("problem", "")
        assert (f"rail1 in {place}: {address}. Remove the interface from that file" in said) is refused, said
    machine.sh(f"rm {place}; {_seen(machine)}")
    assert machine.differs() == []


NAMED = {
    "networkd": ("/etc/systemd/network/20-named.network", "[Match]\\nName=rail1\\n\\n[Link]\\nMTUBytes=1500\\n"),
    "netplan": (
        "/etc/netplan/60-maas.yaml",
        (
            "network:\\n  ethernets:\\n    card1: {match: {name: rail1}, mtu: 1500}\\n"
            "    rail1: {match: {macaddress: $(cat /sys/class/net/rail1/address)}, set-name: rail1, mtu: 1500}\\n"
        ),
    ),
    "networkmanager": (
        "/etc/NetworkManager/system-connections/named.nmconnection",
        "[connection]\\nid=named\\ntype=ethernet\\ninterface-name=rail1\\n[ipv4]\\nmethod=disabled\\n",
    ),
}
"""A file that only names a rail, and sets another MTU."""


def test_a_file_that_only_names_a_rail_changes_nothing(machine: RailNode) -> None:
    if machine.way == "ifupdown":
        pytest.skip("every stanza of ifupdown configures its interface")
    place, text = NAMED[NAMES.get(machine.way, machine.way)]
    seen = {"netplan": "netplan generate; networkctl reload", "networkd": "networkctl reload"}.get(
        machine.way, "nmcli connection reload"
    )
    machine.sh(f'printf "{text}" > {place}; chmod 600 {place}; {seen}')
    assert machine.differs() == []
    machine.sh(f"rm {place}; {seen}")
    assert machine.differs() == []


def test_without_a_manager_the_files_go_and_networkd_leaves_rules_alone(machine: RailNode) -> None:
    assert machine.ensure("none")["manager"] == "none"
    again = machine.ensure("none")
    assert again["differs"] == []
    assert (
        machine.sh("grep -rl rackready /etc/netplan /etc/NetworkManager /etc/network /etc/systemd/network || true")
        == ""
    )
    assert machine.ensure()["manager"] == NAMES.get(machine.way, machine.way)
    assert machine.differs() == []


def _own(machine: RailNode) -> list[str]:
    folders = "/etc/netplan /etc/NetworkManager/system-connections /etc/network/interfaces.d /etc/systemd/network"
    return machine.sh(f"grep -rl 'Written by rackready' {folders} | sort").split()


def _seen(machine: RailNode) -> str:
    """Return the command by which a manager sees a new file without using it."""
    return "nmcli connection reload" if NAMES.get(machine.way, machine.way) == "networkmanager" else "true"
