"""Nodes of Kubernetes that are not ready: those that have just joined, and those whose kubelet is silent."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest

from rackready.drivers import process
from rackready.drivers.scheduler import kubernetes
from rackready.drivers.scheduler.base import SchedulerError
from tests.unit.handover.test_kubernetes import Server, adapter, node, pod

NO_NETWORK = {
    "status": "False",
    "reason": "KubeletNotReady",
    "message": "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network "
    "plugin returns error: cni plugin not initialized",
}


def test_a_node_that_has_just_joined_has_as_long_as_the_join_to_become_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network plug-in's DaemonSet must pull its image first. All nodes wait together."""
    now = [0.0]
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    raw = node("node_registered")
    raw["status"]["conditions"][0] |= NO_NETWORK
    server = Server(raw)
    handover = {"join": {"command": ["join", "{node}", "{taint}"], "timeout_s": 300}, "devices_wait_s": None}
    made = adapter(server, **handover)

    def wait(seconds: float) -> None:
        now[0] += seconds
        if now[0] == 200.0:
            server.now["status"]["conditions"][0]["status"] = "True"

    monkeypatch.setattr(process.STOP, "wait", wait)
    assert made.release("node01")
    raw["status"]["conditions"][0] |= NO_NETWORK
    server.now = raw
    with pytest.raises(SchedulerError) as caught:
        made.release("node01")
    assert str(caught.value) == (
        "node01: offered in Kubernetes - Expected: Ready within 300 s Actual: "
        f"KubeletNotReady: {NO_NETWORK['message']}. It stays held. Its network plug-in (CNI) is not ready: look at the "
        "plug-in's pods on the node, `kubectl get pods --all-namespaces --field-selector spec.nodeName=node01`. Its "
        "DaemonSet must tolerate our taint "
        "rackready.io/held:NoSchedule. Then run again."
    )
    assert now == [301.0]
    raw["status"]["conditions"][0] |= {"status": "Unknown", "message": "Kubelet stopped posting node status."}
    with pytest.raises(SchedulerError, match="Ready within 0 s"):
        adapter(server, **handover).release("node01")


def test_a_node_of_a_later_batch_has_time_to_become_ready_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The join's time ends once for all nodes; a node whose turn comes after it has joined just now."""
    now, ready_at = [0.0], [0.0]
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    raw = node("node_registered")
    server = Server(raw)
    handover = {"join": {"command": ["join", "{node}", "{taint}"], "timeout_s": 300}, "devices_wait_s": None}
    made = adapter(server, patience_s=60.0, **handover)

    def turn(begin: float, ready: float) -> bool:
        now[0], ready_at[0] = begin, ready
        server.now = copy.deepcopy(raw)
        server.now["status"]["conditions"][0] |= NO_NETWORK
        return made.release("node01")

    def wait(seconds: float) -> None:
        now[0] += seconds
        if now[0] == ready_at[0]:
            server.now["status"]["conditions"][0]["status"] = "True"

    monkeypatch.setattr(process.STOP, "wait", wait)
    assert turn(0.0, 20.0)
    assert turn(290.0, 340.0)
    assert turn(700.0, 750.0)
    with pytest.raises(SchedulerError, match="Ready within 60 s"):
        turn(1000.0, 0.0)
    assert now == [1061.0]


@pytest.mark.parametrize("evict", [True, False])
def test_pods_of_a_silent_node_are_told_with_what_really_ends_them(*, evict: bool) -> None:
    """The taint manager marks them deleted after 300 s; no kubelet confirms it, and a second delete changes nothing."""
    raw = node("node_drained")
    raw["status"]["conditions"][0] |= {"status": "Unknown", "lastTransitionTime": "2026-11-27T18:20:00Z"}
    late = pod("train-0", metadata={"uid": "1", "deletionTimestamp": "2026-11-27T18:25:30Z"})
    early = pod("web", metadata={"deletionTimestamp": "2999-11-27T18:25:30Z"})
    server = Server(raw, pods=[late, early])
    made = adapter(server, evict=evict, node_names={"node01": "gpu-1"})
    raw["metadata"]["name"] = "gpu-1"
    ((_, left),) = made.vacate(["node01"])
    assert isinstance(left, list)
    assert {job.name: job.stays for job in left} == {
        "train-0": "is ending, which nothing confirms: its node does not answer Kubernetes since 2026-11-27T18:20:00Z",
        "web": "is ending" if evict else "",
    }
    assert server.evicted == []
    assert made.how_to_end(left) == made.stuck(left)
    assert made.how_to_end(left) == (
        "gpu-1 does not answer Kubernetes, and only its kubelet confirms that pods ended. Power it on, or mend its "
        "network: its pods end by themselves. If it is off and stays off: `kubectl delete node gpu-1`, then `rackready "
        "repair NODE --reason TEXT`, then run again. Only if the host is surely off, to keep its Node: `kubectl delete "
        "pod --namespace default train-0 --grace-period=0 --force`. A pod that still runs would run twice."
    )
    server.now = node("node_drained")
    server.now["metadata"]["name"] = "gpu-1"
    ((_, left),) = made.vacate(["node01"])
    assert isinstance(left, list)
    assert {job.name: job.stays for job in left} == dict.fromkeys(["train-0", "web"], "is ending" if evict else "")
    assert made.stuck(left) == ""
