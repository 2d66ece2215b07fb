"""Nodes that join a real cluster by a bootstrap token: held from their registration, once, and killed at every step.

The control plane is the simulated rack's: it signs certificates of kubelets and knows bootstrap tokens.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.pinned import site_of
from rackready.handover import kube_join
from rackready.handover.run import RELEASE
from rackready.ledger.store import Ledger
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths
from rackready_sim.kube import certs, plane
from rackready_sim.kube.plane import ControlPlane
from rackready_sim.plan import KUBERNETES_PORT, loopback_candidates
from rackready_sim.store import Store
from tests.kubernetes.cluster import PROGRAMS, ROOT, TAINT, Cluster
from tests.kubernetes.machine import Machine
from tests.kubernetes.steps import NODE, SHA
from tests.kubernetes.test_handover import FOREIGN, entries, kills, run

pytestmark = [pytest.mark.integration, pytest.mark.slow]
CORDON = {"spec": {"unschedulable": True}}
Place = Callable[..., PhaseContext]


@pytest.fixture(scope="module")
def joinable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that nodes can join, and in it a node of others: tainted, labelled and cordoned by them."""
    if not (PROGRAMS / "built.json").exists():
        pytest.skip("no Kubernetes control plane: `make setup-kubernetes` builds it")
    store = Store(tmp_path_factory.mktemp("joinable"))
    loopback = loopback_candidates(f"{abs(hash(str(store.root))) % 0xFFFFFF:06x}")[0]
    made = ControlPlane(ROOT, store, f"{loopback}.1", loopback)
    try:
        made.up()
        cluster = Cluster(made.folder)
        cluster.join("others", taints=[FOREIGN], owner="team-a")
        cluster.core.patch_node("others", CORDON, field_manager="kubectl-cordon")
        yield made
    finally:
        plane.stop(store)


@pytest.fixture
def cluster(joinable: ControlPlane) -> Cluster:
    return Cluster(joinable.folder)


