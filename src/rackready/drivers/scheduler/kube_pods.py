"""Pods of a node: which of them are jobs, which may be evicted, and what an eviction's answer says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rackready.drivers.scheduler.base import Job
from rackready.model.kubernetes import CORDON_TAINT, Taint

_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the image of a static pod, which kubelet runs from a file (kubectl's drain/filters.go skips it)."""
_OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle)."""

Raw = Mapping[str, Any]
"""A Pod object, or a Status, as the API server sends it."""


def running(pods: Sequence[Raw]) -> list[Raw]:
    """Return the pods that a drain waits for: neither a DaemonSet's nor static, and not over. As `kubectl drain`."""
    found = [
        pod
        for pod in pods
        if owner_kind(pod) != "DaemonSet"
        and _MIRROR not in (pod["metadata"].get("annotations") or {})
        and pod.get("status", {}).get("phase") not in _OVER
    ]
    return sorted(found, key=pod_id)


def comes_back(pod: Raw, taint: Taint, *, local_data: bool) -> bool:
    """Return whether the scheduler may put a pod back on a node that we hold, however often it is evicted.

    Such are pods that tolerate our taint and the cordon, are made again for ever (a Job's end by themselves, so their
    policy is not Always) and have no devices: calico-typha and cilium-operator (projectcalico/calico
    manifests/calico-typha.yaml and #8371, cilium/cilium #28549). ``local_data``: as for ``must_stay``.
    """
    spec = pod.get("spec") or {}
    tolerated = all(_tolerates(spec, one) for one in (taint, Taint(key=CORDON_TAINT)))
    endless = spec.get("restartPolicy", "Always") == "Always" and not must_stay(pod, local_data=local_data)
    return tolerated and endless and not _asks(spec)


def _tolerates(spec: Raw, taint: Taint) -> bool:
    """Return whether a pod tolerates a taint (kubernetes/kubernetes staging/src/k8s.io/api/core/v1/toleration.go)."""
    return any(
        item.get("effect") in {None, "", taint.effect}
        and item.get("key") in {None, "", taint.key}
        and _matches(item, taint)
        for item in spec.get("tolerations") or []
    )


def _matches(item: Raw, taint: Taint) -> bool:
    if item.get("operator") == "Exists":
        return True
    return item.get("operator") in {None, "", "Equal"} and (item.get("value") or "") == taint.value


def using_devices(pods: Sequence[Raw]) -> list[Raw]:
    """Return the pods that have devices of the node and are not over, also those of DaemonSets.

    Devices are extended resources, whose names have a domain such as nvidia.com/gpu, and claims of dynamic resource
    allocation (kubernetes.io/docs/concepts/configuration/manage-resources-containers, "Extended resources").
    """
    return sorted(
        (pod for pod in pods if pod.get("status", {}).get("phase") not in _OVER and _asks(pod.get("spec") or {})),
        key=pod_id,
    )


def _asks(spec: Raw) -> bool:
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    asked = [name for one in containers for name, value in _limits(one).items() if "/" in name and str(value) != "0"]
    return bool(asked or spec.get("resourceClaims"))


def _limits(container: Raw) -> dict[str, Any]:
    found = container.get("resources") or {}
    return {**(found.get("requests") or {}), **(found.get("limits") or {})}


def uid(pod: Raw) -> str:
    """Return the id of this very pod: one that takes its name later has another."""
    return str(pod["metadata"]["uid"])


def pod_id(pod: Raw) -> str:
    """Return namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def as_job(pod: Raw, stays: str = "") -> Job:
    """Return a pod as a job. Its user is its owner, e.g. ReplicaSet/web-5d9; ``stays``: why it does not end."""
    ref = _controller(pod)
    owner = f"{ref['kind']}/{ref['name']}" if ref else "no controller"
    return Job(pod_id(pod), owner, str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]), stays)


def owner_kind(pod: Raw) -> str:
    """Return the kind of the pod's controller, empty if it has none."""
    ref = _controller(pod)
    return str(ref["kind"]) if ref else ""


def ending(pod: Raw) -> bool:
    """Return whether the pod was told to end already."""
    return "deletionTimestamp" in pod["metadata"]


def overdue(pod: Raw, now: datetime) -> bool:
    """Return whether a pod should be gone by now: its deletionTimestamp, which includes the grace period, is over.

    ``now``: with its time zone (ObjectMeta in kubernetes/kubernetes staging/src/k8s.io/apimachinery, meta/v1/types.go).
    """
    return ending(pod) and datetime.fromisoformat(str(pod["metadata"]["deletionTimestamp"])) < now


def never_confirmed(silent: str) -> str:
    """Return why an overdue pod stays: only kubelet confirms an end. ``silent``: since when the node is silent."""
    return f"is ending, which nothing confirms: its node does not answer Kubernetes since {silent}"


def ways_out(jobs: Sequence[Job], nodes: Sequence[str]) -> str:
    """Return what ends pods of silent nodes; a plain `kubectl delete pod` does not. ``nodes``: their Node objects.

    kubernetes/website content/en/docs/tasks/run-application/force-delete-stateful-set-pod.md has these three ways.
    """
    force = "; ".join(f"{_delete(job)} --grace-period=0 --force" for job in jobs)
    named = " ".join(nodes)
    return (
        f"{', '.join(nodes)} does not answer Kubernetes, and only its kubelet confirms that pods ended. Power it on, "
        f"or mend its network: its pods end by themselves. If it is off and stays off: `kubectl delete node {named}`, "
        "then `rackready repair NODE --reason TEXT`, then run again. Only if the host is surely off, to keep its Node: "
        f"`{force}`. A pod that still runs would run twice."
    )


def ends_by(jobs: Sequence[Job]) -> str:
    """Return what ends pods whose nodes answer."""
    commands = "; ".join(_delete(job) for job in jobs)
    return f"wait and run again, give a budget that blocks more room, or end them with `{commands}`."


def _delete(job: Job) -> str:
    return f"kubectl delete pod --namespace {job.partition} {job.name}"


def must_stay(pod: Raw, *, local_data: bool) -> str:
    """Return why a pod is not evicted, empty if it may be. `kubectl drain` stops at the same two without its flags.

    ``local_data``: pods with an emptyDir on disk may be evicted.
    """
    if _controller(pod) is None:
        return "no controller makes it again, so it is not evicted"
    disks = [
        volume["name"]
        for volume in pod.get("spec", {}).get("volumes") or []
        if volume.get("emptyDir") is not None and volume["emptyDir"].get("medium") != "Memory"
    ]
    if disks and not local_data:
        return f"emptyDir {disks[0]} would be lost, and handover.evict_local_data is false"
    return ""


def eviction(pod: Raw) -> dict[str, Any]:
    """Return the request to evict this very pod: one that took its name meanwhile is not meant."""
    meta = pod["metadata"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }


def blocked(status: Raw) -> str:
    """Return what blocks an eviction that was refused with 429, empty if it is the server's rate limit.

    A budget's refusal has a cause DisruptionBudget with its name and numbers (registry/core/pod/storage/eviction.go).
    """
    causes = (status.get("details") or {}).get("causes") or []
    told = [str(cause.get("message", "")) for cause in causes if cause.get("reason") == "DisruptionBudget"]
    return " ".join(told)


def _controller(pod: Raw) -> Raw | None:
    refs: Sequence[Raw] = pod["metadata"].get("ownerReferences") or []
    return next((ref for ref in refs if ref.get("controller")), None)
