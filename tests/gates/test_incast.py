"""Incast: losses, and their class, are found at the NIC or switch port where they happen.

A port that was not filled proves nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import pytest

from rackready.drivers.switch import nvue_counters
from rackready.format_error import FormatError
from rackready.gates.base import GateFacts, Run
from rackready.gates.engine.registry import gate
from rackready.gates.engine.schedule import batches
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Said, Told, between, outputs, rack, tells, text

GATE = "cluster/fabric/stress/incast"
NODES = ("node02", "node03", "node01")
"""Receiver and senders of the first run (rail 1)."""


def site(os: str = "cumulus_nvue") -> GateFacts:
    """Three nodes, every rail cabled to a leaf: rail R of node N to port swp(8 (N-1) + R)."""
    known = rack(3)
    nodes = {
        name: dataclasses.replace(
            node,
            nics=tuple(
                dataclasses.replace(nic, switch="leaf01", switch_os=os, port=f"swp{8 * place + nic.rail}")
                for nic in node.nics
            ),
        )
        for place, (name, node) in enumerate(known.nodes.items())
    }
    return dataclasses.replace(known, nodes=nodes)


def nic(*, hardware: Mapping[str, int] | None = None, interface: Mapping[str, int] | None = None) -> Said:
    zero = {
        "np_ecn_marked_roce_packets": 5,
        "np_cnp_sent": 5,
        "packet_seq_err": 2,
        "local_ack_timeout_err": 0,
        "lifespan": 10,
    }
    names = (
        "rx_discards_phy",
        "tx_discards_phy",
        "rx_global_pause",
        "rx_prio0_bytes",
        "tx_prio0_bytes",
        "rx_prio3_bytes",
        "tx_prio3_bytes",
        "rx_prio3_pause",
        "rx_prio0_pause",
        "tx_prio6_packets",
        "rx_prio3_discards",
        "rx_prio0_discards",
        "rx_prio3_buf_discard",
    )
    ports = {
        "mlx5_0": {
            "hardware": {**zero, **(hardware or {})},
            "port": {},
            "interface": {**dict.fromkeys(names, 7), **(interface or {})},
        }
    }
    return Said(json.dumps({"format": "rackready/nic-counters/v1", "ports": ports, "complete": True}))


def leaf(**changed: Mapping[str, Mapping[str, int]]) -> Said:
    """Counters of ports swp1 (node01), swp9 (node02), swp17 (node03); changed: {swp9: {"pfc-stats/3": {...}}}."""
    out = []
    for port in ("swp9", "swp17", "swp1"):
        qos = {
            "egress-queue-stats": {
                str(n): {
                    "tx-frames": 9,
                    "tx-bytes": 9,
                    "tx-uc-buffer-discards": 0,
                    "ecn-marked-frames": 0,
                    "wred-discards": 0,
                }
                for n in range(8)
            },
            "ingress-buffer-stats": {
                str(n): {"rx-frames": 9, "rx-buffer-discards": 1, "rx-shared-buffer-discards": 0} for n in range(8)
            },
            "pfc-stats": {str(n): {"rx-pause-frames": 0, "tx-pause-frames": 0} for n in range(8)},
        }
        stats = {"in-errors": 3, "in-drops": 0, "out-errors": 0, "out-drops": 0}
        for path, values in changed.get(port, {}).items():
            group, _, number = path.partition("/")
            (qos[group][number] if number else stats).update(values)
        out += [f"== {port} qos", json.dumps(qos, indent=2), f"== {port} stats", json.dumps(stats)]
    return Said("\n".join(out) + "\n")


def client(average: float = 195.6, node: str = "node03", *, size: int = 1048576, seconds: float = 6.0) -> Said:
    """Report of a sender that wrote for 10 s, of which perftest counts 6."""
    row = f" {size}    {int(average * seconds * 1e9 / 8 / size)}             0.00             {average:.2f}"
    whole = " 8388608    2000             391.39             391.27 \t\t   0.005830"
    body = text("perftest/dgx_h100_rail1_host_memory.txt").replace(
        whole, f"{row} \t\t   {average * 1e3 / 8 / size:.6f}"
    )
    return Said(between(body, f"192.168.1.{10 + int(node[-2:])}", "192.168.1.12"))


def received(**interface: int) -> Said:
    """The receiver's NIC after a healthy run; ``interface``: counters of the driver that differ."""
    hardware = {"np_ecn_marked_roce_packets": 900_005, "np_cnp_sent": 18_005}
    return nic(
        hardware=hardware, interface={"rx_prio3_bytes": 480_000_000_000, "tx_prio6_packets": 18_007, **interface}
    )


