"""All-reduce over all nodes, with proof of the transport."""

from __future__ import annotations

import re

import pytest

from rackready.gates.base import FinishedRun
from rackready.gates.engine.registry import gate
from rackready.gates.fabric.launchers import common_network
from rackready.gates.nccl.program import collectives_run
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice.rdma_counters import ERRORS
from tests.gates.nccl_table import at
from tests.gates.support import Case, Said, Told, check, judge, port, ports, rack, tells, text

GATE = "cluster/fabric/performance/nccl-all-reduce-ring"
DEVICES = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
MUST = 2 * 15 / 16 * collectives_run("16G")


def counters(
    total: float = 0.0,
    shares: dict[str, float] | None = None,
    errors: dict[str, dict[str, int]] | None = None,
    changed: dict[str, dict[str, str]] | None = None,
    **missing: None,
) -> Said:
    devices = {device: port(7e9 + total / 8 * (shares or {}).get(device, 1.0)) for device in DEVICES}
    devices |= {device: port(state=None, xmit_bytes=value) for device, value in missing.items()}
    for device, grown in (errors or {}).items():
        devices[device]["errors"] = dict.fromkeys(ERRORS, 0) | grown
    for device, words in (changed or {}).items():
        devices[device] |= words
    return Said(ports(devices))


BASE = {
    "before-node01": counters(),
    "before-node02": counters(),
    "after-node01": counters(MUST),
    "after-node02": counters(MUST * 1.02),
}
HEALTHY = Said(text("nccl/2x_dgx_h100_ring_healthy.txt"))


TRYING = HEALTHY.stdout.split("#                                                              out-of-place")[0]
"""NCCL's output before it connects its ranks."""
WARNED = "node02:41003:41103 [3] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_9:1"


def gave_up(stdout: str, stderr: str = "") -> Said:
    return Said(f"{stdout}{WARNED}\n", stderr, 3)


def ring(name: str, outcome: Outcome, *findings: Told, launch: Said = HEALTHY, **outputs: Said) -> Case:
    return Case(
        name,
        {**BASE, "launch0": launch, **{key.replace("_", "-"): value for key, value in outputs.items()}},
        outcome,
        findings,
        {"launches": 1},
        2,
    )


def both(code: str, *values: str) -> tuple[Told, Told]:
    return (code, "node01", *values), (code, "node02", *values)


