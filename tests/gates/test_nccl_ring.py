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
from tests.gates.support import Case, Said, check, judge, port, ports, rack, text

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

LOGS = (
    "Read its raw output in the report and the nodes' kernel logs (`journalctl -k -g 'Xid|mlx5'`), then run the "
    "gate again."
)


def gave_up(stdout: str, stderr: str = "") -> Said:
    return Said(f"{stdout}{WARNED}\n", stderr, 3)


def ring(name: str, outcome: Outcome, *messages: str, launch: Said = HEALTHY, **outputs: Said) -> Case:
    return Case(
        name,
        {**BASE, "launch0": launch, **{key.replace("_", "-"): value for key, value in outputs.items()}},
        outcome,
        messages,
        {"launches": 1},
        2,
    )


def both(message: str) -> tuple[str, str]:
    return message.format(node="node01"), message.format(node="node02")


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
        *both(
            "{node}: NCCL transport - Expected: NET/IB Actual: NET/Socket, Socket. "
            "RDMA was not used: check that the HCAs are ACTIVE and have RoCE v2 GIDs: docs/runbooks/nccl-transport.md"
        ),
        *both(
            "{node}: bytes sent over its rails - Expected: traffic on every rail Actual: 0 bytes. "
            "NCCL did not use the rails: docs/runbooks/nccl-transport.md"
        ),
        "cluster: all-reduce of 16 GPUs on 2 nodes is slow - Expected: at least 312.8 GB/s (floor) "
        "Actual: 9.8 GB/s (median of 1: 9.8). This gate does not show which node is slow: compare the "
        "rails' shares and the pair gate's figures: docs/runbooks/nccl-slow.md",
        launch=Said(text("nccl/2x_dgx_h100_ring_socket.txt")),
        after_node01=counters(),
        after_node02=counters(),
    ),
    ring(
        "no GPUDirect RDMA",
        Outcome.FAIL,
        *both(
            "{node}: GPUDirect RDMA - Expected: every channel via NET/IB/.../GDRDMA Actual: channels without GDRDMA. "
            "Check ACS (`lspci -vvv | grep ACSCtl`), dma-buf and the IOMMU: docs/runbooks/nccl-transport.md"
        ),
        launch=Said(text("nccl/2x_dgx_h100_ring_no_gdr.txt")),
    ),
    ring(
        "a rail that NCCL leaves out",
        Outcome.FAIL,
        *both(
            "{node}: HCAs used by NCCL - Expected: mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9 "
            "Actual: mlx5_0, mlx5_10, mlx5_11, "
            "mlx5_3, mlx5_5, mlx5_6, mlx5_9. "
            "Check the state of the missing HCAs and NCCL_IB_HCA in /etc/nccl.conf."
        ),
        launch=Said(text("nccl/2x_dgx_h100_ring_rail3_unused.txt")),
    ),
    ring(
        "HCAs of another link layer",
        Outcome.FAIL,
        *both(
            "{node}: link layer of its HCAs - Expected: RoCE (RoCE) Actual: mlx5_0/IB, mlx5_10/IB, mlx5_11/IB, "
            "mlx5_3/IB, mlx5_4/IB, mlx5_5/IB, mlx5_6/IB, "
            "mlx5_9/IB. Set the ports' link type: `mlxconfig -d DEVICE set LINK_TYPE_P1=2`, then reset the NICs; "
            "or correct fabric.kind in site.yml."
        ),
        launch=Said(HEALTHY.stdout.replace(":1/RoCE", ":1/IB")),
    ),
    ring(
        "one HCA of another link layer",
        Outcome.FAIL,
        "node02: link layer of its HCAs - Expected: RoCE (RoCE) Actual: mlx5_9/IB. "
        "Set the ports' link type: `mlxconfig -d DEVICE set LINK_TYPE_P1=2`, then reset the NICs; "
        "or correct fabric.kind in site.yml.",
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
        "node01: NCCL did not report how all its GPUs talk - Expected: channels to another GPU from 8 "
        "(but one) GPUs Actual: from 1. Run with NCCL_DEBUG=INFO; /etc/nccl.conf may redirect it "
        "(NCCL_DEBUG_FILE).",
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
        "node02 mlx5_4 (rail 3): share of the traffic - Expected: 1.0 within 20% Actual: 0.50. "
        "Check this rail's link rate, PCIe width and switch port: docs/runbooks/rail-slow.md",
        after_node02=counters(MUST, {device: 0.5 if device == "mlx5_4" else 7.5 / 7 for device in DEVICES}),
    ),
    ring(
        "half of the bytes went another way",
        Outcome.FAIL,
        f"node01: bytes sent over its rails - Expected: {MUST / 1e9:.0f} GB within 5% Actual: "
        f"{MUST / 2e9:.0f} GB. The data took another way than the rails, or something else used them: "
        "check the transport, and that no job runs.",
        after_node01=counters(MUST / 2),
    ),
    ring(
        "a port that counts errors while it is loaded",
        Outcome.FAIL,
        "node02 mlx5_4 (rail 3): port_xmit_discards grew under load - Expected: by at most 0 Actual: 3120. "
        "Clean and reseat cable and module; then swap them with another port's, to see whether the errors move with "
        "them.",
        after_node02=counters(MUST, errors={"mlx5_4": {"port_xmit_discards": 3120}}),
    ),
    ring(
        "a port that fell while it was loaded",
        Outcome.FAIL,
        "node02 mlx5_4 (rail 3): link down after the run - Expected: port ACTIVE Actual: port DOWN. "
        "Check its cable and its transceivers: docs/runbooks/link-down.md",
        after_node02=counters(MUST, changed={"mlx5_4": {"state": "1: DOWN"}}),
    ),
    ring(
        "a port that trained down while it was loaded",
        Outcome.FAIL,
        "node01 mlx5_0 (rail 1): link rate after the run - Expected: 400 Gb/s Actual: 100 Gb/sec (1X NDR). "
        "Check the cable, its transceivers and the switch port's speed: docs/runbooks/link-down.md",
        after_node01=counters(MUST, changed={"mlx5_0": {"rate": "100 Gb/sec (1X NDR)"}}),
    ),
    ring(
        "a port below its rate from the beginning",
        Outcome.FAIL,
        "node01 mlx5_0 (rail 1): link rate - Expected: 400 Gb/s Actual: 200 Gb/sec (2X NDR). "
        "Check the cable, its transceivers and the switch port's speed: docs/runbooks/link-down.md",
        before_node01=counters(changed={"mlx5_0": {"rate": "200 Gb/sec (2X NDR)"}}),
        after_node01=counters(MUST, changed={"mlx5_0": {"rate": "200 Gb/sec (2X NDR)"}}),
    ),
    ring(
        "a counter that cannot be read",
        Outcome.ERROR,
        "node01 mlx5_0: byte counter - Expected: a number that grows Actual: 7000000000 then None. "
        "Check /sys/class/infiniband on the node; a NIC that was reset loses its counters.",
        after_node01=counters(MUST, mlx5_0=None),
    ),
    ring(
        "a NIC that was reset",
        Outcome.ERROR,
        "node02 mlx5_0: byte counter - Expected: a number that grows "
        f"Actual: {int(7e9 + MUST)} then {int(7e9 + MUST / 8)}. "
        "Check /sys/class/infiniband on the node; a NIC that was reset loses its counters.",
        before_node02=counters(MUST * 8),
        after_node02=counters(MUST),
    ),
    ring(
        "implausible",
        Outcome.ERROR,
        "cluster: all-reduce of 16 GPUs on 2 nodes is implausible - Expected: at most 400.0 GB/s "
        "(ceiling) Actual: 462.4 GB/s (median of 1: 462.4). Check the platform profile, the output's "
        "origin and its units: one of them is wrong.",
        launch=Said(at(text("nccl/2x_dgx_h100_ring_healthy.txt"), 462.4)),
    ),
    ring(
        "NCCL says nothing",
        Outcome.ERROR,
        *both(
            "{node}: NCCL did not report its transport - Expected: NCCL INFO lines of every node Actual: "
            "none of this node. Run with NCCL_DEBUG=INFO; /etc/nccl.conf may redirect it "
            "(NCCL_DEBUG_FILE)."
        ),
        launch=Said("\n".join(line for line in HEALTHY.stdout.splitlines() if "NCCL INFO" not in line)),
    ),
    ring(
        "an HCA that NCCL does not find, so that others wait for it in vain",
        Outcome.FAIL,
        "node01: HCAs found by NCCL - Expected: mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9 "
        "Actual: mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6. "
        "Check the state of mlx5_9 (ibv_devinfo) and NCCL_IB_HCA in /etc/nccl.conf: docs/runbooks/nccl-transport.md",
        "cluster launch 1: all_reduce_perf gave no result - Expected: a whole table "
        "Actual: no list of ranks and table header: not nccl-tests' output, "
        "or cut off before its table (exit code 3); it printed: "
        "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_9:1. "
        "Read its raw output in the report; check that nccl-tests and libnccl2 are installed and the GPUs are free.",
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
        "cluster launch 1: all_reduce_perf gave no result - Expected: a whole table "
        "Actual: no list of ranks and table header: not nccl-tests' output, "
        "or cut off before its table (exit code 3); it printed: "
        "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_9:1. "
        "Read its raw output in the report; check that nccl-tests and libnccl2 are installed and the GPUs are free.",
        launch=gave_up(
            TRYING,
            "[node01:00493] plm:rsh: Warning: setpgid(499,499) failed in parent with errno=Permission denied(13)",
        ),
    ),
    ring(
        "a queue pair that failed, and the table is whole",
        Outcome.ERROR,
        "cluster launch 1: all_reduce_perf contradicts itself - Expected: a whole table and no error message "
        f"Actual: NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_9:1. {LOGS}",
        launch=Said(f"{HEALTHY.stdout}{WARNED}\n"),
    ),
    ring(
        "a completion with an error, and the table is whole",
        Outcome.ERROR,
        "cluster launch 1: all_reduce_perf contradicts itself - Expected: a whole table and no error message "
        "Actual: NCCL WARN NET/IB: Got completion "
        f"from peer 192.168.4.12<40000> with status=IBV_WC_RETRY_EXC_ERR(12). {LOGS}",
        launch=Said(
            f"{HEALTHY.stdout}node02:41003:41103 [3] transport/net_ib.cc:2262 NCCL WARN NET/IB: Got completion "
            "from peer 192.168.4.12<40000> with status=IBV_WC_RETRY_EXC_ERR(12)\n"
        ),
    ),
    ring(
        "a process that was killed, and the table is whole",
        Outcome.ERROR,
        "cluster launch 1: all_reduce_perf contradicts itself - Expected: a whole table and no error message "
        "Actual: mpirun noticed that process rank 3 "
        f"with PID 41003 on node node01 exited on signal 9 (Killed). {LOGS}",
        launch=Said(
            HEALTHY.stdout,
            f"{'-' * 74}\nmpirun noticed that process rank 3 with PID 41003 on node node01 exited on signal 9 "
            f"(Killed).\n{'-' * 74}\n",
        ),
    ),
    ring(
        "a task that srun says was killed, and the table is whole",
        Outcome.ERROR,
        "cluster launch 1: all_reduce_perf contradicts itself - Expected: a whole table and no error message "
        f"Actual: srun: error: node02: task 11: Killed. {LOGS}",
        launch=Said(HEALTHY.stdout, "srun: error: node02: task 11: Killed\n"),
    ),
    ring(
        "a node with other GPUs",
        Outcome.ERROR,
        "cluster launch 1: all_reduce_perf ran on GPUs of another model - Expected: NVIDIA H100 80GB HBM3 "
        "Actual: NVIDIA A100-SXM4-80GB (8 on node02). "
        "Correct the node's platform in site.yml or the profile that is named here, or replace the GPU; "
        "MIG instances are parts of GPUs: switch MIG off.",
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
        "cluster launch 1: all_reduce_perf gave no result - Expected: a whole table "
        "Actual: empty output (exit code 255); it printed: root@192.0.2.12: "
        "Permission denied (publickey). "
        "Read its raw output in the report; check that nccl-tests and libnccl2 are installed and the GPUs are free.",
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
    assert [str(finding) for finding in by_node["node01"][0].findings] == [
        (
            "node01: not measured - Expected: a partner with a good link Actual: its only partner node02 is bad. "
            "Repair node02, or run the gate with another partner."
        )
    ]
    assert by_node["node01"][0].outcome is Outcome.ERROR


def test_a_slow_cluster_that_names_nobody_is_not_measured_again() -> None:
    known = rack(4)
    found = gate(GATE)
    run = found.plan(known, list(known.nodes))[0]
    assert found.follow_up(known, [FinishedRun(run, Verdict(outcome=Outcome.FAIL))]) == []
    assert judge(GATE, next(case for case in CASES if case.name == "sockets")).blamed == []
