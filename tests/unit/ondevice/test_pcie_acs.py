"""Access control of PCIe ports: only switch ports above GPUs and network cards, and undone by declaration.

Configuration space: offsets of pciutils, lib/header.h. Words of setpci: pciutils 3.9.0.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.host_tuning import UNIT, HostTuning, Wish
from rackready.ondevice.pcie_acs import ports, refuse_guests

ROOT_PORT, UPSTREAM, ABOVE_GPU, ABOVE_NIC, ABOVE_DRIVE = (
    "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:17:02.0", "0000:17:04.0",
)  # fmt: skip
GPU, NIC, DRIVE = "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0"
WRITE = "setpci -s {} ECAP_ACS+0x6.w={}"
TEXT = "[Unit]\n"


def space(kind: int, buses: tuple[int, int], control: int | None) -> bytes:
    """Return a bridge: type of its port, its buses, and its ACS control word (None: no such capability)."""
    found = bytearray(4096)
    found[0x0E], found[0x34] = 1, 0x68
    found[0x19:0x1B] = bytes(buses)
    struct.pack_into("<BBH", found, 0x68, 0x10, 0, 2 | kind << 4)
    struct.pack_into("<I", found, 0x100, 1 | 2 << 16 | (0x220 << 20 if control is not None else 0))
    if control is not None:
        struct.pack_into("<IHH", found, 0x220, 0x000D | 1 << 16, 0x5F, control)
    return bytes(found)


class Node:
    """A switch with a GPU, a network card and a drive, all ports with ACS on."""

    def __init__(self, root: Path) -> None:
        self.root, self.enabled, self.deaf = root, False, False
        self.ran: list[str] = []
        for address, kind, buses in (
            (ROOT_PORT, 4, (0x16, 0x1A)), (UPSTREAM, 5, (0x17, 0x1A)), (ABOVE_GPU, 6, (0x18, 0x18)),
            (ABOVE_NIC, 6, (0x19, 0x19)), (ABOVE_DRIVE, 6, (0x1A, 0x1A)),
        ):  # fmt: skip
            self.put(address, "0x1000", "0x060400", space(kind, buses, 0x1D))
        self.put(GPU, "0x10de", "0x030200", b"")
        self.put(NIC, "0x15b3", "0x020000", b"")
        self.put(DRIVE, "0x144d", "0x010802", b"")

    def put(self, address: str, vendor: str, kind: str, config: bytes) -> None:
        place = self.root / "sys/bus/pci/devices" / address
        place.mkdir(parents=True)
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{kind}\n")
        (place / "config").write_bytes(config)

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if "is-enabled" in line:
            return Done(0 if self.enabled else 1, "")
        self.ran.append(line)
        if argv[0] == "setpci" and not self.deaf:
            place = self.root / "sys/bus/pci/devices" / argv[2] / "config"
            found = bytearray(place.read_bytes())
            struct.pack_into("<H", found, 0x226, int(argv[3].partition("=")[2], 16))
            place.write_bytes(bytes(found))
        self.enabled = " enable " in line or (self.enabled and " disable " not in line)
        return Done(0, "")

    def tuning(self) -> HostTuning:
        return HostTuning(self, self.root, self.root / "rackready", lock_wait_s=0.2)


def test_only_switch_ports_above_gpus_and_cards_are_listed(tmp_path: Path) -> None:
    Node(tmp_path)
    assert ports(tmp_path) == {ABOVE_GPU: 0x1D, ABOVE_NIC: 0x1D}


def test_a_port_without_the_capability_and_one_that_cannot_be_read_whole_are_none(tmp_path: Path) -> None:
    Node(tmp_path)
    for address, config in ((ABOVE_GPU, space(6, (0x18, 0x18), None)), (ABOVE_NIC, space(6, (0x19, 0x19), 1)[:64])):
        (tmp_path / "sys/bus/pci/devices" / address / "config").write_bytes(config)
    assert ports(tmp_path) == {}


def test_ports_are_turned_off_once_and_get_their_value_back(tmp_path: Path) -> None:
    node, wish = Node(tmp_path), Wish(TEXT, acs_off=(ABOVE_GPU, ABOVE_NIC))
    dry = node.tuning().ensure(wish, 1, "a", check=True)
    assert node.ran == []
    assert node.tuning().ensure(wish, 1, "a") == dry
    assert [str(item) for item in dry if item.kind == "part"] == [
        f"{address} ACS control 001d, wanted 0000" for address in (ABOVE_GPU, ABOVE_NIC)
    ]
    off = [WRITE.format(address, "0000") for address in (ABOVE_GPU, ABOVE_NIC)]
    assert node.ran == [*off, "systemctl daemon-reload", f"systemctl enable {UNIT}"]
    assert node.tuning().ensure(wish, 1, "a") == []
    record = tmp_path / "rackready/pcie-acs.json"
    assert json.loads(record.read_text()) == {ABOVE_GPU: "001d", ABOVE_NIC: "001d"}
    node.ran.clear()
    node.tuning().ensure(Wish(), 1, "a")
    assert node.ran[:2] == [WRITE.format(address, "001d") for address in (ABOVE_GPU, ABOVE_NIC)]
    assert ports(tmp_path) == {ABOVE_GPU: 0x1D, ABOVE_NIC: 0x1D}
    assert json.loads(record.read_text()) == {}
    assert node.tuning().ensure(Wish(), 1, "a") == []


def test_a_port_that_was_off_before_stays_off_when_the_declaration_goes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / ABOVE_NIC / "config").write_bytes(space(6, (0x19, 0x19), 0))
    node.tuning().ensure(Wish(TEXT, acs_off=(ABOVE_GPU, ABOVE_NIC)), 1, "a")
    node.tuning().ensure(Wish(), 1, "a")
    assert ports(tmp_path) == {ABOVE_GPU: 0x1D, ABOVE_NIC: 0}


def test_a_write_that_the_kernel_drops_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.deaf = True
    with pytest.raises(NodeProblem) as caught:
        node.tuning().ensure(Wish(TEXT, acs_off=(ABOVE_GPU,)), 1, "a")
    assert str(caught.value) == (
        f"Expected: {ABOVE_GPU} ACS control 0000 Actual: {ABOVE_GPU} ACS control 001d. "
        "The kernel refuses the write, as with Secure Boot: turn ACS off in the BIOS."
    )


def test_a_setpci_that_fails_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    tuning = node.tuning()
    said = "pcilib: sysfs_write: write failed: Operation not permitted\n"
    tuning.run = lambda argv: Done(1, said) if argv[0] == "setpci" else Done(0, "")
    with pytest.raises(NodeProblem) as caught:
        tuning.ensure(Wish(TEXT, acs_off=(ABOVE_GPU,)), 1, "a")
    command = WRITE.format(ABOVE_GPU, "0000")
    assert str(caught.value) == (
        f"Expected: `{command}` succeeds Actual: exit 1: pcilib: sysfs_write: write failed: Operation not permitted. "
        f"Run `{command}` on the node; if the kernel refuses it, turn ACS off in the BIOS."
    )


def test_a_host_of_virtual_machines_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/drivers/vfio-pci"
    folder.mkdir(parents=True)
    (folder / "new_id").write_text("")
    refuse_guests(tmp_path)
    (folder / GPU).mkdir()
    with pytest.raises(NodeProblem) as caught:
        refuse_guests(tmp_path)
    assert str(caught.value) == (
        f"Expected: no device for virtual machines (vfio-pci) on a node with ACS off Actual: {GPU}. "
        "Set base_pcie_acs_off: false for this node: without ACS, a guest's device reaches those of others."
    )