CASES = [
    ring("healthy", Outcome.PASS),
    ring(
        "HCAs with their rails (NCCL 2.30)",
        Outcome.PASS,
        launch=Said(re.sub(r"\[(\d)\](mlx5_\d+):1/", r"[\1]\2:1:\1/", HEALTHY.stdout)),
    ),
    ring(
        "HCAs with rails and planes (NCCL 2.30)",
        Outcome.PASS,
        launch=Said(re.sub(r"\[(\d)\](mlx5_\d+):1/", r"[\1]\2:1:\1:0/", HEALTHY.stdout)),
    ),
    ring(
        "HCAs with their planes alone (NCCL 2.30)",
        Outcome.PASS,
        launch=Said(re.sub(r"\[(\d)\](mlx5_\d+):1/", r"[\1]\2:1::0/", HEALTHY.stdout)),
    ),
    ring(
        "sockets",
        Outcome.FAIL,
        *both("nccl-rdma-not-used", "NET/IB", "NET/Socket, Socket"),
        *both("nccl-rails-not-used", "traffic on every rail", "0 bytes"),
        (
            "collective-slow",
            "cluster",
            "at least 312.8 GB/s (floor)",
            "9.8 GB/s (median of 1: 9.8)",
            "what=all-reduce of 16 GPUs on 2 nodes",
        ),
        launch=Said(text("nccl/2x_dgx_h100_ring_socket.txt")),
        after_node01=counters(),
        after_node02=counters(),
    ),
    ring(
        "no GPUDirect RDMA",
        Outcome.FAIL,
        *both("nccl-no-gpudirect", "every channel via NET/IB/.../GDRDMA", "channels without GDRDMA"),
        launch=Said(text("nccl/2x_dgx_h100_ring_no_gdr.txt")),
    ),
    ring(
        "a rail that NCCL leaves out",
        Outcome.FAIL,
        *both(
            "nccl-other-hcas",
            "mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9",
            "mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_5, mlx5_6, mlx5_9",
        ),
        launch=Said(text("nccl/2x_dgx_h100_ring_rail3_unused.txt")),
    ),
    ring(
        "HCAs of another link layer",
        Outcome.FAIL,
        *both(
            "nccl-link-layer",
            "RoCE (RoCE)",
            "mlx5_0/IB, mlx5_10/IB, mlx5_11/IB, mlx5_3/IB, mlx5_4/IB, mlx5_5/IB, mlx5_6/IB, mlx5_9/IB",
            "link_type=2",
        ),
        launch=Said(HEALTHY.stdout.replace(":1/RoCE", ":1/IB")),
    ),
    ring(
        "one HCA of another link layer",
        Outcome.FAIL,
        ("nccl-link-layer", "node02", "RoCE (RoCE)", "mlx5_9/IB", "link_type=2"),
        launch=Said(
            "\n".join(
                line.replace("mlx5_9:1/RoCE", "mlx5_9:1/IB") if line.startswith("node02") else line
                for line in HEALTHY.stdout.splitlines()
            )
        ),
    ),
    ring(
        "channels of one GPU alone between the GPUs of a node",
        Outcome.ERROR,
        ("nccl-gpus-not-told", "node01", "channels to another GPU from 8 (but one) GPUs", "from 1"),
        launch=Said(
            "\n".join(
                line
                for line in HEALTHY.stdout.splitlines()
                if not line.startswith("node01") or "[0] NCCL" in line or "via P2P" not in line
            )
        ),
    ),
    ring(
        "one rail carries far less",
        Outcome.FAIL,
        ("nccl-rail-share", "node02 mlx5_4 (rail 3)", "1.0 within 20%", "0.50"),
        after_node02=counters(MUST, {device: 0.5 if device == "mlx5_4" else 7.5 / 7 for device in DEVICES}),
    ),
    ring(
        "half of the bytes went another way",
        Outcome.FAIL,
        ("nccl-node-bytes", "node01", f"{MUST / 1000000000.0:.0f} GB within 5%", f"{MUST / 2000000000.0:.0f} GB"),
        after_node01=counters(MUST / 2),
    ),
    ring(
        "a port that counts errors while it is loaded",
        Outcome.FAIL,
        ("port-errors-grew", "node02 mlx5_4 (rail 3)", "by at most 0", "3120", "name=port_xmit_discards"),
        after_node02=counters(MUST, errors={"mlx5_4": {"port_xmit_discards": 3120}}),
    ),
    ring(
        "a port that fell while it was loaded",
        Outcome.FAIL,
        (
            "rdma-link-down",
            "node02 mlx5_4 (rail 3)",
            "port ACTIVE",
            "port DOWN",
            "when= after the run",
            "cable=its cable",
        ),
        after_node02=counters(MUST, changed={"mlx5_4": {"state": "1: DOWN"}}),
    ),
    ring(
        "a port that trained down while it was loaded",
        Outcome.FAIL,
        ("rdma-link-rate", "node01 mlx5_0 (rail 1)", "400 Gb/s", "100 Gb/sec (1X NDR)", "when= after the run"),
        after_node01=counters(MUST, changed={"mlx5_0": {"rate": "100 Gb/sec (1X NDR)"}}),
    ),
    ring(
        "a port below its rate from the beginning",
        Outcome.FAIL,
        ("rdma-link-rate", "node01 mlx5_0 (rail 1)", "400 Gb/s", "200 Gb/sec (2X NDR)", "when="),
        before_node01=counters(changed={"mlx5_0": {"rate": "200 Gb/sec (2X NDR)"}}),
        after_node01=counters(MUST, changed={"mlx5_0": {"rate": "200 Gb/sec (2X NDR)"}}),
    ),
    ring(
        "a counter that cannot be read",
        Outcome.ERROR,
        ("nccl-bytes-went-back", "node01 mlx5_0", "a number that grows", "7000000000 then None"),
        after_node01=counters(MUST, mlx5_0=None),
    ),
    ring(
        "a NIC that was reset",
        Outcome.ERROR,
        (
            "nccl-bytes-went-back",
            "node02 mlx5_0",
            "a number that grows",
            f"{int(7000000000.0 + MUST)} then {int(7000000000.0 + MUST / 8)}",
        ),
        before_node02=counters(MUST * 8),
        after_node02=counters(MUST),
    ),
    ring(
        "implausible",
        Outcome.ERROR,
        (
            "collective-implausible",
            "cluster",
            "at most 400.0 GB/s (ceiling)",
            "462.4 GB/s (median of 1: 462.4)",
            "what=all-reduce of 16 GPUs on 2 nodes",
        ),
        launch=Said(at(text("nccl/2x_dgx_h100_ring_healthy.txt"), 462.4)),
    ),
    ring(
        "NCCL says nothing",
        Outcome.ERROR,
        *both("nccl-transport-not-told", "NCCL INFO lines of every node", "none of this node"),
        launch=Said("\n".join(line for line in HEALTHY.stdout.splitlines() if "NCCL INFO" not in line)),
    ),
    ring(
        "an HCA that NCCL does not find, so that others wait for it in vain",
        Outcome.FAIL,
        (
            "nccl-hcas-not-found",
            "node01",
            "mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9",
            "mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6",
            "missing=mlx5_9",
        ),
        (
            "nccl-no-result",
            "cluster launch 1",
            "a whole table",
            (
                "no list of ranks and table header: not nccl-tests' output, or cut off before its table "
                "(exit code 3); it printed: NCCL WARN Call to ibv_modify_qp failed with 110 Connection "
                "timed out, on dev mlx5_9:1"
            ),
            "program=all_reduce_perf",
        ),
        launch=gave_up(
            "".join(
                line.replace(" [5]mlx5_9:1/RoCE", "") if line.startswith("node01:") else line
                for line in TRYING.splitlines(keepends=True)
            )
        ),
    ),
    ring(
        "a launch that gave up with every HCA found",
        Outcome.ERROR,
        (
            "nccl-no-result",
            "cluster launch 1",
            "a whole table",
            (
                "no list of ranks and table header: not nccl-tests' output, or cut off before its table "
                "(exit code 3); it printed: NCCL WARN Call to ibv_modify_qp failed with 110 Connection "
                "timed out, on dev mlx5_9:1"
            ),
            "program=all_reduce_perf",
        ),
        launch=gave_up(
            TRYING,
            "[node01:00493] plm:rsh: Warning: setpgid(499,499) failed in parent with errno=Permission denied(13)",
        ),
    ),
    ring(
        "a queue pair that failed, and the table is whole",
        Outcome.ERROR,
        (
            "nccl-says-failure",
            "cluster launch 1",
            "a whole table and no error message",
            "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_9:1",
            "program=all_reduce_perf",
        ),
        launch=Said(f"{HEALTHY.stdout}{WARNED}\n"),
    ),
    ring(
        "a completion with an error, and the table is whole",
        Outcome.ERROR,
        (
            "nccl-says-failure",
            "cluster launch 1",
            "a whole table and no error message",
            "NCCL WARN NET/IB: Got completion from peer 192.168.4.12<40000> with status=IBV_WC_RETRY_EXC_ERR(12)",
            "program=all_reduce_perf",
        ),
        launch=Said(
            f"{HEALTHY.stdout}node02:41003:41103 [3] transport/net_ib.cc:2262 NCCL WARN NET/IB: Got completion "
            "from peer 192.168.4.12<40000> with status=IBV_WC_RETRY_EXC_ERR(12)\n"
        ),
    ),
    ring(
        "a process that was killed, and the table is whole",
        Outcome.ERROR,
        (
            "nccl-says-failure",
            "cluster launch 1",
            "a whole table and no error message",
            "mpirun noticed that process rank 3 with PID 41003 on node node01 exited on signal 9 (Killed)",
            "program=all_reduce_perf",
        ),
        launch=Said(
            HEALTHY.stdout,
            f"{'-' * 74}\nmpirun noticed that process rank 3 with PID 41003 on node node01 exited on signal 9 "
            f"(Killed).\n{'-' * 74}\n",
        ),
    ),
    ring(
        "a task that srun says was killed, and the table is whole",
        Outcome.ERROR,
        (
            "nccl-says-failure",
            "cluster launch 1",
            "a whole table and no error message",
            "srun: error: node02: task 11: Killed",
            "program=all_reduce_perf",
        ),
        launch=Said(HEALTHY.stdout, "srun: error: node02: task 11: Killed\n"),
    ),
    ring(
        "a node with other GPUs",
        Outcome.ERROR,
        (
            "gpus-of-another-model",
            "cluster launch 1",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA A100-SXM4-80GB (8 on node02)",
            "what=all_reduce_perf ran on",
        ),
        launch=Said(
            "\n".join(
                line.replace("H100 80GB HBM3", "A100-SXM4-80GB") if "on     node02" in line else line
                for line in HEALTHY.stdout.splitlines()
            )
        ),
    ),
    ring(
        "mpirun cannot log in",
        Outcome.ERROR,
        (
            "nccl-no-result",
            "cluster launch 1",
            "a whole table",
            "empty output (exit code 255); it printed: root@192.0.2.12: Permission denied (publickey)",
            "program=all_reduce_perf",
        ),
        launch=Said("", "root@192.0.2.12: Permission denied (publickey)", 255),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


def test_a_pass_measures_gpus_nics_and_rails_of_every_node() -> None:
    verdict = judge(GATE, CASES[0])
    assert len(verdict.measured) == 2 * (8 + 8 + 8)
    assert verdict.transport == "NET/IB, GPUDirect RDMA, P2P/CUMEM"
    assert {criterion.label: criterion.derived for criterion in verdict.criteria if criterion.metric == "busbw"} == {
        "ceiling": True,
        "reference": True,
        "floor": True,
    }


def test_the_launch_is_forced_onto_rings_and_onto_the_platforms_nics() -> None:
    known = rack(2)
    run = gate(GATE, {"launches": 2}).plan(known, list(known.nodes))[0]
    line = " ".join(next(command.argv for command in run.commands if command.key == "launch1"))
    assert "-x NCCL_ALGO=RING" in line
    assert "-x NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11" in line
    assert "-np 16 -H 198.19.0.1:8,198.19.0.2:8" in line
    assert "--mca oob_tcp_if_include 198.19.0.0/30" in line
    assert run.launch_from == "node01"
    assert [command.key for command in run.commands if command.stage == 3] == ["after-node01", "after-node02"]


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["10.0.0.11"], "10.0.0.11/32"),
        (["10.0.0.11", "10.0.0.14"], "10.0.0.8/29"),
        (["10.0.0.11", "10.0.1.11"], "10.0.0.0/23"),
    ],
)
def test_common_network(addresses: list[str], network: str) -> None:
    assert common_network(addresses) == network