RECEIVED = received()
SENT = nic(interface={"tx_prio3_bytes": 240_000_000_000, "rx_prio3_pause": 120})
LEAF = leaf(
    swp9={"egress-queue-stats/3": {"ecn-marked-frames": 900_000}}, swp17={"pfc-stats/3": {"tx-pause-frames": 60}}
)
HEALTHY = {
    **{f"before-{node}": nic() for node in NODES},
    "before-leaf01": leaf(),
    "after-leaf01": LEAF,
    "after-node02": RECEIVED,
    "after-node03": SENT,
    "after-node01": SENT,
    **{
        f"{kind}-{node}": Said() if kind == "server" else client(node=node)
        for kind in ("server", "client")
        for node in ("node01", "node03")
    },
}


def planned() -> tuple[GateFacts, Run]:
    known = site()
    return known, gate(GATE).plan(known, list(known.nodes))[0]


def judged(**changed: Said) -> Verdict:
    known, run = planned()
    return gate(GATE).evaluate(
        known, run, outputs(run, {**HEALTHY, **{key.replace("_", "-"): value for key, value in changed.items()}})
    )


def test_the_plan_fills_one_port_and_reads_both_ends_of_every_cable() -> None:
    known, run = planned()
    assert run.target == "rail1 into node02"
    assert run.nodes == NODES
    assert [command.key for command in run.commands if command.stage == 0] == [
        "before-node02",
        "before-node03",
        "before-node01",
        "before-leaf01",
    ]
    assert "for p in swp9 swp17 swp1;" in run.commands[3].argv[0]
    assert run.commands[3].node == "leaf01"
    runs = gate(GATE).plan(known, list(known.nodes))
    assert len(runs) == 24, "8 rails into 3 nodes"
    assert {node for run in runs for node in run.nodes} == set(known.nodes)


@pytest.mark.parametrize("nodes", [3, 4, 5, 13])
def test_every_node_sends_and_receives_on_every_rail(nodes: int) -> None:
    """A switch pauses a sender at the port where it enters; only a receiver shows whether its NIC notifies senders."""
    known = rack(nodes)
    runs = gate(GATE, {"senders": 3}).plan(known, list(known.nodes))
    for rail in range(1, 9):
        assert {node for run in runs if run.about["rail"] == str(rail) for node in run.nodes[1:]} == set(known.nodes)
        assert sorted(run.nodes[0] for run in runs if run.about["rail"] == str(rail)) == sorted(known.nodes)


def test_a_lossless_fabric_passes_and_its_cables_are_measured() -> None:
    verdict = judged()
    assert tells(verdict) == []
    assert verdict.outcome is Outcome.PASS
    assert "node02/rail1/cable" in verdict.measured
    assert verdict.measured == ["node02/mlx5_0", "node02/rail1", "node02/rail1/cable"], (
        "senders are measured where they receive"
    )


def test_packets_of_another_class_that_a_nic_throws_away_are_no_loss_of_the_lossless_one() -> None:
    assert judged(after_node02=received(rx_prio0_discards=77)).outcome is Outcome.PASS


