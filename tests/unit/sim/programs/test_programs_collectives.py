"""Every collective gate on outputs of the simulated nccl-tests: healthy nodes pass, and each judged fault fails."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.gates.base import FinishedRun, GateFacts, Output, Run
from rackready.gates.engine.registry import gate
from rackready.gates.fabric.collectives import GATES
from rackready.gates.fabric.scaling import doubled
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.programs.hwsim.perf import facts
from tests.gates.support import port, ports

from .conftest import Machine
from .test_programs_nccl import _quick, launch, roce  # noqa: F401 - _quick is a fixture that this file uses as well

TESTS = ("-b", "8G", "-e", "16G", "-f", "2", "-w", "10", "-n", "50", "-c", "1", "-g", "1")
SCALING = "cluster/fabric/performance/nccl-scaling"


def site(count: int = 4) -> GateFacts:
    known = load_site("sim")
    return GateFacts(
        {f"node{n:02}": node_facts(known, f"node{n:02}") for n in range(1, count + 1)}, known.fabric, count
    )


@pytest.fixture
def nodes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Facts of four healthy nodes."""
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    machine.ready()
    roce(machine)
    found = []
    for number in range(1, 5):
        one = copy.deepcopy(facts.node_facts())
        one["hostname"] = f"node{number:02}"
        found.append(one)
    return found


