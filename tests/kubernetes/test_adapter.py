"""The Kubernetes adapter against a real API server: what it changes on a node, and what it leaves alone."""

from __future__ import annotations

import threading
import time

import pytest

from rackready.drivers.scheduler import kube_node
from rackready.drivers.scheduler.base import NotOursError, SchedulerError, UnknownNodeError
from rackready.drivers.scheduler.kube_api import APPLY, Answer
from rackready.handover.production import wait_for_jobs
from rackready.model.kubernetes import Fact
from tests.kubernetes.cluster import TAINT, Cluster, until, without_ours
from tests.kubernetes.conftest import Adapt

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SHA = "0123456789abcdef" * 4
FACTS: dict[Fact, str] = {"rack": "rack01", "gpu": "h100_sxm", "rails": "8"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def quiet(_node: str, _text: str) -> None:
    """Tell nobody."""


def test_a_node_takes_pods_from_its_offer_until_it_is_taken_back(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name)
    cluster.replica_set(name, 2, nodeSelector={"rackready.io/gpu": "h100_sxm", "kubernetes.io/hostname": name})
    adapter = adapt()
    before = without_ours(cluster.raw(name))
    assert adapter.show(name).reason == "rackready: not certified yet"
    assert adapter.label(name, FACTS, SHA) is True
    time.sleep(2)
    assert set(cluster.pods(name).values()) == {""}, "held: the real scheduler places nothing on it"
    assert adapter.release(name) is True
    cluster.run_on(name, name, 2)
    meta = cluster.raw(name)["metadata"]
    assert meta["annotations"]["rackready.io/certificate"] == SHA
    ours = {key: value for key, value in meta["labels"].items() if key.startswith("rackready.io/")}
    assert ours == {
        "rackready.io/rack": "rack01",
        "rackready.io/gpu": "h100_sxm",
        "rackready.io/rails": "8",
        "rackready.io/certificate": SHA[:40],
    }
    assert (adapter.label(name, FACTS, SHA), adapter.release(name)) == (False, False), "the second time changes nothing"
    assert adapter.drain(name, "certificate void") is True
    raw = cluster.raw(name)
    assert TAINT in raw["spec"]["taints"]
    assert raw["spec"]["unschedulable"] is True
    assert raw["metadata"]["annotations"] == {"rackready.io/reason": "rackready: certificate void"}
    assert "rackready.io/certificate" not in raw["metadata"]["labels"]
    assert len(cluster.pods(name)) == 2, "a drain alone evicts nothing"
    assert without_ours(raw) == before


def test_taints_labels_and_annotations_of_others_are_unchanged(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name, taints=[GPU_TAINT, TAINT], owner="team-a")
    cluster.core.patch_node(name, {"metadata": {"annotations": {"team-a/note": "keep"}}}, field_manager="team-a")
    before = without_ours(cluster.raw(name))
    adapter = adapt()
    for reason in ("one", "two"):
        adapter.label(name, FACTS, SHA)
        adapter.release(name)
        assert adapter.show(name).state == "Ready; taints: nvidia.com/gpu=present:NoSchedule"
        adapter.drain(name, reason)
    assert without_ours(cluster.raw(name)) == before
    assert before["taints"] == [GPU_TAINT]


def test_a_cordon_of_others_stays_and_is_named(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name)
    cordon = {"spec": {"unschedulable": True}}
    cluster.core.patch_node(name, cordon, field_manager="kubectl-cordon")
    adapter = adapt()
    assert adapter.drain(name, "repair") is True
    with pytest.raises(NotOursError, match=f"{name}: cordoned in Kubernetes by kubectl-cordon"):
        adapter.release(name)
    raw = cluster.raw(name)
    assert raw["spec"]["unschedulable"] is True
    assert TAINT in raw["spec"]["taints"]
    cluster.core.patch_node(name, {"spec": {"unschedulable": None}}, field_manager="kubectl-cordon")
    assert adapter.release(name) is True
    assert adapter.show(name).usable


def test_our_cordon_is_theirs_once_somebody_set_it_anew(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name)
    adapter = adapt()
    adapter.drain(name, "repair")
    for value in (None, True):
        cluster.core.patch_node(name, {"spec": {"unschedulable": value}}, field_manager="kubectl-cordon")
    with pytest.raises(NotOursError, match="by kubectl-cordon"):
        adapter.release(name)


def test_a_taint_that_somebody_adds_meanwhile_is_kept(cluster: Cluster, adapt: Adapt, name: str) -> None:
    """Between our read and our patch the list changes: the patch is refused, and made anew."""
    cluster.join(name)
    adapter = adapt()
    read, races = adapter._api.node, [[GPU_TAINT, TAINT], [TAINT, {**GPU_TAINT, "value": "b"}]]

    def raced(node: str) -> Answer:
        found = read(node)
        if races:
            cluster.core.patch_node(node, {"spec": {"taints": races.pop()}}, field_manager="gpu-operator")
        return found

    adapter._api.node = raced  # type: ignore[method-assign]
    assert adapter.drain(name, "x") is True
    assert GPU_TAINT in cluster.raw(name)["spec"]["taints"]
    races.append([TAINT, {**GPU_TAINT, "value": "c"}])
    assert adapter.release(name) is True
    assert cluster.raw(name)["spec"]["taints"] == [{**GPU_TAINT, "value": "c"}]


def test_a_label_of_another_manager_is_reported_and_kept(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name)
    theirs = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rackready.io/rack": "r7"}}}
    cluster.core.patch_node(name, theirs, field_manager="topograph", _content_type=APPLY)
    adapter = adapt()
    with pytest.raises(SchedulerError) as caught:
        adapter.label(name, FACTS, SHA)
    assert '.metadata.labels.rackready.io/rack: conflict with "topograph"' in str(caught.value)
    raw = cluster.raw(name)
    assert raw["metadata"]["labels"]["rackready.io/rack"] == "r7"
    assert "rackready.io/gpu" not in raw["metadata"]["labels"]
    assert TAINT in raw["spec"]["taints"]
    assert adapt(labels={"rack": None}).label(name, FACTS, SHA) is True, "the way out that the message names"


def test_a_node_that_is_gone_is_not_made(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name)
    adapter, raw = adapt(), cluster.raw(name)
    cluster.core.delete_node(name)
    with pytest.raises(UnknownNodeError, match="Let it join"):
        adapter.label(name, FACTS, SHA)
    answer = adapter._api.patch_node(name, kube_node.labelled(raw, {"a": "b"}, SHA), APPLY, "rackready")
    assert (answer.status, "uid mismatch" in answer.told) == (409, True)
    with pytest.raises(UnknownNodeError):
        adapter.show(name)


def test_a_budget_that_blocks_is_named_and_one_that_lets_go_empties_the_node(
    cluster: Cluster, adapt: Adapt, name: str
) -> None:
    adapter, other = adapt(), f"{name}b"
    for node in (name, other):
        cluster.join(node, pool=name)
    adapter.release(name)
    cluster.replica_set(name, 2, nodeSelector={"pool": name})
    cluster.budget(name, name, 2)
    cluster.run_on(name, name, 2)
    adapter.drain(name, "repair")
    began = time.monotonic()
    left = wait_for_jobs(adapter, [name], 4, quiet, 0.5)
    assert time.monotonic() - began < 30
    pods = sorted(cluster.pods(name))
    why = f"The disruption budget {name} needs 2 healthy pods and has 2 currently"
    told = ", ".join(f"default/{pod} (ReplicaSet/{name}, {pod}): {why}" for pod in pods)
    commands = "; ".join(f"kubectl delete pod --namespace default {pod}" for pod in pods)
    assert left == {
        name: f"{name}: jobs run on it - Expected: none within 4 s of draining it Actual: {told}. Nothing was changed, "
        "and it stays drained so that it empties: wait and run again, give a budget that blocks more room, or end them "
        f"with `{commands}`."
    }
    cluster.run_on(name, name, 2)
    # Room: the other node takes pods, and one of two may be missing. The budget lets one go at a time.
    adapter.release(other)
    cluster.budget_needs(name, 1)
    assert wait_for_jobs(adapter, [name], 60, quiet, 0.5) == {}
    cluster.run_on(name, other, 2)


def test_pods_that_no_drain_may_end_stay_and_are_named(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name, pool=name)
    adapter = adapt()
    adapter.release(name)
    disk = {"name": "scratch", "emptyDir": {}}
    cluster.replica_set(f"{name}-disk", 1, nodeSelector={"pool": name}, volumes=[disk])
    cluster.replica_set(f"{name}-two", 1, nodeSelector={"pool": name})
    for budget in ("a", "b"):
        cluster.budget(f"{name}-{budget}", f"{name}-two", 0)
    bare = {"containers": [{"name": "c", "image": "c"}], "nodeName": name}
    cluster.core.create_namespaced_pod("default", {"metadata": {"name": f"{name}-bare"}, "spec": bare})
    until(lambda: len(adapter.jobs(name)) == 3, "three pods")
    adapter.drain(name, "repair")
    ((_, left),) = adapter.vacate([name])
    assert isinstance(left, list)
    assert {job.id.removeprefix(f"default/{name}-").split("-")[0]: job.stays for job in left} == {
        "bare": "no controller makes it again, so it is not evicted",
        "disk": "emptyDir scratch would be lost, and handover.evict_local_data is false",
        "two": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    }
    assert len(adapter.jobs(name)) == 3


def test_an_outage_of_a_minute_in_the_middle_of_a_drain_is_waited_for(
    cluster: Cluster, adapt: Adapt, name: str
) -> None:
    cluster.join(name, pool=name)
    adapter = adapt(api_wait_s=110)
    adapter.release(name)
    cluster.replica_set(name, 1, nodeSelector={"pool": name})
    cluster.run_on(name, name, 1)
    adapter.drain(name, "repair")
    cluster.stop_api()
    back = threading.Timer(60, cluster.start_api)
    back.start()
    began = time.monotonic()
    try:
        left = wait_for_jobs(adapter, [name], 110, quiet, 0.5)
    finally:
        back.join()
        cluster.api_is_back()
    assert left == {}
    assert time.monotonic() - began > 55
    assert TAINT in cluster.raw(name)["spec"]["taints"]


def test_an_outage_beyond_the_limit_is_an_error_that_tells_what_to_do(
    cluster: Cluster, adapt: Adapt, name: str
) -> None:
    cluster.join(name)
    adapter = adapt(api_wait_s=2)
    before = cluster.raw(name)
    cluster.stop_api()
    try:
        with pytest.raises(SchedulerError) as caught:
            adapter.drain(name, "repair")
    finally:
        cluster.start_api()
        cluster.api_is_back()
    text = str(caught.value)
    assert text.startswith(
        f"Kubernetes context here at https://127.0.0.1:{cluster.port} - Expected: an answer within 2 s"
    )
    assert "Connection refused" in text
    assert text.endswith("Check that the API server runs and can be reached, then run again.")
    assert cluster.raw(name)["spec"] == before["spec"]
    assert adapt().drain(name, "repair") is True


def test_a_user_without_rights_is_told(cluster: Cluster, adapt: Adapt, name: str) -> None:
    cluster.join(name)
    with pytest.raises(
        SchedulerError, match=r'403: nodes .* is forbidden: User "stranger" cannot get resource "nodes"'
    ):
        adapt(kubeconfig=cluster.folder / "stranger.kubeconfig").show(name)
