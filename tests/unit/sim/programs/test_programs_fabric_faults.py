"""Fabric faults show in the outputs of the simulated programs, and the right gate names each; no rack needed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.drivers.switch import nvue_counters
from rackready.gates.base import GateFacts, Output
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Verdict
from rackready_sim.faults import FAULTS, inject
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs.hwsim.perf import facts, perftest, probe
from rackready_sim.programs.hwsim.switch import asic
from tests.gates.support import port, ports

from .conftest import Machine
from .test_programs_nccl import _quick, launch, roce  # noqa: F401 - _quick is a fixture that this file uses as well
from .test_programs_perftest import both

RING = "cluster/fabric/performance/nccl-all-reduce-ring"
NODE = "node/gpu/performance/nccl-all-reduce"
TESTS = ("-b", "8G", "-e", "16G", "-f", "2", "-w", "10", "-n", "50", "-c", "1")


def site(count: int = 2) -> GateFacts:
    known = load_site("sim")
    return GateFacts(
        {f"node{n:02}": node_facts(known, f"node{n:02}") for n in range(1, count + 1)}, known.fabric, count
    )


def machines(machine: Machine, fault: str | None, **params: Any) -> list[dict[str, Any]]:
    """Facts of two nodes, the second with a fault."""
    machine.ready()
    roce(machine)
    found = []
    for number in (1, 2):
        if number == 2 and fault:
            machine.inject(fault, **params)
        one = copy.deepcopy(facts.node_facts())
        one["hostname"] = f"node{number:02}"
        found.append(one)
    return found


def ring(machine: Machine, monkeypatch: pytest.MonkeyPatch, fault: str | None, **params: Any) -> Verdict:
    """Run all_reduce over two nodes as the gate has it run, and judge what it says and what the rails carried."""
    monkeypatch.setenv("NCCL_ALGO", "RING")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    nodes = machines(machine, fault, **params)
    if fault:
        nodes[0]["settings"] |= nodes[1]["settings"] if fault == "nccl-sockets" else {}
    text, answer = launch(nodes, *TESTS, "-g", "1", ranks=8)
    known = site()
    found = gate(RING, {"launches": 1})
    run = found.plan(known, list(known.nodes))[0]
    said = {"launch0": text}
    for node, of_node in known.nodes.items():
        for when in ("before", "after"):
            carried = answer["carried"].get(node, {}) if when == "after" else {}
            devices = {nic.rdma_device: port(5e9 + carried.get(nic.rdma_device, 0) * 1.016) for nic in of_node.nics}
            said[f"{when}-{node}"] = ports(devices)
    outputs = {
        key: Output(key, "node01", "run", 0 if key != "launch0" else answer["code"], text) for key, text in said.items()
    }
    return found.evaluate(known, run, outputs)


def words(verdict: Verdict) -> str:
    return "\n".join(str(finding) for finding in verdict.findings)


def test_healthy_nodes_pass_with_their_noise(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        verdict = ring(machine, monkeypatch, None)
        assert words(verdict) == ""
        assert verdict.outcome.value == "pass"


@pytest.mark.parametrize(
    ("fault", "params", "expected"),
    [
        (
            "rail-idle",
            {"nic": 3},
            "node02 mlx5_4 (rail 3): share of the traffic - Expected: 1.0 within 20% Actual: 0.00.",
        ),
        (
            "rail-unseen",
            {"nic": 5},
            (
                "node02: HCAs used by NCCL - Expected: mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4, mlx5_5, mlx5_6, "
                "mlx5_9 Actual: mlx5_0, "
            ),
        ),
        (
            "gpudirect-off",
            {},
            "node02: GPUDirect RDMA - Expected: every channel via NET/IB/.../GDRDMA Actual: channels without GDRDMA.",
        ),
        ("nccl-sockets", {}, "node02: NCCL transport - Expected: NET/IB Actual: NET/Socket, Socket."),
        (
            "nic-slow",
            {"nic": 2},
            "cluster: all-reduce of 16 GPUs on 2 nodes is slow - Expected: at least 312.8 GB/s (floor)",
        ),
    ],
)
def test_the_ring_names_what_is_wrong(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, fault: str, params: dict[str, Any], expected: str
) -> None:
    verdict = ring(machine, monkeypatch, fault, **params)
    assert verdict.outcome.value == "fail"
    assert expected in words(verdict)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("nvls-off", "node01: NVLS (reduction in the NVSwitches) - Expected: available on 8 GPUs Actual: on 0."),
        (
            "nccl-p2p-off",
            (
                "node01: NVLink between its GPUs - Expected: P2P channels over paths of type NVL "
                "Actual: SHM/direct/direct, SYS."
            ),
        ),
    ],
)
def test_the_nodes_own_all_reduce_names_what_is_wrong(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, fault: str, expected: str
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    text, answer = launch(machines(machine, fault)[1:], *TESTS, "-g", "8")
    known = site(1)
    found = gate(NODE, {"launches": 1})
    run = found.plan(known, ["node01"])[0]
    verdict = found.evaluate(known, run, {"launch0": Output("launch0", "node01", "run", answer["code"], text)})
    assert verdict.outcome.value == "fail"
    assert expected in words(verdict)


# perftest
# --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "reachable", lambda *_: True)


@pytest.mark.usefixtures("_reach")
@pytest.mark.parametrize(
    ("fault", "params", "check"),
    [
        ("nic-path-mtu", {"nic": 1}, lambda out, _: " Mtu             : 1024[B]" in out),
        ("nic-slow", {"nic": 1}, lambda out, _: "\n 65536 " in out),
        ("gpudirect-off", {}, lambda _, err: "Couldn't register MR with dma-buf" in err),
    ],
)
def test_ib_write_bw_shows_it(
    machine: Machine, fault: str, params: dict[str, Any], check: Callable[[str, str], bool]
) -> None:
    machine.ready()
    machine.inject(fault, **params)
    if fault == "gpudirect-off":  # neither side gets as far as a connection
        code = perftest.main(
            "ib_write_bw", ["-d", "mlx5_0", "-p", "38599", "--use_cuda=0", "--use_cuda_dmabuf", "127.0.0.1"]
        )
        out, err = machine.capsys.readouterr()
        assert code == 1
    else:
        code, out, err = both(machine, "-n", "1000")
        assert code == 0
    assert check(out, err)


@pytest.mark.usefixtures("_reach")
def test_a_crossed_cable_reaches_nobody(machine: Machine) -> None:
    machine.ready()
    machine.inject("cables-swapped", nic=1, other=2)
    assert perftest.main("ib_write_bw", ["-d", "mlx5_0", "-p", "38598", "127.0.0.1"]) == 1
    assert "Couldn't connect to 127.0.0.1:38598" in machine.capsys.readouterr().err


@pytest.mark.usefixtures("_reach")
def test_a_late_nic_shows_in_ib_write_lat_and_reads_of_gpu_memory_are_another_program(machine: Machine) -> None:
    machine.ready()
    machine.inject("nic-latency", nic=1, microseconds=4.0)
    _, out, _ = both(machine, name="ib_write_lat")
    typical = float(next(line for line in out.splitlines() if line.startswith(" 2 ")).split()[4])
    assert 9.5 < typical < 10.5  # both ends are the same NIC here
    assert perftest.main("ib_write_lat", ["-d", "mlx5_0", "--use_cuda=0", "127.0.0.1"]) == 1
    assert "latency tests with read/send verbs only" in machine.capsys.readouterr().err


# the switch
# ------------------------------------------------------------------------------------------------------------

SENT = {"bytes": 240_000_000_000, "priority": 3, "flows": 3}


@pytest.fixture
def leaf(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A leaf switch with faults; returns its state."""
    monkeypatch.setattr(asic, "lossless", lambda: True)

    def made(*names: str, **params: Any) -> dict[str, Any]:
        machine.state = build_switch_state(load_site("sim"), "leaf01")
        for name in names:
            inject(machine.state, name, **params)
        machine.save()
        return machine.state

    return made


