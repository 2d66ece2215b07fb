"""The simulated rack `sim-k8s`: from powered off to nodes that take pods of a real cluster, and back. Run in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rackready_sim.kube import certs
from tests.integration.project import Project, cannot_run, held_image, standing_rack
from tests.kubernetes.cluster import PROGRAMS, TAINT, Cluster, without_ours
from tests.kubernetes.test_handover import FOREIGN, TOLERANT

pytestmark = [pytest.mark.integration, pytest.mark.slow]
NODES = ("node01", "node02")


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    if reason := cannot_run():
        pytest.skip(reason)
    if not (PROGRAMS / "built.json").exists():
        pytest.skip("no Kubernetes control plane: `make setup-kubernetes` builds it")
    folder = tmp_path_factory.mktemp("k8s")
    with held_image(folder / "build"), standing_rack(folder / "clone", "sim-k8s") as made:
        yield made


@pytest.fixture
def cluster(rack: Project) -> Cluster:
    return Cluster(rack.paths.base / "sim/kubernetes")


def test_a_first_deploy_ends_with_schedulable_nodes(rack: Project, cluster: Cluster) -> None:
    assert cluster.core.list_node().items == [], "no node is in the cluster before"
    code, document = rack.json("deploy")
    assert code == 0, rack.progress()[-4000:]
    assert {node["name"]: node["state"] for node in document["nodes"]} == dict.fromkeys(NODES, "ready")
    for name in NODES:
        raw = cluster.raw(name)
        assert TAINT not in raw["spec"].get("taints", [])
        assert "unschedulable" not in raw["spec"]
        labels = raw["metadata"]["labels"]
        assert (labels["rackready.io/gpu"], labels["rackready.io/gpus"]) == ("h100_sxm", "8")
        whole = raw["metadata"]["annotations"]["rackready.io/certificate"]
        assert labels["rackready.io/certificate"] == whole[:40]
        assert rack.ssh(name, "ls -d /run/rackready-join; true") == "", "no file with the token is left"
        assert certs.CONTEXT in str(rack.paths.overlay.read_text(encoding="utf-8"))


def test_pods_are_placed_by_our_labels(cluster: Cluster) -> None:
    cluster.replica_set("train", 2, nodeSelector={"rackready.io/gpu": "h100_sxm", "rackready.io/rack": "rack01"})
    for name in NODES:
        one = f"one-{name}"
        cluster.replica_set(one, 1, nodeSelector={"kubernetes.io/hostname": name}, tolerations=TOLERANT)
        cluster.run_on(one, name, 1)


def test_a_second_deploy_changes_nothing(rack: Project, cluster: Cluster) -> None:
    before = {name: _kept(cluster, name) for name in NODES}
    code, document = rack.json("deploy")
    assert code == 0, rack.progress()[-4000:]
    assert document["changed"] == []
    assert {name: _kept(cluster, name) for name in NODES} == before


def test_a_quarantined_node_is_tainted_and_what_others_set_stays(rack: Project, cluster: Cluster) -> None:
    cluster.core.patch_node("node02", {"spec": {"taints": [FOREIGN]}, "metadata": {"labels": {"owner": "team-a"}}})
    before, other = without_ours(cluster.raw("node02")), _kept(cluster, "node01")
    assert rack.run("sim", "inject", "node02", "nvlink-down", "--gpu", "2")[0] == 0
    code, _ = rack.json("deploy")
    assert code == 1
    assert rack.states() == {"node01": "ready", "node02": "quarantined"}
    raw = cluster.raw("node02")
    assert TAINT in raw["spec"]["taints"]
    assert raw["spec"]["unschedulable"] is True
    assert raw["metadata"]["annotations"]["rackready.io/reason"].startswith("rackready: quarantined: node02 gpu2")
    assert "rackready.io/certificate" not in raw["metadata"]["labels"]
    assert without_ours(raw) == before
    assert before["taints"] == [FOREIGN]
    assert _kept(cluster, "node01") == other
    rack.json("deploy")
    assert TAINT in cluster.raw("node02")["spec"]["taints"], "it stays tainted"


def _kept(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return all of a node but what kwok writes by itself."""
    raw = cluster.raw(name)
    return {"spec": raw["spec"], **{key: raw["metadata"].get(key) for key in ("labels", "annotations", "uid")}}
