"""Findings of fabric gates that are rare on good hardware, each by its code, place and values."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome
from tests.gates import test_collectives as collectives
from tests.gates import test_ib_latency as latency
from tests.gates import test_ib_write_bw as bandwidth
from tests.gates import test_incast as incast
from tests.gates import test_nccl_ring as ring
from tests.gates.support import Said, Told, judge, outputs, rack, tells

RECEIVER, SENDER = "node02 mlx5_0 (rail 1)", "node03 mlx5_0 (rail 1)"
LISTED = collectives.log(rack(1), ("node01",)).splitlines()[0].split("NCCL INFO ")[1]
"""NCCL's list of HCAs, which NET/IB alone prints."""
LIBFABRIC = {"Using network IB": "Using network AWS Libfabric", "via NET/IB/": "via NET/AWS Libfabric/"}
NO_COUNTERS = "no document of format rackready/rdma-counters/v2"
SOCKETS = {
    LISTED: "NET/Socket : Using [0]eth0:192.0.2.11<0>",
    "Using network IB": "Using network Socket",
    "via NET/IB/": "via NET/Socket/",
    "/GDRDMA": "",
}


def without(said: Said, counter: str) -> Said:
    """A reading of a NIC that has no such counter."""
    found = json.loads(said.stdout)
    for kind in ("hardware", "interface"):
        found["ports"]["mlx5_0"][kind].pop(counter, None)
    return Said(json.dumps(found))


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        (
            {"after_node03": incast.nic(interface={"tx_prio3_bytes": 240_000_000_000, "rx_global_pause": 3})},
            ("incast-nic-counters-went-back", SENDER, "numbers that grow", "rx_global_pause went back"),
        ),
        (
            {
                "before_node02": without(incast.nic(), "np_cnp_sent"),
                "after_node02": without(incast.RECEIVED, "np_cnp_sent"),
            },
            ("incast-no-congestion-counters", RECEIVER, "np_ecn_marked_roce_packets, np_cnp_sent", "missing"),
        ),
        (
            {
                "before_node02": without(incast.nic(), "tx_prio6_packets"),
                "after_node02": without(incast.RECEIVED, "tx_prio6_packets"),
            },
            ("incast-no-packets-by-priority", RECEIVER, "tx_prio6_packets", "missing"),
        ),
        (
            {"after_leaf01": Said(re.sub(r"== swp17 .*?(?=== swp1 )", "", incast.LEAF.stdout, flags=re.DOTALL))},
            ("incast-no-switch-counters", "leaf01 swp17 (to node03 rail 1)", "the port's", "none"),
        ),
        (
            {"client_node03": Said("Killed\n")},
            (
                "incast-unreadable",
                "node03 mlx5_0 -> node02 mlx5_0 (rail 1)",
                "one result block in Gb/sec",
                "no RDMA_Write result block: not ib_write_bw's output, or cut off (exit code 0)",
            ),
        ),
    ],
    ids=["back", "congestion", "packets", "switch", "report"],
)
def test_an_incast_that_cannot_be_judged(changed: dict[str, Said], finding: Told) -> None:
    verdict = incast.judged(**changed)
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)


def test_an_incast_over_a_cable_that_is_not_declared() -> None:
    known = incast.site()
    node = known.nodes["node03"]
    loose = dataclasses.replace(node, nics=tuple(dataclasses.replace(nic, switch="", port="") for nic in node.nics))
    known = dataclasses.replace(known, nodes={**known.nodes, "node03": loose})
    run = gate(incast.GATE).plan(known, list(known.nodes))[0]
    verdict = gate(incast.GATE).evaluate(known, run, outputs(run, incast.HEALTHY))
    wanted = ("incast-cable-not-declared", SENDER, "switch and port", "none")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)


def test_the_latency_of_two_rails_without_a_mark() -> None:
    known = rack(2)
    two = {name: dataclasses.replace(node, nics=node.nics[:2]) for name, node in known.nodes.items()}
    known = dataclasses.replace(known, nodes=two)
    run = gate(latency.READ).plan(known, list(known.nodes))[0]
    keys = {command.key for command in run.commands}
    said = {key: one for key, one in latency.said(gpu=True).items() if key in keys}
    verdict = gate(latency.READ).evaluate(known, run, outputs(run, said))
    wanted = [
        (
            "latency-not-judged",
            f"{near} {nic} -> {far} {nic} (rail {rail})",
            "a published mark or 4 rails",
            "2 rails and no mark",
        )
        for near, far in (("node01", "node02"), ("node02", "node01"))
        for rail, nic in ((1, "mlx5_0"), (2, "mlx5_3"))
    ]
    assert (tells(verdict), verdict.outcome) == (wanted, Outcome.ERROR)


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        (
            {"link_second": Said("{}")},
            ("rdma-link-state-unreadable", RECEIVER, "state of the port", NO_COUNTERS),
        ),
        (
            {"after_second": bandwidth.link(xmit_bytes="many")},
            ("rdma-bytes-no-number", RECEIVER, "a number", "many"),
        ),
    ],
    ids=["link", "bytes"],
)
def test_a_port_that_cannot_be_read(changed: dict[str, Said], finding: Told) -> None:
    verdict = judge(bandwidth.GATE, bandwidth.pair("unreadable", Outcome.ERROR, **changed))
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)


def test_counters_of_a_collective_that_cannot_be_read() -> None:
    verdict = judge(ring.GATE, ring.ring("unreadable", Outcome.ERROR, after_node02=Said("{}")))
    wanted = ("nccl-bytes-unreadable", "node02", "a complete document", NO_COUNTERS)
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)


def test_bytes_of_all_nodes_that_no_algorithm_moves() -> None:
    verdict = collectives.several("cluster/fabric/performance/nccl-all-reduce", traffic=3.0)
    wanted = ("nccl-all-bytes", "all nodes", "5876 to 11017 GB within 5%", "25338 GB")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.FAIL)


@pytest.mark.parametrize(
    ("log", "plugin", "outcome", "finding"),
    [
        (SOCKETS, "ib", Outcome.FAIL, ("nccl-rdma-not-sought", "NET/IB", "NET/Socket, Socket")),
        (
            {LISTED: "NET/OFI Selected provider is tcp, fabric is tcp (found 8 nics)", **LIBFABRIC},
            "ofi",
            Outcome.FAIL,
            ("nccl-other-provider", "efa", "tcp"),
        ),
        (
            {LISTED: "NET/OFI Initializing aws-ofi-nccl 1.16.2", **LIBFABRIC},
            "ofi",
            Outcome.ERROR,
            ("nccl-provider-not-told", "NET/OFI Selected provider is efa", "no such line"),
        ),
    ],
    ids=["sockets", "provider", "no provider"],
)
def test_the_way_that_nccl_takes(
    log: dict[str, str], plugin: str, outcome: Outcome, finding: tuple[str, str, str]
) -> None:
    code, expected, actual = finding
    verdict = collectives.ring(log, plugin)
    assert tells(verdict) == [(code, node, expected, actual) for node in ("node01", "node02")]
    assert verdict.outcome is outcome