def counted(port: str) -> nvue_counters.PortCounters:
    text = f"== {port} qos\n{json.dumps(asic.qos(port))}\n== {port} stats\n{json.dumps(asic.stats(port))}\n"
    return nvue_counters.parse(text)[port]


def test_a_healthy_switch_marks_and_pauses_and_drops_nothing(leaf: Callable[..., dict[str, Any]]) -> None:
    leaf()
    fate = asic.forward("swp1", "swp5", SENT)
    assert fate["lost"] == 0
    assert fate["marked"] > 0
    into, out = counted("swp1"), counted("swp5")
    assert (sum(into.dropped_in), into.errors, out.marked) == (0, 0, fate["marked"])
    assert into.pauses[3] == fate["paused"] > 0
    assert sum(into.pauses) == into.pauses[3]


@pytest.mark.parametrize(
    ("fault", "params", "told", "seen"),
    [
        ("port-pfc-off", {"port": "swp1"}, SENT, lambda fate: fate["lost"] > 0 and counted("swp1").dropped_in[3] > 0),
        ("switch-ecn-off", {}, SENT, lambda fate: fate["marked"] == 0 and fate["lost"] == 0),
        ("port-errors", {"port": "swp1"}, SENT, lambda fate: fate["lost"] > 0 and counted("swp1").errors > 0),
        ("port-slow", {"port": "swp5"}, {"ask": True}, lambda fate: fate == {"factor": 0.5}),
    ],
)
def test_a_faulty_switch(
    leaf: Callable[..., dict[str, Any]],
    fault: str,
    params: dict[str, Any],
    told: dict[str, Any],
    seen: Callable[[dict[str, Any]], bool],
) -> None:
    leaf(fault, **params)
    assert seen(asic.forward("swp1", "swp5", told))


def test_data_in_another_class_are_dropped_when_a_port_is_full(leaf: Callable[..., dict[str, Any]]) -> None:
    leaf()
    assert asic.forward("swp1", "swp5", {**SENT, "priority": 0})["lost"] > 0
    assert counted("swp1").dropped_in[0] > 0
    assert asic.forward("swp1", "swp5", {**SENT, "priority": 0, "flows": 1})["lost"] == 0


def test_every_fault_of_the_fabric_names_a_gate_that_exists() -> None:
    layers = {"fabric", "cable", "switch"}
    for fault in FAULTS.values():
        if fault.layer in layers:
            assert gate(fault.caught_by), fault.name