def test_the_nodes_that_are_not_named_are_measured_without_those_that_are() -> None:
    known = rack(4)
    found = gate(GATE)
    run = found.plan(known, list(known.nodes))[0]
    bad = judge(GATE, next(case for case in CASES if case.name == "one rail carries far less"))
    assert bad.blamed == ["node02"]
    again = found.follow_up(known, [FinishedRun(run, bad)])
    assert [(item.target, item.nodes) for item in again] == [("cluster/without node02", ("node01", "node03", "node04"))]
    good = Verdict(outcome=Outcome.PASS, measured=["node01/rail1"])
    by_node = found.attribute(known, [FinishedRun(run, bad), FinishedRun(again[0], good)])
    assert {node: verdicts[0].outcome for node, verdicts in by_node.items()} == {
        "node01": Outcome.PASS,
        "node02": Outcome.FAIL,
        "node03": Outcome.PASS,
        "node04": Outcome.PASS,
    }


def test_a_node_that_is_left_without_a_partner_was_not_measured() -> None:
    known = rack(2)
    found = gate(GATE)
    run = found.plan(known, list(known.nodes))[0]
    bad = judge(GATE, next(case for case in CASES if case.name == "one rail carries far less"))
    assert (bad.blamed, found.follow_up(known, [FinishedRun(run, bad)])) == (["node02"], [])
    by_node = found.attribute(known, [FinishedRun(run, bad)])
    assert by_node["node02"][0].outcome is Outcome.FAIL
    assert tells(by_node["node01"][0]) == [
        ("no-good-partner", "node01", "a partner with a good link", "its only partner node02 is bad", "partners=node02")
    ]
    assert by_node["node01"][0].outcome is Outcome.ERROR


def test_a_slow_cluster_that_names_nobody_is_not_measured_again() -> None:
    known = rack(4)
    found = gate(GATE)
    run = found.plan(known, list(known.nodes))[0]
    assert found.follow_up(known, [FinishedRun(run, Verdict(outcome=Outcome.FAIL))]) == []
    assert judge(GATE, next(case for case in CASES if case.name == "sockets")).blamed == []
