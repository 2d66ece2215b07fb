"""Names of network cards by PCI address: interfaces, and what is refused. RDMA devices: test_programs_udev.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackready.ondevice import nic_names
from rackready.ondevice.nic_names import NicNames

PCI = "0000:18:00.0"
OTHER = "0000:40:00.0"
ROUTE = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n{}\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
)


class Node:
    """A node whose `ip` and `rdma` rename folders in sysfs. ``fails``: word of a command to what it says."""

    def __init__(self, root: Path) -> None:
        self.root, self.ran, self.fails = root, list[str](), dict[str, str]()
        self.addresses = ""
        self.add(PCI, "net", "enp24s0")
        self.add(PCI, "infiniband", "rocep24s0")
        (root / "run").mkdir()

    def add(self, pci: str, kind: str, name: str) -> None:
        place = self.root / "sys/bus/pci/devices" / pci / kind / name
        place.mkdir(parents=True)
        if kind == "net":
            (place / "flags").write_text("0x1003\n")
            self.link(place)

    def link(self, place: Path) -> None:
        """Show an interface in its class, as the kernel does."""
        (self.root / "sys/class/net").mkdir(parents=True, exist_ok=True)
        (self.root / "sys/class/net" / place.name).symlink_to(place)

    def __call__(self, *argv: str) -> tuple[int, str]:
        self.ran.append(" ".join(argv))
        for word, said in self.fails.items():
            if word in argv:
                return 1, said
        if "name" in argv:
            old = next((self.root / "sys/bus/pci/devices").glob(f"*/*/{argv[-3]}"))
            (self.root / "sys/class/net" / old.name).unlink(missing_ok=True)
            new = old.rename(old.with_name(argv[-1]))
            if argv[0] == "ip":
                self.link(new)
        return 0, self.addresses if argv[2] == "address" else ""

    def put_below(self, *above: str) -> None:
        """Put bonds and VLANs above the interface, the next one above the one before."""
        for name, lower in zip(above, ("enp24s0", *above), strict=False):
            (self.root / "sys/class/net" / name).mkdir()
            (self.root / "sys/class/net" / lower / f"upper_{name}").symlink_to(f"../{name}")

    def names(self, **wanted: str) -> NicNames:
        return NicNames({PCI: wanted}, self, self.root)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_an_interface_is_renamed_while_it_is_down(node: Node) -> None:
    names = node.names(net="enp24s0np0", infiniband="mlx5_0")
    assert names.differences() == [
        ("infiniband", PCI, "mlx5_0", "rocep24s0"),
        ("net", PCI, "enp24s0np0", "enp24s0"),
    ]
    assert names.apply() == []
    assert node.ran == [
        "ip -o address show dev enp24s0 scope global",
        "rdma dev set rocep24s0 name mlx5_0",
        "ip link property del dev enp24s0 altname enp24s0np0",
        "ip link set dev enp24s0 down",
        "ip link set dev enp24s0 name enp24s0np0",
        "ip link set dev enp24s0np0 up",
    ]
    assert names.differences() == []


def test_an_interface_that_was_down_stays_down(node: Node) -> None:
    (node.root / "sys/class/net/enp24s0/flags").write_text("0x1002\n")
    assert node.names(net="enp24s0np0").apply() == []
    assert [line for line in node.ran if line.endswith(("down", "up"))] == []


def test_an_interface_is_up_again_after_a_refused_name(node: Node) -> None:
    node.fails["name"] = "RTNETLINK answers: File exists"
    assert node.names(net="enp24s0np0").apply() == [
        "`ip link set dev enp24s0 name enp24s0np0` exit 1: RTNETLINK answers: File exists"
    ]
    assert node.ran[-1] == "ip link set dev enp24s0 up"


def test_no_alternative_name_is_no_refusal(node: Node) -> None:
    node.fails["altname"] = "RTNETLINK answers: Invalid argument"
    names = node.names(net="enp24s0np0")
    assert names.apply() == []
    assert names.differences() == []


def test_nothing_runs_when_all_is_as_wanted(node: Node) -> None:
    assert node.names(net="enp24s0", infiniband="rocep24s0").apply() == []
    assert node.ran == []


ROUTE6 = f"{'0' * 32} 00 {'0' * 32} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 {{:>8}}\n"


@pytest.mark.parametrize(("table", "text"), [("route", ROUTE), ("ipv6_route", ROUTE6)])
@pytest.mark.parametrize("above", ["", "bond0"])
def test_an_interface_with_the_default_route_stays(node: Node, table: str, text: str, above: str) -> None:
    (node.root / "proc/net").mkdir(parents=True)
    (node.root / "proc/net" / table).write_text(text.format(above or "enp24s0"))
    if above:
        node.put_below(above)
    names = node.names(net="enp24s0np0")
    said = "enp24s0 (0000:18:00.0) has the default route, so it does not become enp24s0np0"
    assert names.refusals() == {PCI: said}
    assert names.apply() == [said]
    assert "ip link set dev enp24s0 down" not in node.ran


def test_a_route_of_another_interface_is_no_refusal(node: Node) -> None:
    (node.root / "proc/net").mkdir(parents=True)
    (node.root / "proc/net/route").write_text(ROUTE.format("eno1"))
    (node.root / "proc/net/ipv6_route").write_text(ROUTE6.format("lo"))
    assert node.names(net="enp24s0np0").refusals() == {}
    assert node.names(net="enp24s0").refusals() == {}, "it has its name"


ADDRESS = "4: enp24s0    inet{} scope global enp24s0\\       valid_lft forever preferred_lft forever\n"


@pytest.mark.parametrize("address", [" 192.168.1.11/24", "6 2001:db8::11/64"])
def test_an_interface_with_an_address_waits_for_a_boot(node: Node, address: str) -> None:
    node.addresses = ADDRESS.format(address)
    names = node.names(net="enp24s0np0", infiniband="mlx5_0")
    assert names.apply() == []
    assert names.waiting() == {PCI: f"enp24s0 has the address {address.partition(' ')[2]}"}
    assert [name for _, _, name, _ in names.differences()] == ["enp24s0np0"]
    assert "ip link set dev enp24s0 down" not in node.ran


def test_a_port_of_a_bond_waits_for_a_boot(node: Node) -> None:
    node.put_below("bond0", "vlan7")
    assert node.names(net="enp24s0np0").apply() == []
    assert node.names(net="enp24s0np0").waiting() == {PCI: "enp24s0 is below bond0, vlan7"}
    assert node.ran == []


def test_names_that_interfaces_hold_crosswise_wait_for_a_boot(node: Node) -> None:
    node.add(OTHER, "net", "enp64s0")
    crossed = NicNames({PCI: {"net": "enp64s0"}, OTHER: {"net": "enp24s0"}}, node, node.root)
    assert crossed.apply() == []
    assert crossed.waiting() == {PCI: "another interface is enp64s0 now", OTHER: "another interface is enp24s0 now"}
    assert node.ran == []


def test_an_interface_whose_addresses_are_unknown_waits_for_a_boot(node: Node) -> None:
    node.fails["address"] = "ip: not installed"
    assert node.names(net="enp24s0np0").waiting() == {
        PCI: "the addresses of enp24s0 were not readable: ip: not installed"
    }
    assert node.names(net="enp24s0np0").apply() == []


def test_a_card_without_a_device_or_with_two_is_refused(node: Node) -> None:
    node.add(PCI, "net", "enp24s0v1")
    missing = NicNames({OTHER: {"infiniband": "mlx5_3"}, PCI: {"net": "enp24s0np0"}}, node, node.root)
    assert missing.apply() == [
        "0000:18:00.0 interface enp24s0, enp24s0v1, one is needed for the name enp24s0np0",
        "0000:40:00.0 RDMA device none, one is needed for the name mlx5_3",
    ]


@pytest.mark.parametrize("port", ["pf0vf1", "pf0sf88", "c1pf0vf1"])
def test_a_representor_is_no_interface_of_the_card(node: Node, port: str) -> None:
    node.add(PCI, "net", "enp24s0r1")
    assert len(node.names().present(PCI, "net")) == 2
    (node.root / "sys/class/net/enp24s0r1/phys_port_name").write_text(f"{port}\n")
    (node.root / "sys/class/net/enp24s0/phys_port_name").write_text("p0\n")
    names = node.names(net="enp24s0np0")
    assert names.apply() == []
    assert names.differences() == []


def test_a_refusal_of_the_kernel_is_told(node: Node) -> None:
    node.fails["mlx5_0"] = "error: Operation not permitted"
    assert node.names(infiniband="mlx5_0").apply() == [
        "`rdma dev set rocep24s0 name mlx5_0` exit 1: error: Operation not permitted"
    ]


@pytest.mark.parametrize(
    ("pci", "layer", "name"),
    [
        ("0000:18:00.0", "Ethernet", "rocep24s0f0"),
        ("0000:9a:00.1", "InfiniBand", "ibp154s0f1"),
        ("0008:01:00.0", "Ethernet", "roceP8p1s0f0"),
    ],
)
def test_a_holder_moves_to_its_name_by_address(node: Node, pci: str, layer: str, name: str) -> None:
    place = node.root / "sys/class/infiniband/mlx5_0/ports/1"
    place.mkdir(parents=True)
    (place / "link_layer").write_text(f"{layer}\n")
    assert node.names().by_pci(pci, "mlx5_0") == name


def test_the_program_reads_its_file_and_says_what_was_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = node.root / "nic-names.json"
    file.write_text(json.dumps({PCI: {"infiniband": "mlx5_0", "net": "enp24s0np0"}, OTHER: {"net": "x"}}))
    node.fails["mlx5_0"] = "no"
    monkeypatch.setattr(nic_names, "NicNames", lambda wanted: NicNames(wanted, node, node.root))
    assert nic_names.main(["nic_names.py", str(file)]) == 1
    assert "exit 1: no" in capsys.readouterr().err
    assert node.ran == ["rdma dev set rocep24s0 name mlx5_0"], "interfaces belong to the rule"