FAILS = [
    (
        "a port drops out of the shared buffer",
        {
            "after_leaf01": leaf(
                swp17={"ingress-buffer-stats/3": {"rx-shared-buffer-discards": 9000}},
                swp9={"egress-queue-stats/3": {"ecn-marked-frames": 900_000}},
            )
        },
        ("incast-frames-dropped", "leaf01 swp17 (to node03 rail 1)", "0", "9000 in priority 3", "port=swp17"),
    ),
    *(
        (
            f"a receiver that counts {name}",
            {"after_node02": received(**{name: 77_784})},
            ("incast-packets-lost", "node02 mlx5_0 (rail 1)", "0", f"{name} 77777", "netdev=enp24s0np0"),
        )
        for name in ("rx_prio3_discards", "rx_prio3_buf_discard")
    ),
    (
        "a port drops for want of pauses",
        {
            "after_leaf01": leaf(
                swp17={"ingress-buffer-stats/3": {"rx-buffer-discards": 4001}},
                swp9={"egress-queue-stats/3": {"ecn-marked-frames": 900_000}},
            )
        },
        ("incast-frames-dropped", "leaf01 swp17 (to node03 rail 1)", "0", "4000 in priority 3", "port=swp17"),
    ),
    (
        "packets lost on the way from a sender",
        {
            "after_node03": nic(
                hardware={"packet_seq_err": 4002, "local_ack_timeout_err": 40},
                interface={"tx_prio3_bytes": 240_000_000_000},
            )
        },
        (
            "incast-packets-lost",
            "node03 mlx5_0 (rail 1)",
            "0",
            "local_ack_timeout_err 40, packet_seq_err 4000",
            "netdev=enp24s0np0",
        ),
    ),
    (
        "RoCE data in another class",
        {"after_node03": nic(interface={"tx_prio0_bytes": 240_000_000_000, "tx_prio3_bytes": 7})},
        ("incast-data-class", "node03 mlx5_0 (rail 1)", "priority 3 (DSCP 26)", "100% in priority 0", "device=mlx5_0"),
    ),
    (
        "pauses outside of the RoCE class",
        {
            "after_node03": nic(
                interface={"tx_prio3_bytes": 240_000_000_000, "rx_prio0_pause": 90, "rx_global_pause": 12}
            )
        },
        ("incast-nic-pauses", "node03 mlx5_0 (rail 1)", "in priority 3 only", "83 in priority 0, 5 for all"),
    ),
    (
        "a switch that marks nothing",
        {"after_node02": nic(interface={"rx_prio3_bytes": 480_000_000_000})},
        ("incast-no-ecn-marks", "node02 mlx5_0 (rail 1)", "packets marked by leaf01 swp9", "none"),
    ),
    (
        "a NIC that tells nobody",
        {
            "after_node02": nic(
                hardware={"np_ecn_marked_roce_packets": 900_005}, interface={"rx_prio3_bytes": 480_000_000_000}
            )
        },
        (
            "incast-no-notifications",
            "node02 mlx5_0 (rail 1)",
            "sent for 900000 marked packets",
            "none",
            "netdev=enp24s0np0",
        ),
    ),
    (
        "notifications in another class",
        {"after_node02": Said(RECEIVED.stdout.replace('"tx_prio6_packets": 18007', '"tx_prio6_packets": 7'))},
        (
            "incast-notification-class",
            "node02 mlx5_0 (rail 1)",
            "18000 packets in priority 6",
            "0",
            "netdev=enp24s0np0",
        ),
    ),
    (
        "errors of a port",
        {
            "after_leaf01": leaf(
                swp9={"egress-queue-stats/3": {"ecn-marked-frames": 900_000}}, swp1={"stats": {"in-errors": 120}}
            )
        },
        ("incast-switch-port-errors", "leaf01 swp1 (to node01 rail 1)", "0", "117"),
    ),
    (
        "pauses of a switch port in another class",
        {"after_leaf01": leaf(swp17={"pfc-stats/0": {"tx-pause-frames": 60}})},
        ("incast-switch-pauses", "leaf01 swp17 (to node03 rail 1)", "in priority 3 only", "60 in priority 0"),
    ),
]


def test_pauses_that_are_not_counted_are_an_error() -> None:
    said_ = {
        f"{when}_{node}": Said(one.stdout.replace('"rx_prio3_pause"', '"rx_prio5_pause"'))
        for when, node, one in (
            ("before", "node03", nic()),
            ("after", "node03", nic(interface={"tx_prio3_bytes": 240_000_000_000})),
        )
    }
    verdict = judged(**said_)
    assert tells(verdict) == [
        ("incast-no-pauses-by-priority", "node03 mlx5_0 (rail 1)", "rx_prio3_pause", "missing", "netdev=enp24s0np0")
    ]
    assert verdict.outcome is Outcome.ERROR


@pytest.mark.parametrize(("name", "changed", "finding"), FAILS, ids=[row[0] for row in FAILS])
def test_what_is_wrong_is_found_where_it_is(name: str, changed: dict[str, Said], finding: Told) -> None:
    verdict = judged(**changed)
    assert tells(verdict) == [finding], name
    assert verdict.outcome is Outcome.FAIL
    assert verdict.measured == []


