"""Partition keys of simulated ports: data pass by the keys at index 0, as with perftest and NCCL on real ones."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from rackready_sim.programs.hwsim.ib import node, tools
from rackready_sim.programs.hwsim.perf import nccl, perftest

TABLE = "   0: {} 0x7fff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000\n8 pkeys capacity for this port\n"


def end(key: str, **more: Any) -> dict[str, Any]:
    port = {"state": "Active", "subnet": "leaf01"} | ({"key": key} if key else {})
    return {"ib": port, "mtu": 4096, "device": "mlx5_0", "address": "lid 1", "crossed": False, **more}


@pytest.mark.parametrize(
    ("one", "other", "pass_"),
    [
        ("0xffff", "0xffff", True),
        ("0xffff", "0x7fff", True),
        ("0x7fff", "0x7fff", False),
        ("0x8011", "0x8011", True),
        ("0x8011", "0x0011", True),
        ("0x0011", "0x0011", False),
        ("0x8011", "0x8012", False),
        ("0x8011", "0xffff", False),
        ("0x7fff", "", True),
    ],
)
def test_packets_pass_between_members_of_one_partition_unless_both_are_limited(
    one: str, other: str, *, pass_: bool
) -> None:
    ends = end(one), end(other)
    assert node.share_partition(ends[0]["ib"], ends[1]["ib"]) is pass_
    refused = perftest._unreachable(*ends, back=True)
    assert (refused == "") is pass_
    assert pass_ or "Failed status 12" in refused, "queue pairs connect; then retries run out"
    machines = [{"nics": [item], "hostname": name} for item, name in zip(ends, ("node01", "node02"), strict=True)]
    assert (nccl.unreachable(*machines, reach=lambda *_: False) == []) is pass_


@pytest.mark.parametrize(
    ("code", "text", "key"),
    [(0, TABLE.format("0x8011"), "0x8011"), (1, TABLE.format("0x8011"), ""), (0, "nothing", "")],
)
def test_the_first_key_is_that_of_the_port_s_own_table(
    monkeypatch: pytest.MonkeyPatch, code: int, text: str, key: str
) -> None:
    asked: list[list[str]] = []

    def run(name: str, argv: list[str], nic: object) -> subprocess.CompletedProcess[str]:
        asked.append([name, *argv, str(nic)])
        return subprocess.CompletedProcess([], code, text, "")

    monkeypatch.setattr(tools, "_run", run)
    assert tools.first_key({"rdma_device": "mlx5_0"}) == key
    assert asked == [["smpquery", "-P", "1", "-D", "pkeys", "0", "{'rdma_device': 'mlx5_0'}"]]