@pytest.fixture
def place(joinable: ControlPlane, tmp_path: Path) -> Place:
    """A checkout whose site lets node01 join the cluster, where it has another name."""

    def make(called: str, **join: Any) -> PhaseContext:
        root = tmp_path / called
        document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        kubeadm = {
            "endpoint": f"{joinable.address}:{KUBERNETES_PORT}",
            "token": {"file": str(joinable.token)},
            "ca_hashes": [certs.pin(joinable.folder)],
        }
        document["handover"] = {
            "kind": "kubernetes",
            "kubeconfig": str(joinable.folder / f"{certs.PRODUCT}.kubeconfig"),
            "context": certs.CONTEXT,
            "node_names": {NODE: called},
            "api_wait_s": 30,
            "join": {"timeout_s": 120, **(join if "command" in join else {"kubeadm": {**kubeadm, **join}})},
        }
        (root / "inventories/sim").mkdir(parents=True)
        (root / "inventories/sim/site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
        return PhaseContext("sim", root, "c1")

    return make


def brought(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> NodeResult:
    monkeypatch.setattr(kube_join, "Remote", lambda _targets: Machine(ctx.root / "machine"))
    return kube_join.bring_in(ctx, site_of(ctx), EnvPaths(ctx.root, "sim"), [NODE])[NODE]


def of_others(cluster: Cluster) -> dict[str, Any]:
    """Return all that others set on their node: what kwok tells of it changes by itself."""
    raw = cluster.raw("others")
    kept = {key: raw["metadata"].get(key) for key in ("labels", "annotations", "uid")}
    return {**kept, "spec": raw["spec"]}


def test_a_node_joins_held_and_is_offered(
    cluster: Cluster, place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, before = f"j-{name}", of_others(cluster)
    ctx = place(called)
    found = brought(ctx, monkeypatch)
    assert (found.outcome, found.message) == (Outcome.PASS, "node01: joined Kubernetes")
    raw = cluster.raw(called)
    assert TAINT in raw["spec"]["taints"]
    setters = [item["manager"] for item in raw["metadata"]["managedFields"] if "f:taints" in str(item["fieldsV1"])]
    assert "rackready" not in setters, "held by its registration, not by a patch afterwards"
    assert "unschedulable" not in raw["spec"]
    assert run(ctx, "offer").returncode == 0
    raw = cluster.raw(called)
    assert TAINT not in raw["spec"].get("taints", [])
    assert raw["metadata"]["labels"]["rackready.io/gpu"] == "h100_sxm"
    assert raw["metadata"]["labels"]["rackready.io/certificate"] == SHA[:40]
    assert of_others(cluster) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_join_and_its_handover_killed_at_any_step_are_finished_by_the_next_run(
    cluster: Cluster, place: Place, name: str, when: str
) -> None:
    at, killed, before = 0, True, of_others(cluster)
    while killed:
        at += 1
        called = f"k-{name}-{at}"
        ctx = place(called)
        killed = kills(ctx, "join", at, when)
        raw = cluster.raw(called)
        assert raw["spec"].get("taints", []) == [], at
        assert raw["metadata"]["annotations"]["rackready.io/certificate"] == SHA, at
        assert (ctx.root / "machine/ran").read_text() == "join\n", f"kubeadm ran once, killed at {at}"
        assert not (ctx.root / "machine/rackready-join").exists(), "the token is gone"
        assert entries(ctx, kube_join.JOIN)[-1] == "done"
        assert entries(ctx, RELEASE)[-1] == "done"
    assert at > 10, "every request of join and offer, and the node's part, was one to die at"
    assert of_others(cluster) == before


def test_a_kill_while_kubeadm_runs_does_not_cut_it_and_the_next_run_waits_for_it(
    cluster: Cluster, place: Place, name: str
) -> None:
    called = f"d-{name}"
    ctx = place(called)
    assert kills(ctx, "join", at=2, when="during"), "the node's part is the second request"
    raw = cluster.raw(called)
    assert raw["spec"].get("taints", []) == []
    assert raw["metadata"]["annotations"]["rackready.io/certificate"] == SHA
    assert (ctx.root / "machine/ran").read_text() == "join\n", "kubeadm is not begun twice"
    assert not (ctx.root / "machine/rackready-join").exists(), "the token is gone"


def test_a_node_that_registers_without_the_taint_is_held_at_once(
    cluster: Cluster, place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = f"b-{name}"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kubernetes import client, config; "
        "config.load_kube_config(sys.argv[2]); client.CoreV1Api().create_node({'metadata': {'name': sys.argv[3]}})"
    )
    packages = str(Path(yaml.__file__).parents[1])
    admin = str(cluster.folder / "admin.kubeconfig")
    ctx = place(called, command=[sys.executable, "-c", code, packages, admin, "{node}", "ignored {taint}"])
    found = brought(ctx, monkeypatch)
    assert found.outcome is Outcome.ERROR
    assert "Expected: taint rackready.io/held:NoSchedule from its registration Actual: none." in found.message
    raw = cluster.raw(called)
    assert TAINT in raw["spec"]["taints"]
    assert raw["metadata"]["annotations"]["rackready.io/reason"] == "rackready: joined without the taint"
    assert brought(ctx, monkeypatch).outcome is Outcome.PASS


def test_the_hash_of_another_ca_joins_nothing(
    place: Place, name: str, joinable: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = place(f"w-{name}", ca_hashes=[f"sha256:{'0' * 64}"])
    found = brought(ctx, monkeypatch)
    assert found.outcome is Outcome.ERROR
    assert f"exit code 1: [preflight] Running pre-flight checks; error: {_distrust(joinable)}" in found.message
    assert joinable.token.read_text().strip() not in found.message
    with Ledger.open(EnvPaths(ctx.root, "sim").database) as ledger:
        assert ledger.entries(NODE)[-1].status == "intent"
    assert brought(ctx, monkeypatch).outcome is Outcome.ERROR


@pytest.mark.parametrize("pinned", [True, False])
def test_kubeadm_itself_finds_and_trusts_the_cluster_by_our_file(
    place: Place, joinable: ControlPlane, name: str, tmp_path: Path, *, pinned: bool
) -> None:
    """The real kubeadm, in a dry run: it needs a kubelet for more. Its refusal is that of the simulated one."""
    hashes = [certs.pin(joinable.folder) if pinned else f"sha256:{'0' * 64}"]
    handover = site_of(place(f"r-{name}", ca_hashes=hashes)).handover
    assert isinstance(handover, KubernetesHandover)
    assert handover.join is not None
    file = tmp_path / "join.yaml"
    file.write_text(kube_join.way_of(handover, handover.join).request(NODE)["files"]["join.yaml"])
    argv = [str(PROGRAMS / "kubeadm"), "join", "--config", str(file)]
    done = subprocess.run(
        [*argv, "--dry-run", "--ignore-preflight-errors=all", "-v=1"],
        env={**os.environ, "KUBEADM_JOIN_DRYRUN_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    said = done.stdout + done.stderr
    trusts = "Cluster info signature and contents are valid and TLS certificate validates against pinned roots"
    assert (trusts in said) is pinned, said[-3000:]
    assert (f"error: {_distrust(joinable)}" in said) is not pinned, said[-3000:]


def _distrust(plant: ControlPlane) -> str:
    """Return what kubeadm says about a cluster with another CA than the pinned one."""
    return (
        "error execution phase preflight: couldn't validate the identity of the API Server: cluster CA found in "
        f'cluster-info ConfigMap is invalid: none of the public keys "{certs.pin(plant.folder)}" are pinned'
    )
