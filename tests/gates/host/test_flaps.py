"""Flaps in the kernel log belong to the NIC with the PCI address, whatever its interface is called at that moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import WHERE, Change, Document, judge
from tests.gates.support import tells


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def named(netdev: str, pci: str | None = "0000:18:00.0") -> Change:
    """One flap that the kernel logs under another name than the plan's, as an interface has before it is renamed."""
    device = f"{pci} {netdev}" if pci else netdev

    def change(found: Document) -> None:
        lines = f"[ 80000.000000] mlx5_core {device}: Link down\n[ 80002.000000] mlx5_core {device}: Link up\n"
        found["commands"]["dmesg"].update(stdout=lines)
        found["files"]["/proc/uptime"] = {"/proc/uptime": "90000.00 1.0"}

    return change


@pytest.mark.parametrize(
    "change",
    [named("eth4"), named("eth4 (unregistered)"), named("enp24s0np0", None)],
    ids=["another name", "a name in brackets", "no address"],
)
def test_a_flap_is_the_nics_by_its_pci_address(node: Node, change: Change) -> None:
    verdict = judge(node, "node/host/sanity/links", change)
    assert (tells(verdict), verdict.outcome) == (
        [
            (
                "link-went-down-lately",
                WHERE,
                "not in the last 6 h, except 1800 s after boot",
                "1, the last 80000 s after boot",
            )
        ],
        Outcome.FAIL,
    )
    assert "node01/mlx5_0" not in verdict.measured


@pytest.mark.parametrize(
    "change", [named("eth4", "0000:18:00.1"), named("eth4", None)], ids=["another port", "another interface"]
)
def test_a_flap_of_another_device_is_not_the_nics(node: Node, change: Change) -> None:
    assert judge(node, "node/host/sanity/links", change).outcome is Outcome.PASS


def test_an_outage_that_ends_under_another_name_has_ended(node: Node) -> None:
    def change(found: Document) -> None:
        lines = (
            "[   20.000000] mlx5_core 0000:18:00.0 eth4: Link down\n[   40.000000] mlx5_core 0000:18:00.0 "
            "enp24s0np0: Link up\n"
        )
        found["commands"]["dmesg"].update(stdout=lines)
        found["files"]["/proc/uptime"] = {"/proc/uptime": "90000.00 1.0"}

    assert judge(node, "node/host/sanity/links", change).outcome is Outcome.PASS
