from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.formats import nccl_log, nccl_tests
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl import rows as nccl_rows
from rackready_sim.programs.hwsim.nic.tools import change
from rackready_sim.programs.hwsim.perf import facts, nccl
from rackready_sim.programs.hwsim.store import hardware

from .conftest import Machine


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    for name in ("NCCL_ALGO", "NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_TESTS_MIN_BW"):
        monkeypatch.delenv(name, raising=False)


def roce(machine: Machine) -> None:
    for nic in hardware()["nics"]:
        change(nic, trust="dscp", pfc=[0, 0, 0, 1, 0, 0, 0, 0])
    assert all(nic["lossless"] for nic in facts.nic_facts())
    assert machine.root.is_dir()


def launch(
    nodes: list[dict[str, Any]],
    *arguments: str,
    ranks: int = 1,
    probes: list[dict[str, Any]] | None = None,
    test: str = "all_reduce",
) -> tuple[str, dict[str, Any]]:
    """Run with so many processes a node, as rank 0 sees it."""
    lines, rank = [], 0
    for node in nodes:
        for local in range(ranks):
            lines.append(
                {
                    "rank": rank,
                    "local": local,
                    "pid": 100 + rank,
                    "host": node["hostname"],
                    "facts": node if local == 0 else None,
                }
            )
            rank += 1
    return nccl.report({"ranks": lines, "probes": probes or []}, [test, "2.19.6", *arguments])


def busbw(text: str) -> list[float]:
    return [float(line.split()[7]) for line in text.splitlines() if re.match(r"^ +\d+ +\d+ ", line)]


def cluster(machine: Machine, count: int) -> list[dict[str, Any]]:
    machine.ready()
    roce(machine)
    one = facts.node_facts()
    nodes = []
    for number in range(count):
        node = copy.deepcopy(one)
        node["hostname"] = f"node{number + 1:02d}"
        nodes.append(node)
    return nodes


def test_a_healthy_board(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = cluster(machine, 1)
    text, answer = launch(nodes, "-b", "8G", "-e", "16G", "-f", "2", "-g", "8")
    assert answer == {"code": 0, "carried": {}}
    assert all(470 < value < 486 for value in busbw(text))
    assert "# Out of bounds values : 0 OK\n" in text
    monkeypatch.setenv("NCCL_ALGO", "RING")
    assert 366 < busbw(launch(cluster(machine, 1), "-b", "8G", "-e", "8G", "-g8")[0])[0] < 376


def test_every_launch_has_a_communicator_of_its_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    nodes = cluster(machine, 1)
    line = {"rank": 0, "local": 0, "host": nodes[0]["hostname"], "facts": nodes[0]}
    texts = [
        nccl.report(
            {"ranks": [{**line, "pid": pid}], "probes": []}, ["all_reduce", "2.19.6", "-b", "8M", "-e", "8M", "-g", "8"]
        )[0]
        for pid in (100, 300)
    ]
    first, second = (nccl_log.communicators(text) for text in texts)
    assert (len(first), len(second), first & second) == (1, 1, frozenset())


def test_a_link_down_slows_the_board(machine: Machine) -> None:
    machine.inject("nvlink-down", gpu=2)
    text, _ = launch(cluster(machine, 1), "-b", "8G", "-e", "8G", "-g", "8")
    assert busbw(text)[0] < 0.95 * 476


def test_a_ring_over_nodes_is_bound_by_rails_and_counts_their_bytes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "RING")
    text, answer = launch(cluster(machine, 4), "-b", "8G", "-e", "8G", "-n", "20", "-w", "1", "-c", "1", ranks=8)
    assert 355 < busbw(text)[0] < 376
    assert sorted(answer["carried"]) == ["node01", "node02", "node03", "node04"]
    launches = 2 * (1 + 20 + 1) + 2
    assert sum(answer["carried"]["node01"].values()) == pytest.approx(launches * 8 * 2**30 * 2 * 31 / 32, rel=0.001)
    assert len(set(answer["carried"]["node01"].values())) == 1


