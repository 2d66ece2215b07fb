"""Flaps in the kernel log belong to the NIC with the PCI address, whatever its interface is called at that moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from rackready.ondevice.roce import CHANGES
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.nic import tools
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import LOG, WHERE, Change, Document, flaps, judge, link
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


GATE = "node/host/sanity/links"
RECORD = f"{CHANGES}/enp24s0np0"


def changed(record: str, *outages: tuple[float, float]) -> Change:
    """Add rackready's record of changes of the port, and outages of its link."""

    def change(found: Document) -> None:
        log = "".join(LOG.format(at=down, way="down") + LOG.format(at=up, way="up") for down, up in outages)
        found["commands"]["dmesg"].update(stdout=log)
        found["files"].update({"/proc/uptime": {"/proc/uptime": "90000.00 1.0"}, RECORD: {RECORD: record}})

    return change


def test_what_rackready_did_to_the_port_is_no_flap(node: Node) -> None:
    """The fabric phase sets PFC on a node that has been up for a day."""
    once = "79999.500000 80045.000000"
    assert judge(node, GATE, changed(once, (80000, 80045))).outcome is Outcome.PASS
    twice = changed(f"500.100000 510.000000\n{once}", (501, 505), (80000, 80002), (80010, 80012))
    assert judge(node, GATE, twice, inputs={"max_downs": 0}).outcome is Outcome.PASS
    for other in ("79000.000000 79990.000000", "80000.000000 80001.000000", "noise", ""):
        verdict = judge(node, GATE, changed(other, (80000, 80002)))
        assert [finding.code for finding in verdict.findings] == ["link-went-down-lately"], other


def test_a_link_that_stays_away_after_the_change_was_away(node: Node) -> None:
    verdict = judge(node, GATE, changed("79999.500000 80060.000000", (80000, 80100)))
    assert [finding.code for finding in verdict.findings] == ["link-was-away"]


def test_the_changes_are_no_downs_of_the_counter_either(node: Node) -> None:
    def change(found: Document) -> None:
        changed("2999.500000 3005.000000", (3000, 3005))(found)
        link("counters/link_downed", "5")(found)
        found["files"]["/proc/uptime"] = {"/proc/uptime": "4000.00 1.0"}

    assert judge(node, GATE, change).outcome is Outcome.PASS


def test_the_limit_of_a_day_is_that_of_the_last_day(node: Node) -> None:
    old = [300000.0 + 3600 * at for at in range(5)]
    uptime = "900000.00 1.0"
    assert judge(node, GATE, flaps(*old, uptime=uptime)).outcome is Outcome.PASS
    verdict = judge(node, GATE, flaps(*(at + 520000 for at in old), uptime=uptime))
    assert tells(verdict) == [("link-went-down-often", WHERE, "at most 4 times in 24 h", "5 times")]

    def count(found: Document) -> None:
        link("counters/link_downed", "5")(found)
        found["files"]["/proc/uptime"] = {"/proc/uptime": uptime}

    assert judge(node, GATE, count).outcome is Outcome.PASS, "the counter has counted since boot"


def test_an_infiniband_port_has_only_its_counter_at_any_uptime(node: Node) -> None:
    """The kernel logs no line for such a port (Linux mlx5/core/ipoib/ipoib.c)."""

    def change(found: Document, downs: int) -> None:
        flaps(uptime="259200.00 1.0")(found)
        link("link_layer", "InfiniBand")(found)
        link("counters/link_downed", str(downs))(found)

    verdict = judge(node, GATE, lambda found: change(found, 200))
    assert tells(verdict) == [
        ("link-went-down-since-boot", WHERE, "at most 4 times since boot", "200 times", "device=mlx5_0")
    ]
    assert judge(node, GATE, lambda found: change(found, 4)).outcome is Outcome.PASS


@pytest.mark.parametrize(("layer", "lines"), [(1, []), (2, ["down", "up"] * 6)])
def test_the_simulated_driver_logs_links_of_ethernet_ports_alone(node: Node, layer: int, lines: list[str]) -> None:
    node.state["nics"][0]["nv"]["LINK_TYPE_P1"] = layer
    node.inject("link-flaps", nic=1, count=6)
    log = str(node.run(["dmesg"])["stdout"]).splitlines()
    assert [line.split()[-1] for line in log if "enp24s0np0: Link" in line][-12:] == lines
    counter = paths.at("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed").read_text()
    assert int(counter) == 6 + (layer == 1), "the Ethernet cable of an InfiniBand port gives no link"


def test_the_simulated_driver_drops_a_link_whose_pfc_changes(node: Node) -> None:
    def log() -> list[str]:
        lines = str(node.run(["dmesg"])["stdout"]).splitlines()
        return [line.split("] ")[1] for line in lines if "enp24s0np0: Link" in line]

    counter = paths.at("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed")
    argv = ["-i", "enp24s0np0", "--trust", "dscp", "--pfc", "0,0,0,1,0,0,0,0"]
    before = log()
    assert tools.mlnx_qos(argv) == 0
    both = [f"mlx5_core 0000:18:00.0 enp24s0np0: Link {way}" for way in ("down", "up")]
    assert (log(), counter.read_text()) == ([*before, *both], "1\n")
    assert tools.mlnx_qos(argv) == 0
    assert (log(), counter.read_text()) == ([*before, *both], "1\n"), "nothing changed"
