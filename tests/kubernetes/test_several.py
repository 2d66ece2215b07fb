"""A site with a real cluster and a list of ready nodes: each has its own, and a node moves from one to the other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.scheduler.file import FileAdapter
from rackready.handover import run as handover
from rackready.handover.production import in_production
from rackready.handover.run import drain_nodes, offer_nodes, run_handover
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths
from tests.kubernetes.cluster import TAINT, Cluster, until
from tests.kubernetes.steps import NODE, SHA
from tests.unit.handover.evidence import fingerprint

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]


def write(ctx: PhaseContext, cluster: Cluster, called: str, kube: str, listed: str) -> None:
    """Write the site: these nodes belong to the cluster, those to the list."""
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    settings: dict[str, Any] = {"kubeconfig": str(cluster.kubeconfig), "context": "here", "api_wait_s": 0}
    names = {NODE: called} if NODE in kube else {}
    parts = [
        {"nodes": [kube], "handover": {"kind": "kubernetes", "node_names": names, "drain_wait_s": 60, **settings}},
        {"nodes": [listed], "handover": {"kind": "file", "path": str(ctx.root / "ready.txt")}},
    ]
    document["handover"] = {"kind": "several", "parts": parts}
    path = ctx.root / "inventories/sim/site.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


@pytest.fixture
def ctx(tmp_path: Path) -> PhaseContext:
    return PhaseContext("sim", tmp_path, "c1")


def hand_over(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch, *nodes: str) -> dict[str, NodeResult]:
    """Hand over nodes as if their certificates counted."""
    monkeypatch.setattr(handover, "keys_of", lambda *_: None)
    seen = {node: fingerprint(node=node) for node in nodes}
    monkeypatch.setattr(handover, "fingerprints", lambda _site, _paths, some: {node: seen[node] for node in some})
    monkeypatch.setattr(handover, "_certified", lambda *_: (SHA, None))
    return run_handover(ctx, list(nodes))


def test_each_is_offered_by_its_own_and_one_moves_with_its_pods_evicted(
    cluster: Cluster, ctx: PhaseContext, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.join(name, pool=name)
    write(ctx, cluster, name, kube="node01", listed="node[02-04]")
    listed = FileAdapter(ctx.root / "ready.txt")
    found = hand_over(ctx, monkeypatch, NODE, "node02")
    assert {result.outcome for result in found.values()} == {Outcome.PASS}
    assert TAINT not in cluster.raw(name)["spec"].get("taints", [])
    assert [listed.show(node).usable for node in (NODE, "node02")] == [False, True]
    cluster.replica_set(name, 1, nodeSelector={"pool": name})
    cluster.run_on(name, name, 1)
    write(ctx, cluster, name, kube="node03", listed="node[01-02,04]")
    assert in_production(ctx, [NODE, "node02"]) == ([NODE, "node02"], {})
    found = hand_over(ctx, monkeypatch, NODE)
    assert found[NODE].message == "node01: released (ready)"
    raw = cluster.raw(name)
    assert TAINT in raw["spec"]["taints"]
    assert raw["metadata"]["annotations"]["rackready.io/reason"] == "rackready: moves from part kubernetes to part file"
    assert set(cluster.pods(name).values()) == {""}, "its pod was evicted before the list had the node"
    assert listed.show(NODE).usable


def test_a_cluster_that_is_away_keeps_no_node_of_the_list(cluster: Cluster, ctx: PhaseContext, name: str) -> None:
    cluster.join(name)
    write(ctx, cluster, name, kube="node01", listed="node[02-04]")
    cluster.stop_api()
    try:
        found = offer_nodes(ctx, EnvPaths(ctx.root, "sim"), [NODE, "node02"], {NODE: SHA, "node02": SHA})
    finally:
        cluster.start_api()
        cluster.api_is_back()
    assert {node: result.outcome for node, result in found.items()} == {NODE: Outcome.ERROR, "node02": Outcome.PASS}
    assert TAINT in cluster.raw(name)["spec"]["taints"]
    until(lambda: offered(ctx), "it is offered once the server has its rights again")


def offered(ctx: PhaseContext) -> bool:
    return offer_nodes(ctx, EnvPaths(ctx.root, "sim"), [NODE], {NODE: SHA})[NODE].outcome is Outcome.PASS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handover_of_both_that_is_killed_at_any_request_is_finished_by_the_next(
    cluster: Cluster, tmp_path: Path, name: str, when: str
) -> None:
    at, killed = 0, True
    while killed:
        at += 1
        called = f"{name}-{at}"
        cluster.join(called)
        ctx = PhaseContext("sim", tmp_path / called, "c1")
        write(ctx, cluster, called, kube="node01", listed="node[02-04]")
        argv = [sys.executable, "-m", "tests.kubernetes.steps", str(ctx.root), "offer-both", str(at), when]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        killed = done.returncode != 0
        listed = FileAdapter(ctx.root / "ready.txt")
        assert listed.show("node02").usable is not killed, "the cluster's part comes first"
        argv[5:] = ["0", when]
        assert subprocess.run(argv, cwd=ROOT, capture_output=True, check=False, timeout=120).returncode == 0
        assert TAINT not in cluster.raw(called)["spec"].get("taints", [])
        assert listed.show("node02").usable
        drain_nodes(ctx, [NODE], {NODE: "the test is over"})
    assert at > 6