@pytest.mark.parametrize(("key", "value"), [("factor", 0.5), ("lossless", False), ("mtu", 1024), ("rate", 200)])
def test_one_bad_rail_slows_the_ring(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, key: str, value: object
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "RING")
    nodes = cluster(machine, 2)
    nodes[1]["nics"][5][key] = value
    random.seed(5)  # the noise of one run in some hundred is wider than the loss from a smaller MTU
    assert busbw(launch(nodes, "-b", "8G", "-e", "8G", ranks=8)[0])[0] < 361


def test_an_unreachable_rail_ends_the_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    nodes = cluster(machine, 2)
    probes = nccl.unreachable(nodes[0], nodes[1], lambda netdev, _address, _size: netdev != "enp64s0np0")
    assert [item["device"] for item in probes] == ["mlx5_3"]
    text, answer = launch(nodes, "-b", "8M", "-e", "8M", ranks=8, probes=probes)
    assert answer == {"code": 3, "carried": {}}
    assert "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1" in text
    assert "Test NCCL failure common.cu" in text
    assert "NCCL INFO" not in text


def test_a_run_that_ends_so_has_said_before_which_network_every_rank_chose(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    nodes = cluster(machine, 2)
    probes = nccl.unreachable(nodes[0], nodes[1], lambda netdev, _address, _size: netdev != "enp64s0np0")
    text, _ = launch(nodes, "-b", "8M", "-e", "8M", ranks=8, probes=probes)
    logs = nccl_log.parse(text)
    assert {host: len(log.devices) for host, log in logs.items()} == dict.fromkeys(logs, 8)
    assert [log.networks for log in logs.values()] == [{"IB"}, {"IB"}]
    assert "Init COMPLETE" not in text


def test_what_nccl_takes_of_the_nics(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.inject("nic-down", nic=3)
    machine.ready()
    nics = facts.nic_facts()
    assert [nic["device"] for nic in facts.chosen(nics, {})] == [
        "mlx5_0",
        "mlx5_3",
        "mlx5_5",
        "mlx5_6",
        "mlx5_9",
        "mlx5_10",
        "mlx5_11",
    ]
    assert [nic["device"] for nic in facts.chosen(nics, {"NCCL_IB_HCA": "mlx5_1"})] == ["mlx5_10", "mlx5_11"]
    assert [nic["device"] for nic in facts.chosen(nics, {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"})] == ["mlx5_0"]
    assert "mlx5_0" not in [nic["device"] for nic in facts.chosen(nics, {"NCCL_IB_HCA": "^mlx5_0"})]
    assert facts.chosen(nics, {"NCCL_IB_DISABLE": "1"}) == []
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    text, answer = launch(cluster(machine, 2), "-b", "8M", "-e", "8M", ranks=8)
    assert (answer["code"], answer["carried"]) == (0, {})
    assert busbw(text)[0] < 3


def test_info_lines_name_the_transport(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    text, _ = launch(cluster(machine, 2), "-b", "8M", "-e", "8M", ranks=8)
    assert "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE" in text
    assert re.search(r"7\[7\] -> 8\[0\] \[send\] via NET/IB/0/GDRDMA", text)


def test_info_lines_name_data_direct_functions_and_ports_of_one_card(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.state["nics"][0]["rate_gbps"] = 800
    machine.state["nics"][1]["pci"] = machine.state["nics"][0]["pci"].replace(".0", ".1")
    machine.save()
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    text, _ = launch(cluster(machine, 2), "-b", "8M", "-e", "8M", ranks=8)
    assert "NET/IB : Using [0]mlx5_0_dma:1/RoCE [1]mlx5_3:1/RoCE [2]mlx5_4:1/RoCE" in text
    assert "NET/IB : Made virtual device [8] name=mlx5_0_dma+mlx5_3 speed=1200000 ndevs=2" in text
    logs = nccl_log.parse(text)
    every = {nic["rdma_device"] for nic in machine.state["nics"]}
    for log in logs.values():
        assert {index for _, index, _ in log.channels} == {8, *range(2, 8)}
        assert (log.used(), log.unnamed()) == (every, frozenset())
    monkeypatch.setenv("NCCL_NET_MERGE_LEVEL", "LOC")
    text, _ = launch(cluster(machine, 2), "-b", "8M", "-e", "8M", ranks=8)
    assert "NET/IB/8" not in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ((802, "system not yet initialized"), "'system not yet initialized'"),
        ((100, "no CUDA-capable device is detected"), "no CUDA-capable"),
    ],
)
def test_cuda_errors_end_it_with_2(machine: Machine, error: tuple[int, str], words: str) -> None:
    nodes = cluster(machine, 1)
    nodes[0]["cuda_error"], nodes[0]["cuda_text"] = error
    text, answer = launch(nodes, "-g", "8")
    assert answer["code"] == 2
    assert words in text


def test_too_many_gpus_and_unknown_options(machine: Machine) -> None:
    machine.inject("gpu-missing", gpu=1)
    text, answer = launch(cluster(machine, 1), "-g", "8")
    assert answer["code"] == 3
    assert "Invalid number of GPUs: 8 requested but only 7 were found." in text
    assert launch(cluster(machine, 1), "--nonsense", "1")[1]["code"] == 1


def test_json_and_the_minimum(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    nodes = cluster(machine, 1)
    launch(nodes, "-b", "1G", "-e", "1G", "-g", "8", "-J", str(target))
    launch(nodes, "-b", "1G", "-e", "1G", "-g", "8", "-c", "0", "-J", str(target))
    document = json.loads(target.read_text())
    assert document["out_of_bounds"]["okay"] == "true"
    assert json.loads((tmp_path / "out.json.0").read_text())["results"][0]["out_of_place"]["nwrong"] is None
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "600")
    assert launch(nodes, "-b", "8G", "-e", "8G", "-g", "8")[1]["code"] == 1


def test_the_largest_size_fits_the_memory(machine: Machine) -> None:
    text, _ = launch(cluster(machine, 1), "-b", "8G", "-e", "64G", "-f", "2", "-g", "8")
    assert len(busbw(text)) == 2


@pytest.mark.parametrize(
    ("test", "ranks", "row"),
    [
        ("all_reduce", 8, (1 << 30, 1 << 28, "sum")),
        ("all_gather", 8, (1 << 30, 1 << 25, "none")),
        ("reduce_scatter", 8, (1 << 30, 1 << 25, "sum")),
        ("alltoall", 8, (1 << 30, 1 << 25, "none")),
        ("all_gather", 6, ((1 << 30) - 64, 44739240, "none")),
    ],
)
def test_sizes_and_counts_are_those_of_each_program(
    machine: Machine, tmp_path: Path, test: str, ranks: int, row: tuple[int, int, str]
) -> None:
    """GetCollByteCount of src/all_gather.cu: whole 16 bytes per rank, as many as fit; one rank's elements count."""
    target = tmp_path / "result.json"
    text, _ = launch(cluster(machine, 1), "-b", "1G", "-e", "1G", "-g", str(ranks), "-J", str(target), test=test)
    size, count, redop = row
    printed = next(line.split() for line in text.splitlines() if re.match(r"^ +\d+ +\d+ ", line))
    assert printed[:5] == [str(size), str(count), "float", redop, "-1"]
    (found,) = json.loads(target.read_text())["results"]
    assert [found[key] for key in ("size", "count", "type", "redop", "root")] == [size, count, "float", redop, "    -1"]
    judge = Judge()
    assert nccl_rows.judge_rows(judge, "x", nccl_tests.parse(text), f"{test}_perf")
    assert nccl_rows.judge_rows(judge, "x", nccl_tests.parse(target.read_text()), f"{test}_perf")
