"""Offer and take-back by the product's own functions, with their ledger: killed at every request, and begun again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rackready.handover.offer import keep_off
from rackready.handover.production import in_production, take_out
from rackready.handover.retire import RetireRefusedError, retire
from rackready.handover.run import DRAIN, RELEASE, drain_nodes, offer_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.kubernetes.cluster import TAINT, Cluster, until, without_ours
from tests.kubernetes.steps import NODE, REASON, SHA

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
FOREIGN = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERANT = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
Place = Callable[[str], PhaseContext]


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> Place:
    """A checkout whose site hands node01 over to the cluster, where the node has another name."""

    def make(called: str) -> PhaseContext:
        root = tmp_path / called
        document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        document["handover"] = {
            "kind": "kubernetes",
            "kubeconfig": str(cluster.kubeconfig),
            "context": "here",
            "node_names": {NODE: called},
            "drain_wait_s": 60,
            "api_wait_s": 30,
        }
        (root / "inventories/sim").mkdir(parents=True)
        (root / "inventories/sim/site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
        return PhaseContext("sim", root, "c1")

    return make


def run(ctx: PhaseContext, verb: str, at: int = 0, when: str = "after") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tests.kubernetes.steps", str(ctx.root), verb, str(at), when]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def kills(ctx: PhaseContext, verb: str, at: int, when: str) -> bool:
    """Run the verb, killed at a request; return whether it came that far. Then run it again, to the end."""
    done = run(ctx, verb, at, when)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    again = run(ctx, verb)
    assert again.returncode == 0, again.stderr
    return done.returncode != 0


def entries(ctx: PhaseContext, operation: str) -> list[str]:
    with Ledger.open(EnvPaths(ctx.root, "sim").database) as ledger:
        return [entry.status for entry in ledger.entries(NODE) if entry.operation == operation]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_offer_killed_at_any_request_is_finished_by_the_next_run(
    cluster: Cluster, place: Place, name: str, when: str
) -> None:
    at, killed = 0, True
    while killed:
        at += 1
        called = f"{name}-{at}"
        cluster.join(called, taints=[FOREIGN, TAINT], owner="team-a")
        ctx, before = place(called), without_ours(cluster.raw(called))
        killed = kills(ctx, "offer", at, when)
        raw = cluster.raw(called)
        assert without_ours(raw) == before, at
        assert raw["spec"]["taints"] == [FOREIGN], at
        assert raw["metadata"]["labels"]["rackready.io/rack"] == "rack01"
        assert raw["metadata"]["annotations"] == {"rackready.io/certificate": SHA}
        assert entries(ctx, RELEASE)[-1] == "done"
    assert at > 6, "every request of an offer was one to die at"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_take_back_killed_at_any_request_is_finished_by_the_next_run(
    cluster: Cluster, place: Place, name: str, when: str
) -> None:
    at, killed = 0, True
    while killed:
        at += 1
        called = f"{name}-{at}"
        cluster.join(called, taints=[FOREIGN, TAINT], pool=called)
        ctx, before = place(called), without_ours(cluster.raw(called))
        assert run(ctx, "offer").returncode == 0
        cluster.replica_set(called, 1, nodeSelector={"pool": called}, tolerations=TOLERANT)
        cluster.run_on(called, called, 1)
        killed = kills(ctx, "take-back", at, when)
        raw = cluster.raw(called)
        assert without_ours(raw) == before, at
        assert TAINT in raw["spec"]["taints"]
        assert raw["spec"]["unschedulable"] is True
        assert raw["metadata"]["annotations"] == {"rackready.io/reason": f"rackready: {REASON}"}
        assert "rackready.io/certificate" not in raw["metadata"]["labels"]
        assert set(cluster.pods(called).values()) == {""}, "evicted; the new pod finds no node"
        assert entries(ctx, DRAIN)[-1] == "done"
    assert at > 6, "every request of a take-back was one to die at"


def test_a_node_in_production_by_the_clusters_word(cluster: Cluster, place: Place, name: str) -> None:
    cluster.join(name, pool=name)
    ctx = place(name)
    assert in_production(ctx, [NODE]) == ([], {})
    offer_nodes(ctx, EnvPaths(ctx.root, "sim"), [NODE], {NODE: SHA})
    assert in_production(ctx, [NODE]) == ([NODE], {}), "pods may start"
    cluster.replica_set(name, 1, nodeSelector={"pool": name})
    cluster.run_on(name, name, 1)
    drain_nodes(ctx, [NODE], {NODE: "the certificate does not count"})
    assert in_production(ctx, [NODE]) == ([NODE], {}), "held, and a pod goes on"
    assert take_out(ctx, {NODE: REASON}) == {}
    assert in_production(ctx, [NODE]) == ([], {})


def test_a_quarantined_node_that_somebody_untainted_is_tainted_again(cluster: Cluster, place: Place, name: str) -> None:
    cluster.join(name)
    ctx = place(name)
    with Ledger.open(EnvPaths(ctx.root, "sim").database) as ledger:
        ledger.set_state(NODE, NodeState.QUARANTINED, "gpu2: NVLink down")
    assert keep_off(ctx).drained == ()
    cluster.core.patch_node(name, {"spec": {"taints": None, "unschedulable": None}})
    assert keep_off(ctx).drained == (NODE,)
    raw = cluster.raw(name)
    assert TAINT in raw["spec"]["taints"]
    assert raw["metadata"]["annotations"]["rackready.io/reason"] == "rackready: quarantined: gpu2: NVLink down"


def test_an_offer_that_conflicts_leaves_the_node_held(cluster: Cluster, place: Place, name: str) -> None:
    cluster.join(name)
    ctx = place(name)
    theirs = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rackready.io/gpu": "x"}}}
    cluster.core.patch_node(name, theirs, field_manager="gpu-operator", _content_type="application/apply-patch+yaml")
    found = offer_nodes(ctx, EnvPaths(ctx.root, "sim"), [NODE], {NODE: SHA})[NODE]
    assert found.outcome is Outcome.ERROR
    assert 'rackready.io/gpu: conflict with "gpu-operator"' in found.message
    assert TAINT in cluster.raw(name)["spec"]["taints"]
    assert entries(ctx, RELEASE) == []


def test_our_taint_is_set_beside_a_cordon_of_others(cluster: Cluster, place: Place, name: str) -> None:
    """They cordoned a node that we offered; its certificate is void for the same reason as before."""
    cluster.join(name)
    ctx = place(name)
    for _ in range(2):
        offer_nodes(ctx, EnvPaths(ctx.root, "sim"), [NODE], {NODE: SHA})
        cluster.core.patch_node(name, {"spec": {"unschedulable": True}}, field_manager="kubectl-cordon")
        assert drain_nodes(ctx, [NODE], {NODE: REASON})[NODE].outcome is Outcome.PASS
        assert TAINT in cluster.raw(name)["spec"]["taints"]
        cluster.core.patch_node(name, {"spec": {"unschedulable": None}}, field_manager="kubectl-cordon")
        assert in_production(ctx, [NODE]) == ([], {}), "still held by us"


def test_a_node_that_is_retired_is_emptied_first(cluster: Cluster, place: Place, name: str) -> None:
    cluster.join(name, pool=name)
    ctx = place(name)
    offer_nodes(ctx, EnvPaths(ctx.root, "sim"), [NODE], {NODE: SHA})
    cluster.replica_set(name, 1, nodeSelector={"pool": name})
    cluster.run_on(name, name, 1)
    with pytest.raises(
        RetireRefusedError, match=r"jobs run on it - Expected: none Actual: default/.*: is ending\. It is"
    ):
        retire(ctx, NODE, "sold to somebody")
    until(lambda: in_production(ctx, [NODE]) == ([], {}), "the node is empty")
    assert cluster.raw(name)["metadata"]["annotations"]["rackready.io/reason"] == "rackready: retired: sold to somebody"
