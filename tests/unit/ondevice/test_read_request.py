"""MaxReadReq: three bits are written, the others stay; what is refused. Words: setpci of pciutils 3.9.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.read_request import UNIT, UNIT_FILE, ReadRequest

CARDS = ["0000:18:00.0", "0000:40:00.0"]
WRITE = "setpci -s {} CAP_EXP+8.w=5000:7000"
AFTER = ["systemctl daemon-reload", f"systemctl enable {UNIT}"]


class Node:
    """Device Control of the cards; ``stays``: cards that take no value."""

    def __init__(self) -> None:
        self.registers = {CARDS[0]: 0x2937, CARDS[1]: 0x5936}
        self.stays: set[str] = set()
        self.fails: dict[str, str] = {}
        self.enabled = False
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if "is-enabled" in line:
            return Done(0 if self.enabled else 1, "")
        if argv[0] == "setpci" and "=" not in line:
            if argv[2] not in self.registers:
                return Done(0, "setpci: Warning: No devices selected for operation group 1.\n")
            return Done(0, f"{self.registers[argv[2]]:04x}\n")
        self.ran.append(line)
        if line in self.fails:
            return Done(1, self.fails[line])
        if argv[0] == "setpci" and argv[2] not in self.stays:
            value, mask = (int(word, 16) for word in argv[3].partition("=")[2].split(":"))
            self.registers[argv[2]] = self.registers[argv[2]] & ~mask | value
        self.enabled = " enable " in line or (self.enabled and " disable " not in line)
        return Done(0, "")


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def cards(node: Node, tmp_path: Path) -> ReadRequest:
    return ReadRequest(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


def test_only_cards_that_differ_are_written_and_their_other_bits_stay(cards: ReadRequest, node: Node) -> None:
    found = cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    assert [str(item) for item in found if item.kind == "nic"] == [
        f"{CARDS[0]} MaxReadReq 512 bytes, wanted 4096 bytes",
    ]
    assert node.ran == [WRITE.format(CARDS[0]), *AFTER]
    assert node.registers == {CARDS[0]: 0x5937, CARDS[1]: 0x5936}
    node.ran.clear()
    assert (cards.ensure(CARDS, 4096, "[Unit]\n", 2, "a"), node.ran) == ([], [])


@pytest.mark.parametrize(
    ("size", "word"), [(128, "0000"), (256, "1000"), (512, "2000"), (1024, "3000"), (2048, "4000")]
)
def test_each_size_has_its_number(cards: ReadRequest, node: Node, size: int, word: str) -> None:
    cards.ensure(CARDS[1:], size, "[Unit]\n", 1, "a")
    assert node.ran[0] == f"setpci -s {CARDS[1]} CAP_EXP+8.w={word}:7000"
    assert cards.read(CARDS[1]) == size


def test_a_dry_run_reports_and_does_nothing(cards: ReadRequest, node: Node) -> None:
    assert [item.kind for item in cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a", check=True)] == ["file", "nic"]
    assert node.ran == []
    assert not (cards.root / "etc").exists()


def test_a_changed_register_and_a_disabled_unit_are_seen(cards: ReadRequest, node: Node) -> None:
    cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    node.registers[CARDS[1]], node.enabled = 0x0936, False
    assert [str(item) for item in cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a", check=True)] == [
        f"{UNIT} disabled, wanted enabled",
        f"{CARDS[1]} MaxReadReq 128 bytes, wanted 4096 bytes",
    ]


def test_without_the_option_the_unit_goes_and_the_register_stays(cards: ReadRequest, node: Node) -> None:
    cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    node.ran.clear()
    cards.ensure(CARDS, 0, "[Unit]\n", 1, "a")
    assert node.ran == [f"systemctl disable {UNIT}", "systemctl daemon-reload"]
    assert not (cards.root / UNIT_FILE.lstrip("/")).exists()
    assert node.registers == {CARDS[0]: 0x5937, CARDS[1]: 0x5936}
    node.ran.clear()
    assert (cards.ensure(CARDS, 0, "[Unit]\n", 1, "a"), node.ran) == ([], [])


def test_an_absent_card_is_refused(cards: ReadRequest, node: Node) -> None:
    with pytest.raises(NodeProblem) as problem:
        cards.ensure([*CARDS, "0000:ff:00.0"], 4096, "[Unit]\n", 1, "a")
    assert str(problem.value) == (
        "Expected: Device Control of 0000:ff:00.0, read by setpci Actual: exit 0: setpci: Warning: No devices selected "
        "for operation group 1. Run `setpci -s 0000:ff:00.0 CAP_EXP+8.w` on the node; check `lspci` and the platform "
        "profile."
    )
    assert node.ran == []


def test_a_card_that_fell_off_the_bus_is_refused(cards: ReadRequest, node: Node) -> None:
    node.registers[CARDS[0]] = 0xFFFF
    with pytest.raises(NodeProblem, match=r"Actual: exit 0: ffff\. Run `setpci"):
        cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    assert node.ran == []


def test_a_value_that_is_not_there_after_the_write_is_refused(cards: ReadRequest, node: Node) -> None:
    node.stays = {CARDS[0]}
    with pytest.raises(NodeProblem) as problem:
        cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    assert str(problem.value) == (
        f"Expected: {CARDS[0]} MaxReadReq 4096 bytes Actual: {CARDS[0]} MaxReadReq 512 bytes. Run `lspci -vvv` on the "
        "node: a card or hypervisor may refuse the value. Choose another in site.yml."
    )


def test_a_write_that_fails_is_refused(cards: ReadRequest, node: Node) -> None:
    line = WRITE.format(CARDS[0])
    node.fails[line] = "setpci: pcilib: sysfs_write: Operation not permitted.\nTry `setpci --help' for more.\n"
    with pytest.raises(NodeProblem) as problem:
        cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    assert str(problem.value) == (
        f"Expected: `{line}` succeeds Actual: exit 1: setpci: pcilib: sysfs_write: Operation not permitted. Run "
        f"`{line}` on the node and read its output."
    )


def test_a_locked_kernel_is_refused_before_anything_is_written(cards: ReadRequest, node: Node, tmp_path: Path) -> None:
    """Linux drivers/pci/pci-sysfs.c, pci_write_config."""
    (tmp_path / "sys/kernel/security").mkdir(parents=True)
    (tmp_path / "sys/kernel/security/lockdown").write_text("none integrity [confidentiality]\n")
    with pytest.raises(NodeProblem) as caught:
        cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")
    assert str(caught.value) == (
        f"Expected: {CARDS[0]} MaxReadReq 4096 bytes Actual: {CARDS[0]} MaxReadReq 512 bytes; a kernel in lockdown "
        "(confidentiality) refuses setpci's writes. Leave out software.nic_max_read_request, set the value in the "
        "BIOS, or turn Secure Boot off."
    )
    assert (node.ran, (tmp_path / UNIT_FILE.lstrip("/")).exists()) == ([], False)
    node.registers[CARDS[0]] = 0x5937
    assert [item.name for item in cards.ensure(CARDS, 4096, "[Unit]\n", 1, "a")] == [UNIT_FILE]