LEAF_END = " ".join(LEAF.stdout.split())[-80:]
ERRORS = [
    (
        "a counter of losses that is not there any more",
        {"after_node03": Said(SENT.stdout.replace('"packet_seq_err": 2, ', ""))},
        (
            "incast-nic-counters-missing",
            "node03 mlx5_0 (rail 1)",
            "packet_seq_err, local_ack_timeout_err, rx_discards_phy, tx_discards_phy before and after",
            "no packet_seq_err",
        ),
    ),
    (
        "a counter that is no number",
        {"after_node03": Said(SENT.stdout.replace('"packet_seq_err": 2', '"packet_seq_err": null'))},
        (
            "incast-nic-counters-unreadable",
            "node03 mlx5_0 (rail 1)",
            "a complete document",
            "mlx5_0: hardware holds something that is not a number",
        ),
    ),
    (
        "a switch whose command was killed",
        {"after_leaf01": Said(LEAF.stdout, exit_code=137)},
        ("incast-switch-counters-unreadable", "leaf01", "the counters of every port", f"exit code 137: {LEAF_END}"),
    ),
    (
        "senders one after the other",
        {"client_node01": client(390.0, "node01"), "client_node03": client(391.0)},
        ("incast-not-side-by-side", "node02 mlx5_0 (rail 1)", "senders together at most 408 Gb/s", "781 Gb/s"),
    ),
    (
        "a port that was not filled",
        {"client_node01": client(1.0, "node01"), "client_node03": client(1.0)},
        ("incast-not-filled", "node02 mlx5_0 (rail 1)", "senders together at least 200 Gb/s", "2 Gb/s"),
    ),
    (
        "one sender alone",
        {"client_node01": client(0.5, "node01"), "client_node03": client(390.0)},
        (
            "incast-not-all-wrote",
            "node02 mlx5_0 (rail 1)",
            "at least 19.5 Gb/s from every sender (0.1 of an even share)",
            "0.5 Gb/s from node01",
        ),
    ),
    (
        "messages that did not arrive, and exit code 0",
        {"server_node01": Said("", " Completion with error at server\n")},
        (
            "rdma-tool-contradicts",
            "node01 mlx5_0 -> node02 mlx5_0 (rail 1)",
            "exit code 0 and no message of a failure",
            "Completion with error at server",
            "program=ib_write_bw",
        ),
    ),
    (
        "a switch that does not answer",
        {"after_leaf01": Said(exit_code=None, failure="leaf01 (192.0.2.21:22): no SSH session")},
        (
            "command-could-not-run",
            "leaf01",
            "a result",
            "leaf01 (192.0.2.21:22): no SSH session",
            "command=reading of switch counters",
            "node=leaf01",
        ),
    ),
    (
        "a switch of another kind",
        {"after_leaf01": Said("== swp9 qos\nsh: 1: nv: not found\n")},
        (
            "incast-switch-counters-unreadable",
            "leaf01",
            "the counters of every port",
            "swp9 qos: no JSON, but 'sh: 1: nv: not found'",
        ),
    ),
    (
        "counters that went back",
        {"after_leaf01": leaf(swp9={"stats": {"in-errors": 0}})},
        (
            "incast-switch-counters-went-back",
            "leaf01",
            "numbers that grow",
            "a counter that went back: the switch was booted or its counters cleared",
        ),
    ),
    (
        "a driver without counters by priority",
        {"after_node03": nic()},
        ("incast-no-bytes-by-priority", "node03 mlx5_0 (rail 1)", "tx_prio*_bytes that grow", "none"),
    ),
]


@pytest.mark.parametrize(("name", "changed", "finding"), ERRORS, ids=[row[0] for row in ERRORS])
def test_what_cannot_be_judged_is_an_error(name: str, changed: dict[str, Said], finding: Told) -> None:
    verdict = judged(**changed)
    assert tells(verdict) == [finding], name
    assert verdict.outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("", "no counters"),
        (LEAF.stdout.replace('"ecn-marked-frames"', '"ecn-marked"'), "egress-queue-stats/0/ecn-marked-frames is None"),
        (LEAF.stdout.replace("== swp9 stats", "== swp9 other"), "damaged at line"),
        (
            LEAF.stdout.replace('"rx-buffer-discards": 1', '"rx-buffer-discards": "1 Bytes"'),
            "is '1 Bytes' instead of a number",
        ),
    ],
)
def test_damaged_counters_are_refused(damaged: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        nvue_counters.parse(damaged)


def test_runs_without_a_node_in_common_go_side_by_side() -> None:
    made = gate(GATE)
    facts = rack(10)
    together = [{run.target for run in batch} for batch in batches(made.plan(facts, sorted(facts.nodes)), 16)]
    assert any({"rail1 into node02", "rail1 into node07"} <= batch for batch in together)
    assert all(len(batch) <= 2 for batch in together)