def counters(known: GateFacts, carried: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    out = {}
    for node, of_node in known.nodes.items():
        for when in ("before", "after"):
            moved = carried.get(node, {}) if when == "after" else {}
            devices = {nic.rdma_device: port(5e9 + moved.get(nic.rdma_device, 0) * 1.016) for nic in of_node.nics}
            out[f"{when}-{node}"] = ports(devices)
    return out


def outputs(texts: Mapping[str, str]) -> dict[str, Output]:
    return {key: Output(key, "node01", "run", 0, text) for key, text in texts.items()}


def words(verdict: Verdict) -> str:
    return "\n".join(str(finding) for finding in verdict.findings)


@pytest.mark.parametrize("gate_id", [kind.id for kind in GATES])
def test_a_healthy_rack_passes_every_collective(nodes: list[dict[str, Any]], gate_id: str) -> None:
    known = site()
    found = gate(gate_id, {"launches": 1})
    (run,) = found.plan(known, list(known.nodes))
    text, answer = launch(nodes, *TESTS, ranks=8, test=found.collective)  # type: ignore[attr-defined]
    verdict = found.evaluate(known, run, outputs({"launch0": text, **counters(known, answer["carried"])}))
    assert words(verdict) == ""
    assert verdict.outcome is Outcome.PASS
    assert verdict.fleet_pending is gate_id.endswith("all-reduce")
    assert len(verdict.measured) == 4 * (8 + 8 + 8 + 8)
    assert verdict.transport == "NET/IB, GPUDirect RDMA, NVLS, P2P/CUMEM"


def test_bytes_that_went_another_way_fail(nodes: list[dict[str, Any]]) -> None:
    known = site()
    found = gate("cluster/fabric/performance/nccl-alltoall", {"launches": 1})
    (run,) = found.plan(known, list(known.nodes))
    text, answer = launch(nodes, *TESTS, ranks=8, test="alltoall")
    half = {node: {device: value // 2 for device, value in rails.items()} for node, rails in answer["carried"].items()}
    verdict = found.evaluate(known, run, outputs({"launch0": text, **counters(known, half)}))
    assert verdict.outcome is Outcome.FAIL
    assert "node01: bytes sent over its rails - Expected:" in words(verdict)


def test_the_wrong_collective_is_an_error(nodes: list[dict[str, Any]]) -> None:
    known = site()
    found = gate(
        "cluster/fabric/performance/nccl-all-gather", {"launches": 1, "binary": "/opt/nccl-tests/all_gather_perf"}
    )
    (run,) = found.plan(known, list(known.nodes))
    text, answer = launch(nodes, *TESTS, ranks=8, test="all_reduce")
    verdict = found.evaluate(known, run, outputs({"launch0": text, **counters(known, answer["carried"])}))
    assert verdict.outcome is Outcome.ERROR
    assert "all_gather_perf ran something else" in words(verdict)
    assert "/opt/nccl-tests/all_gather_perf" in run.commands[4].argv


# groups --------------------------------------------------------------------------------------------------------------


def racks(known: GateFacts, **places: str) -> GateFacts:
    return dataclasses.replace(
        known, nodes={name: dataclasses.replace(node, rack=places[name]) for name, node in known.nodes.items()}
    )


def test_racks_run_for_themselves_and_a_lone_node_is_not_passed() -> None:
    known = racks(site(), node01="a", node02="a", node03="a", node04="b")
    found = gate("rack/fabric/performance/nccl-all-gather", {"launches": 1})
    runs = found.plan(known, list(known.nodes))
    assert [(run.target, run.nodes) for run in runs] == [("a", ("node01", "node02", "node03"))]
    by_node = found.attribute(known, [FinishedRun(runs[0], Verdict(outcome=Outcome.PASS, measured=["x"]))])
    assert {node: verdicts[0].outcome.value for node, verdicts in by_node.items()} == {
        "node01": "pass", "node02": "pass", "node03": "pass", "node04": "not_run",
    }  # fmt: skip
    assert words(by_node["node04"][0]).startswith(
        "node04: rack/fabric/performance/nccl-all-gather not run - Expected: at least 2 nodes in its group"
    )


def test_leaf_groups_follow_the_cables_and_not_the_racks() -> None:
    known = site()
    far = tuple(dataclasses.replace(nic, switch="leaf03") for nic in known.nodes["node03"].nics)
    moved = {
        name: dataclasses.replace(node, nics=far) if name in {"node03", "node04"} else node
        for name, node in known.nodes.items()
    }
    known = dataclasses.replace(known, nodes=moved)
    runs = gate("group/fabric/performance/nccl-alltoall", {"launches": 1}).plan(known, list(known.nodes))
    assert [(run.target, run.nodes) for run in runs] == [
        ("leaf01+leaf02", ("node01", "node02")),
        ("leaf03", ("node03", "node04")),
    ]


def test_pairs_blame_the_end_that_fails_twice() -> None:
    known = site()
    found = gate("pair/fabric/performance/nccl-all-reduce-ring", {"launches": 1})
    one, two = found.plan(known, list(known.nodes))
    bad, good = Verdict(outcome=Outcome.FAIL), Verdict(outcome=Outcome.PASS, measured=["x"])
    again = found.follow_up(known, [FinishedRun(one, bad), FinishedRun(two, good)])
    assert [run.nodes for run in again] == [("node01", "node03"), ("node02", "node04")]
    by_node = found.attribute(
        known, [FinishedRun(one, bad), FinishedRun(two, good), FinishedRun(again[0], bad), FinishedRun(again[1], good)]
    )
    assert {node: verdicts[0].outcome.value for node, verdicts in by_node.items()} == {
        "node01": "fail",
        "node02": "pass",
        "node03": "pass",
        "node04": "pass",
    }


# scaling -------------------------------------------------------------------------------------------------------------


def scaled(nodes: list[dict[str, Any]], slow: int = 0) -> tuple[Verdict, Run]:
    """Run 1, 2 and 4 nodes; from ``slow`` nodes on the last one's NICs carry half."""
    for node in nodes:
        node["settings"]["NCCL_ALGO"] = "RING"
    known = site()
    found = gate(SCALING, {"launches": 1})
    (run,) = found.plan(known, list(known.nodes))
    texts, total = {}, {node: {} for node in known.nodes}  # type: ignore[var-annotated]
    for size in doubled(4):
        used = copy.deepcopy(nodes[:size])
        for nic in used[-1]["nics"] if slow and size >= slow else []:
            nic["factor"] = 0.5
        texts[f"n{size}-launch0"], answer = launch(used, *TESTS, ranks=8)
        for node, rails in answer["carried"].items():
            for device, value in rails.items():
                total[node][device] = total[node].get(device, 0) + value
    return found.evaluate(known, run, outputs({**texts, **counters(known, total)})), run


def test_steps_are_powers_of_two_and_all() -> None:
    assert [doubled(count) for count in (1, 2, 3, 4, 6, 8)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 6],
        [1, 2, 4, 8],
    ]


def test_a_fabric_that_scales_passes_and_its_efficiency_is_recorded(nodes: list[dict[str, Any]]) -> None:
    verdict, run = scaled(nodes)
    assert words(verdict) == ""
    assert verdict.outcome is Outcome.PASS
    efficiency = {
        (metric.name.removeprefix("scaling_efficiency_"), metric.target): metric.value
        for metric in verdict.metrics
        if "efficiency" in metric.name
    }
    assert sorted(efficiency) == [("network", "2 nodes"), ("network", "4 nodes"), ("nvlink", "1 node")]
    assert all(0.9 < value < 1.1 for value in efficiency.values())
    assert [command.key for command in run.commands if "launch" in command.key] == [
        "n1-launch0",
        "n2-launch0",
        "n4-launch0",
    ]


def test_it_says_from_which_number_of_nodes_on_it_is_slow(nodes: list[dict[str, Any]]) -> None:
    verdict, _ = scaled(nodes, slow=4)
    assert verdict.outcome is Outcome.FAIL
    (finding,) = verdict.findings
    assert str(finding).startswith(
        "4 nodes: all-reduce of 32 GPUs is slow - Expected: at least 312.8 GB/s (floor) Actual: "
    )


def test_a_size_without_output_is_an_error(nodes: list[dict[str, Any]]) -> None:
    known = site()
    found = gate(SCALING, {"launches": 1})
    (run,) = found.plan(known, list(known.nodes))
    text, _ = launch(nodes[:1], *TESTS, ranks=8)
    verdict = found.evaluate(known, run, outputs({"n1-launch0": text}))
    assert verdict.outcome is Outcome.ERROR
    assert "2 nodes launch 1: all_reduce_perf was not run" in words(verdict)
