"""The Kubernetes adapter: pods that come back to a held node, and GPUs that pods cannot get."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.drivers import process
from rackready.drivers.scheduler import kubernetes
from rackready.drivers.scheduler.base import SchedulerError
from rackready.model.kubernetes import Fact
from tests.unit.handover.test_kubernetes import SHA, Server, adapter, node, pod

EVERYTHING = [{"operator": "Exists", "effect": "NoSchedule"}, {"key": "CriticalAddonsOnly", "operator": "Exists"}]
"""Tolerations of calico-typha, of projectcalico/calico manifests/calico-typha.yaml, without those of NoExecute."""


def typha(name: str, uid: str, **spec: Any) -> dict[str, Any]:
    raw = pod(name, metadata={"uid": uid})
    raw["spec"] |= {"tolerations": EVERYTHING, **spec}
    return raw


def test_a_pod_that_comes_back_to_the_held_node_is_evicted_once() -> None:
    server = Server(node("node_drained"), pods=[typha("typha-a", "1")])
    made = adapter(server)
    ((_, left),) = made.vacate(["node01"])
    assert (isinstance(left, list) and left[0].stays, server.evicted) == ("is ending", ["default/typha-a"])
    server.pods = [typha("typha-b", "2")]
    assert list(made.vacate(["node01"])) == [("node01", [])]
    assert (server.evicted, [job.id for job in made.beside("node01")]) == (["default/typha-a"], ["default/typha-b"])
    made.drain("node01", "another change")
    ((_, left),) = made.vacate(["node01"])
    assert isinstance(left, list)
    assert [job.id for job in left] == ["default/typha-b"], "a drain of its own evicts it once more"


def test_a_site_that_evicts_nothing_does_not_wait_for_a_pod_that_never_ends() -> None:
    server = Server(node("node_drained"), pods=[typha("typha-a", "1"), pod("web")])
    made = adapter(server, evict=False)
    ((_, left),) = made.vacate(["node01"])
    assert (isinstance(left, list) and [job.name for job in left], server.evicted) == (["web"], [])
    assert [job.name for job in made.beside("node01")] == ["typha-a"]


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": []},
        {"tolerations": [{"key": "rackready.io/held", "operator": "Exists"}]},
        {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
        {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        {"restartPolicy": "Never"},
        {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        {"volumes": [{"name": "scratch", "emptyDir": {}}]},
    ],
)
def test_other_pods_are_jobs_however_much_they_tolerate(spec: dict[str, Any]) -> None:
    server = Server(node("node_drained"), pods=[typha("one", "1", **spec)])
    assert [job.name for job in adapter(server).jobs("node01")] == ["one"]


def test_a_pod_that_comes_back_is_a_job_on_a_node_of_others() -> None:
    server = Server(node("node_cordoned_by_kubectl", taints=[]), pods=[typha("one", "1")])
    assert [job.name for job in adapter(server).jobs("node01")] == ["one"]


@pytest.mark.parametrize(
    ("taint", "tolerations", "counts"),
    [
        ("rackready.io/held:NoSchedule", EVERYTHING, False),
        ("a.io/b=c:NoSchedule", [{"key": "a.io/b", "value": "c"}, {"key": "node.kubernetes.io/unschedulable"}], False),
        ("a.io/b=c:NoSchedule", [{"key": "a.io/b", "value": "d"}, {"key": "node.kubernetes.io/unschedulable"}], True),
    ],
)
def test_a_pod_that_tolerates_our_taint_and_the_cordon_is_no_job(
    taint: str, tolerations: list[dict[str, str]], *, counts: bool
) -> None:
    server = Server(node("node_drained"), pods=[typha("one", "1", tolerations=tolerations)])
    assert bool(adapter(server, taint=taint).jobs("node01")) is counts


def with_devices(capacity: dict[str, str], allocatable: dict[str, str]) -> Server:
    raw = node("node_registered")
    own = {"cpu": "64", "pods": "110"}
    raw["status"] |= {"capacity": {**own, **capacity}, "allocatable": {**own, **allocatable}}
    return Server(raw)


GPU, MIG, SHARED = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"
EIGHT: dict[Fact, str] = {"gpus": "8"}


@pytest.mark.parametrize(
    ("capacity", "allocatable", "why"),
    [
        ({GPU: "8"}, {GPU: "0"}, "allocatable: 0 of 8 nvidia.com/gpu"),
        ({GPU: "8"}, {GPU: "7"}, "allocatable: 7 of 8 nvidia.com/gpu"),
        ({GPU: "7"}, {GPU: "7"}, "allocatable: 7 nvidia.com/gpu"),
        ({GPU: "4", MIG: "28"}, {GPU: "4", MIG: "27"}, "allocatable: 27 of 28 nvidia.com/mig-1g.10gb"),
        ({GPU: "0"}, {GPU: "0"}, "allocatable: none"),
        ({}, {}, "allocatable: none"),
    ],
)
def test_a_node_whose_gpus_pods_cannot_get_is_not_offered(
    capacity: dict[str, str], allocatable: dict[str, str], why: str
) -> None:
    server = with_devices(capacity, allocatable)
    made = adapter(server, devices_wait_s=0)
    made.label("node01", EIGHT, SHA)
    before = copy.deepcopy(server.now)
    with pytest.raises(SchedulerError) as caught:
        made.release("node01")
    assert str(caught.value) == (
        f"node01: offered in Kubernetes - Expected: 8 GPUs that pods can get, within 0 s Actual: {why}. It stays held. "
        "Pods of the device plugin must tolerate our taint rackready.io/held:NoSchedule: `rackready export kubernetes` "
        "writes the values of the GPU Operator with it. A GPU that the plugin called unhealthy stays so until its pod "
        "restarts: `kubectl delete pod "
        "--namespace gpu-operator --selector app=nvidia-device-plugin-daemonset "
        "--field-selector spec.nodeName=node01`, then "
        "run again. No device plugin yet? Install it, or set handover.devices_wait_s: null to offer nodes without."
    )
    assert server.now == before


@pytest.mark.parametrize("devices", [{GPU: "8"}, {GPU: "4", MIG: "28"}, {MIG: "56"}, {SHARED: "32"}, {GPU: "32"}])
def test_gpus_that_are_shared_or_parted_are_counted_by_their_parts(devices: dict[str, str]) -> None:
    made = adapter(with_devices(devices, devices), devices_wait_s=0)
    made.label("node01", EIGHT, SHA)
    assert made.release("node01") is True


@pytest.mark.parametrize("settings", [{"devices": "dra"}, {"devices_wait_s": None}])
def test_a_site_whose_pods_get_gpus_otherwise_or_later_waits_for_none(settings: dict[str, Any]) -> None:
    made = adapter(with_devices({}, {}), **settings)
    made.label("node01", EIGHT, SHA)
    assert made.release("node01") is True


def test_a_node_is_offered_as_soon_as_the_device_plugin_has_registered_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = with_devices({}, {})
    registered = {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}
    monkeypatch.setattr(process.STOP, "wait", lambda _: server.now["status"].update(registered))
    made = adapter(server)
    made.label("node01", EIGHT, SHA)
    assert made.release("node01") is True


def test_all_nodes_wait_for_their_devices_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(process.STOP, "wait", lambda pause_s: clock.__setitem__(0, clock[0] + pause_s))
    made = adapter(with_devices({}, {}), node_names={"node02": "node01"}, devices_wait_s=60)
    for name in ("node01", "node02"):
        with pytest.raises(SchedulerError):
            made.release(name)
    assert 60 < clock[0] < 65
