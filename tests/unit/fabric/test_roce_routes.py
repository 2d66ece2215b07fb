"""Routes of a rail in a routed fabric, set by the real `ip` in a network namespace of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import rail_ping
from rackready.ondevice.roce import Roce

RAILS: list[dict[str, Any]] = [
    {
        "netdev": f"rail{rail}",
        "rdma_device": f"mlx5_{rail}",
        "pci": "",
        "address": f"192.168.{rail}.11/24",
        "gateway": f"192.168.{rail}.1",
        "routes": ["192.168.0.0/16"],
        "table": 20_000 + rail,
        "mtu": 9000,
    }
    for rail in (1, 2)
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[list[Roce]]:
    """Two rails that are up, with their addresses."""
    if os.geteuid() != 0:
        pytest.skip("not root: network namespaces need root")
    name = f"rr-routes-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")

    def run(*argv: str) -> tuple[int, str]:
        done = subprocess.run(["ip", "netns", "exec", name, *argv], check=False, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    try:
        for rail in RAILS:
            run("ip", "link", "add", rail["netdev"], "type", "veth", "peer", "name", f"far-{rail['netdev']}")
            run("ip", "link", "set", f"far-{rail['netdev']}", "up")
            run("ip", "link", "set", rail["netdev"], "up")
            run("ip", "address", "add", rail["address"], "dev", rail["netdev"])
        yield [Roce(rail, run, tmp_path) for rail in RAILS]
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def way(roce: Roce, target: str) -> str:
    source = str(roce.config["address"]).split("/")[0]
    _, text = roce._run("ip", "route", "get", target, "from", source)
    return text.splitlines()[0].split(" uid ")[0].strip()


def test_every_rail_leaves_by_its_own_gateway_and_meets_its_neighbours_directly(node: list[Roce]) -> None:
    assert [roce._routes() for roce in node] == [[], []]
    for number, roce in enumerate(node, 1):
        source, table = f"192.168.{number}.11", 20_000 + number
        assert way(roce, "192.168.9.11") == (
            f"192.168.9.11 from {source} via 192.168.{number}.1 dev rail{number} table {table}"
        )
        assert way(roce, f"192.168.{number}.12") == f"192.168.{number}.12 from {source} dev rail{number} table {table}"


def test_applied_twice_it_is_the_same(node: list[Roce]) -> None:
    first = node[0]
    assert first._routes() == first._routes() == []
    _, rules = first._run("ip", "rule", "show")
    assert rules.count("from 192.168.1.11 lookup 20001") == 1


def test_what_somebody_removed_is_seen(node: list[Roce]) -> None:
    first = node[0]
    first._routes()
    seen = [problem["what"] for problem in first.address_problems() if problem["what"] != "MTU"]
    assert seen == []
    first._run("ip", "rule", "delete", "from", "192.168.1.11", "lookup", "20001")
    first._run("ip", "route", "flush", "table", "20001")
    first._run("ip", "route", "delete", "192.168.0.0/16", "dev", "rail1")
    seen = [problem["what"] for problem in first.address_problems() if problem["what"] != "MTU"]
    assert seen == [
        "route 192.168.1.0/24 dev rail1 scope link table 20001",
        "route default via 192.168.1.1 dev rail1 table 20001",
        "route 192.168.0.0/16 via 192.168.1.1 dev rail1 metric 20001",
        "rule for source 192.168.1.11",
    ]


def test_a_rail_without_a_gateway_gets_no_routes(node: list[Roce]) -> None:
    first = node[0]
    plain = {key: value for key, value in RAILS[0].items() if key not in {"gateway", "routes", "table"}}
    assert Roce(plain, first._run)._routes() == []
    assert first._rule_table() == ""


def test_silent_peers_across_the_spines_are_a_problem_beside_near_ones_that_answer() -> None:
    near = {"rail": 1, "netdev": "rail1", "peers": [{"node": "node02", "address": "192.168.1.12"}]}
    far = {"rail": 1, "netdev": "rail1", "peers": [{"node": "node03", "address": "192.168.9.11"}], "far": True}
    request = {"mtu": 9000, "rails": [near, far]}
    found = rail_ping.problems(request, {(1, "node02"): "", (1, "node03"): "100% packet loss"})
    assert [(item["what"], item["actual"]) for item in found] == [
        ("rail 1 (rail1) across the spines", "100% packet loss")
    ]
    assert rail_ping.document(request, found)["measured"] == [1]
