"""Incast: senders wrote what they were asked for, and every port counted it."""

from __future__ import annotations

import dataclasses

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome
from tests.gates.support import Said, Told, tells
from tests.gates.test_incast import GATE, client, judged, nic, received, site

FROM03 = "node03 mlx5_0 -> node02 mlx5_0 (rail 1)"
MUCH = nic(interface={"tx_prio3_bytes": 400_000_000_000})
BYTES = [
    (
        "a receiver that got next to nothing",
        {"after_node02": received(rx_prio3_bytes=5_000_000)},
        (
            "incast-port-bytes",
            "node02 mlx5_0 (rail 1)",
            "at least 293.4 GB, as the senders report",
            "0.0 GB",
            "direction=received",
        ),
    ),
    (
        "a sender whose port sent less than it says that it wrote",
        {"after_node03": nic(interface={"tx_prio3_bytes": 140_000_000_000})},
        (
            "incast-port-bytes",
            "node03 mlx5_0 (rail 1)",
            "at least 146.7 GB, as the senders report",
            "140.0 GB",
            "direction=sent",
        ),
    ),
]
OTHER = [
    (
        "a sender at another address",
        {"client_node03": client(node="node04")},
        (
            "rdma-other-gids",
            FROM03,
            "192.168.1.13 to 192.168.1.12",
            "192.168.1.14 to 192.168.1.12",
            "program=ib_write_bw",
        ),
    ),
    (
        "messages of another size",
        {"client_node03": client(size=65536)},
        (
            "incast-something-else",
            FROM03,
            "mlx5_0, link type Ethernet, 1048576 bytes a message, GPU memory by none",
            "mlx5_0, link type Ethernet, 65536 bytes a message, GPU memory by none",
        ),
    ),
    (
        "another device",
        {"client_node03": Said(client().stdout.replace(": mlx5_0", ": mlx5_3"))},
        (
            "incast-something-else",
            FROM03,
            "mlx5_0, link type Ethernet, 1048576 bytes a message, GPU memory by none",
            "mlx5_3, link type Ethernet, 1048576 bytes a message, GPU memory by none",
        ),
    ),
    (
        "a sender that wrote for a moment",
        {"client_node03": client(seconds=0.1)},
        ("incast-other-time", FROM03, "6 to 10 s", "0.1 s: 2331 x 1048576 bytes at 195.6 Gb/s"),
    ),
]


@pytest.mark.parametrize(("name", "changed", "finding"), BYTES, ids=[row[0] for row in BYTES])
def test_bytes_that_no_port_carried_are_a_fail(name: str, changed: dict[str, Said], finding: Told) -> None:
    verdict = judged(**changed)
    assert tells(verdict) == [finding], name
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, [])


@pytest.mark.parametrize(("name", "changed", "finding"), OTHER, ids=[row[0] for row in OTHER])
def test_something_else_than_was_asked_for_is_an_error(name: str, changed: dict[str, Said], finding: Told) -> None:
    verdict = judged(**changed)
    assert tells(verdict) == [finding], name
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


@pytest.mark.parametrize("lasted", [5.5, 6.0, 10.0, 10.9])
def test_a_sender_may_count_the_whole_time_or_what_its_margins_leave(lasted: float) -> None:
    assert (
        judged(
            client_node03=client(seconds=lasted),
            after_node02=received(rx_prio3_bytes=900_000_000_000),
            after_node03=MUCH,
        ).outcome
        is Outcome.PASS
    )


def test_bytes_that_are_just_those_that_were_written_are_enough() -> None:
    """Counters that leave out headers grow by the payload itself."""
    wrote = int(195.6 * 6e9 / 8 / 1048576) * 1048576
    sent = nic(interface={"tx_prio3_bytes": 7 + wrote})
    exact = {"after_node01": sent, "after_node03": sent}
    assert judged(**exact, after_node02=received(rx_prio3_bytes=7 + 2 * wrote)).outcome is Outcome.PASS
    verdict = judged(**exact, after_node02=received(rx_prio3_bytes=6 + 2 * wrote))
    assert [finding.what for finding in verdict.findings] == ["bytes received by the port"]


def test_on_infiniband_there_is_nothing_to_judge() -> None:
    """Credits lose nothing: the gate, which judges RoCE's congestion control, starts nothing there."""
    known = site()
    known = dataclasses.replace(known, fabric=known.fabric.model_copy(update={"kind": "infiniband"}))
    found = gate(GATE)
    [run] = found.plan(known, list(known.nodes))
    assert (run.commands, set(run.nodes)) == ((), set(known.nodes))
    verdict = found.evaluate(known, run, {})
    assert (verdict.outcome, verdict.findings) == (Outcome.PASS, [])
    assert found.plan(site(), list(known.nodes))[0].commands
