"""Kubernetes: a taint of ours holds a node; it goes from certified nodes. A node that is taken back is drained.

Nothing that others set is changed: taints and labels of other keys, cordons, values of other field managers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rackready.drivers.process import STOP, check_stop
from rackready.drivers.scheduler import kube_node, kube_pods
from rackready.drivers.scheduler.base import (
    Job,
    JobsUnknownError,
    NotOursError,
    SchedulerAdapter,
    SchedulerError,
    SchedulerNode,
    UnknownNodeError,
    reason_text,
)
from rackready.drivers.scheduler.kube_api import APPLY, JSON_PATCH, Answer, KubeApi, connect
from rackready.drivers.scheduler.kube_node import MANAGER
from rackready.model.kubernetes import Fact, KubernetesHandover
from rackready.paths import EnvPaths

_READY_S = 60.0
"""How long a node may take to become ready before it is offered. Judgement: kubelet takes some 10 s from its start.
Nodes that rackready lets join have as long as the join, all together: the network plug-in pulls its image first. A node
whose turn comes at the end of that, or after it, still has this time of its own."""
_BIND_S = 5.0
"""How long after a node had no pods it is asked again, s, before it counts as empty. The scheduler decides by a copy of
the node that may be older than our taint, and binds afterwards; a binding checks no taint. Judgement: that takes less
than a second, except for a pod whose volume is made first."""
_LOOK_S = 2.0
"""Pause between two looks at a node's devices, s. kubelet tells them every 10 s (--node-status-update-frequency)."""
_PLUGIN = "app=nvidia-device-plugin-daemonset"
"""Label of the plugin's pods (NVIDIA/gpu-operator assets/state-device-plugin/0500_daemonset.yaml). A GPU that had a
critical Xid stays unhealthy as long as they run (NVIDIA/k8s-device-plugin internal/plugin/server.go; #1014)."""
_TRIES = 20
"""Times that a patch is made anew because the node changed meanwhile. Each takes a round trip. Our judgement."""
_NOT_FOUND, _CONFLICT, _INVALID, _TOO_MANY = 404, 409, 422, 429
_SHORT = 40
"""Hexadecimal digits of a certificate's SHA-256 in its label, which holds 63 characters at most."""


def connect_kubernetes(handover: KubernetesHandover, _paths: EnvPaths) -> KubernetesAdapter:
    """Return the adapter of a cluster. Raises SchedulerError when the API server cannot be reached."""
    return _connected(handover, writes=True)


def read_kubernetes(handover: KubernetesHandover, _paths: EnvPaths) -> KubernetesAdapter:
    """Return the same without writing anything, not even a renewed token to the kubeconfig. Raises SchedulerError."""
    return _connected(handover, writes=False)


def _connected(handover: KubernetesHandover, *, writes: bool) -> KubernetesAdapter:
    return KubernetesAdapter(connect(handover, writes=writes), handover)


class KubernetesAdapter(SchedulerAdapter):
    """One cluster.

    ``patience_s``: seconds for a node to become ready before it is offered; ``bind_s``: seconds until a node without
    pods is looked at again.
    """

    beside_others = True

    def __init__(
        self, api: KubeApi, handover: KubernetesHandover, *, patience_s: float = _READY_S, bind_s: float = _BIND_S
    ) -> None:
        self._api, self._handover, self._patience_s, self._bind_s = api, handover, patience_s, bind_s
        self._taint = handover.held
        self._first: dict[str, set[str]] = {}
        """Node -> uids of the pods that come back, of the first look at it: these are evicted, and waited for."""
        self._beside: dict[str, list[Job]] = {}
        self._silent: dict[str, str] = {}
        """Pod -> Node object, of pods whose end no kubelet confirms."""
        self._gpus: dict[str, int] = {}
        self._ready_by: float | None = None
        """When the wait for nodes that have just joined ends, of all nodes together, as for devices."""
        self._devices_by: float | None = None
        """When the wait for devices ends, of all nodes together: they get them at the same time."""

    def show(self, node: str) -> SchedulerNode:
        """Return a node's state. Raises UnknownNodeError when the cluster has no such Node object."""
        return kube_node.read_node(self._raw(node), node, self._taint)

    def drain(self, node: str, reason: str) -> bool:
        """Taint and cordon a node with our reason, in one step. Pods go on; ``vacate`` evicts them.

        A cordon that somebody else set stays theirs; our taint is set all the same.
        """
        self._first.pop(node, None)
        label, wanted = self._handover.label_key("certificate"), reason_text(reason)
        return self._patched(node, lambda raw: kube_node.hold(raw, self._taint, wanted, label))

    def label(self, node: str, facts: Mapping[Fact, str], certificate: str) -> bool:
        """Apply our labels and the certificate's digest, and let go of labels that we applied before.

        Raises SchedulerError when another field manager set one of them to another value: it is not overwritten.
        """
        before = self._raw(node)
        self._gpus[node] = int(facts.get("gpus", "0"))
        values: dict[Fact, str] = dict(facts)
        if certificate:
            values["certificate"] = certificate[:_SHORT]
        keys = {fact: self._handover.label_key(fact) for fact in values}
        labels = {key: values[fact] for fact, key in keys.items() if key is not None}
        body = kube_node.labelled(before, labels, certificate)
        answer = self._api.patch_node(self._named(node), body, APPLY, MANAGER)
        if not answer.ok:
            raise self._label_refused(node, answer)
        return bool(answer.body["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"])

    def release(self, node: str) -> bool:
        """Take our taint and cordon away. Raises NotOursError when somebody else cordoned the node.

        Raises SchedulerError when it is not ready, or cannot give pods the GPUs that ``label`` named.
        """
        raw = self._ready(node)
        by = kube_node.cordoned_by(raw)
        if kube_node.is_cordoned(raw) and by != MANAGER:
            held = kube_node.read_node(raw, node, self._taint).ours
            raise NotOursError(
                node,
                f"cordoned in Kubernetes by {by}",
                expected=f"no cordon, or one of field manager {MANAGER}",
                actual="unschedulable: true. rackready never undoes somebody else's cordon: when it is settled, "
                f"`kubectl uncordon {self._named(node)}`"
                f"{', then run again: our taint stays until then' if held else ''}",
            )
        self._with_devices(node)
        return self._patched(node, lambda now: kube_node.offer(now, self._taint))

    def jobs(self, node: str) -> list[Job]:
        """Return the pods that a drain waits for, on a node that we hold without those that come back for ever.

        Raises JobsUnknownError and SchedulerError.
        """
        pods = self._pods(node)
        beside = [pod for pod in pods if self._comes_back(pod)]
        if beside and kube_node.read_node(self._raw(node), node, self._taint).ours:
            pods = [pod for pod in pods if pod not in beside]
        return [kube_pods.as_job(pod) for pod in pods]

    def at_work(self, node: str) -> list[Job]:
        """Return the pods that have GPUs or other devices of the node. Others go on beside a measurement."""
        return [kube_pods.as_job(pod) for pod in kube_pods.using_devices(self._all_pods(node))]

    def vacate(self, nodes: Sequence[str]) -> Iterator[tuple[str, list[Job] | SchedulerError]]:
        """Evict the pods of nodes that we hold, and yield those that are left, each with the cause.

        PodDisruptionBudgets decide: a refused pod is asked for again by the next call. A node is empty when it has no
        pods a second time, too; all nodes wait together for that. Of the pods that come back only those of the first
        look are evicted and waited for, as `kubectl drain` waits for the pods that it listed; others are ``beside``.
        """
        empty = []
        for node in nodes:
            check_stop()
            if found := self._left(node):
                yield node, found
            else:
                empty.append(node)
        if empty:
            STOP.wait(self._bind_s)
        for node in empty:
            check_stop()
            yield node, self._left(node)

    def beside(self, node: str) -> list[Job]:
        """Return the pods that came back to a node, tolerating our taint and the cordon."""
        return self._beside.get(node, [])

    def how_to_end(self, jobs: Sequence[Job]) -> str:
        """Return the sentence that says what to do about pods that do not end."""
        return self.stuck(jobs) or kube_pods.ends_by(jobs)

    def stuck(self, jobs: Sequence[Job]) -> str:
        """Return what to do about those pods of the last look whose node is silent, empty for none."""
        found = [job for job in jobs if job.id in self._silent]
        return kube_pods.ways_out(found, sorted({self._silent[job.id] for job in found})) if found else ""

    def close(self) -> None:
        """Close connections."""
        self._api.close()

    def _named(self, node: str) -> str:
        return self._handover.node_name(node)

    def _raw(self, node: str) -> dict[str, Any]:
        name = self._named(node)
        answer = self._api.node(name)
        if answer.status == _NOT_FOUND:
            raise UnknownNodeError(
                node,
                f"unknown to {self._api.where}",
                expected=f"a Node {name}",
                actual=answer.told,
                next_step=f"Let it join with `--register-with-taints={self._handover.taint}`, then run again."
                if self._handover.join is None
                else "Phase handover lets it join, once it is certified.",
            )
        if not answer.ok:
            raise self._refused(node, "read the node", answer)
        return answer.body

    def _patched(self, node: str, make: Callable[[kube_node.Raw], kube_node.Patch]) -> bool:
        """Send the patch that ``make`` returns for the node as it is until none is needed. Return whether one was."""
        answer = None
        for _ in range(_TRIES):
            patch = make(self._raw(node))
            if not patch:
                return answer is not None
            answer = self._api.patch_node(self._named(node), patch, JSON_PATCH, MANAGER)
            if answer.ok:
                return True
            if answer.status not in {_CONFLICT, _INVALID}:
                break
            check_stop()
        raise self._refused(node, "change taint and cordon", answer)

    def _ready(self, node: str) -> dict[str, Any]:
        """Wait until the node is ready, and return it. Raises SchedulerError when it does not become ready."""
        begun = time.monotonic()
        while why := kube_node.not_ready(raw := self._raw(node)):
            limit_s, deadline = self._ready_limit(raw, begun)
            if time.monotonic() > deadline:
                raise SchedulerError(
                    node,
                    "offered in Kubernetes",
                    expected=f"Ready within {limit_s:.0f} s",
                    actual=why,
                    next_step=f"It stays held. {kube_node.where_to_look(raw, self._handover.taint)}",
                )
            STOP.wait(1.0)
            check_stop()
        return raw

    def _ready_limit(self, raw: kube_node.Raw, begun: float) -> tuple[float, float]:
        """Return how long a node may take to become ready, s, and when that ends. ``begun``: of this node's wait."""
        join = self._handover.join
        if join is None or join.timeout_s <= self._patience_s or kube_node.silent_since(raw):
            return self._patience_s, begun + self._patience_s
        self._ready_by = begun + join.timeout_s if self._ready_by is None else self._ready_by
        own = begun + self._patience_s
        return (self._patience_s, own) if own > self._ready_by else (join.timeout_s, self._ready_by)

    def _with_devices(self, node: str) -> None:
        """Wait until pods can get all GPUs of the node. Raises SchedulerError when they cannot."""
        limit_s, gpus = self._handover.devices_wait_s, self._gpus.get(node, 0)
        if limit_s is None or self._handover.devices != "device-plugin":
            return
        self._devices_by = time.monotonic() + limit_s if self._devices_by is None else self._devices_by
        while why := kube_node.lacks_devices(self._raw(node), gpus):
            if time.monotonic() > self._devices_by:
                raise self._without_devices(node, gpus, limit_s, why)
            STOP.wait(_LOOK_S)
            check_stop()

    def _without_devices(self, node: str, gpus: int, limit_s: int, why: str) -> SchedulerError:
        """Return the error of a node without all its devices. Only a restart of the plugin's pod makes one healthy."""
        here = f"--field-selector spec.nodeName={self._named(node)}"
        return SchedulerError(
            node,
            "offered in Kubernetes",
            expected=f"{gpus or 'all'} GPUs that pods can get, within {limit_s} s",
            actual=why,
            next_step="It stays held. Pods of the device plugin must tolerate our taint "
            f"{self._handover.taint}: `rackready export kubernetes` writes the values of the GPU Operator with it. A "
            "GPU that the plugin called unhealthy stays so until its pod restarts: "
            f"`kubectl delete pod --namespace gpu-operator --selector {_PLUGIN} {here}`, then run again. No device "
            "plugin yet? Install it, or set handover.devices_wait_s: null to offer nodes without.",
        )

    def _pods(self, node: str) -> list[kube_pods.Raw]:
        return kube_pods.running(self._all_pods(node))

    def _all_pods(self, node: str) -> list[kube_pods.Raw]:
        answer = self._api.pods_on(self._named(node))
        if not answer.ok:
            refused = self._refused(node, "list its pods", answer)
            raise JobsUnknownError.of(refused.messages)
        pods = answer.body.get("items")
        if not isinstance(pods, list):
            raise JobsUnknownError(
                node,
                f"list its pods, {self._api.where}",
                expected="a list `items`",
                actual=f"{answer.status} without one",
                next_step="Its pods are not known. Look at what answers at that address, then run again.",
            )
        return pods

    def _left(self, node: str) -> list[Job] | SchedulerError:
        try:
            return self._vacated(node)
        except SchedulerError as error:
            return error

    def _vacated(self, node: str) -> list[Job]:
        held, pods = self._held(node), self._pods(node)
        if not held:
            return [kube_pods.as_job(pod) for pod in pods]
        first = self._first_look(node, pods)
        beside = [pod for pod in pods if self._comes_back(pod) and kube_pods.uid(pod) not in first]
        self._beside[node] = [kube_pods.as_job(pod) for pod in beside]
        pods = [pod for pod in pods if pod not in beside]
        stuck = self._stuck(node, pods)
        end = self._evicted if self._handover.evict else lambda _pod: ""
        left = [(pod, stuck.get(kube_pods.uid(pod)) or end(pod)) for pod in pods]
        return [kube_pods.as_job(pod, why) for pod, why in left if why is not None]

    def _stuck(self, node: str, pods: Sequence[kube_pods.Raw]) -> dict[str, str]:
        """Return uid -> why a pod stays, of those that should be gone, on a node whose kubelet is silent."""
        late = [pod for pod in pods if kube_pods.overdue(pod, datetime.now(UTC))]
        since = kube_node.silent_since(self._raw(node)) if late else ""
        self._silent = {pod: name for pod, name in self._silent.items() if name != self._named(node)}
        self._silent |= {kube_pods.pod_id(pod): self._named(node) for pod in late if since}
        return {kube_pods.uid(pod): kube_pods.never_confirmed(since) for pod in late if since}

    def _first_look(self, node: str, pods: Sequence[kube_pods.Raw]) -> set[str]:
        """Return the pods to evict though they come back: none where nothing is evicted, since they never end."""
        if not self._handover.evict:
            return set()
        return self._first.setdefault(node, {kube_pods.uid(pod) for pod in pods if self._comes_back(pod)})

    def _comes_back(self, pod: kube_pods.Raw) -> bool:
        return kube_pods.comes_back(pod, self._taint, local_data=self._handover.evict_local_data)

    def _held(self, node: str) -> bool:
        """Return whether we hold a node; False for one that the cluster does not have. Raises SchedulerError.

        A node that others offer again meanwhile is not empty for long, so it is an error also while it has no pods.
        """
        try:
            now = self.show(node)
        except UnknownNodeError:
            return False
        if now.drained and now.ours:
            return True
        raise SchedulerError(
            node,
            "evict its pods",
            expected=f"held by our taint {self._handover.taint}",
            actual=now.state,
            next_step="No pod was evicted. Somebody changed the node meanwhile; run again.",
        )

    def _evicted(self, pod: kube_pods.Raw) -> str | None:
        """Evict a pod, and return why it is still there; None if it is gone already."""
        if kube_pods.ending(pod):
            return "is ending"
        if why := kube_pods.must_stay(pod, local_data=self._handover.evict_local_data):
            return why
        meta = pod["metadata"]
        answer = self._api.evict(meta["namespace"], meta["name"], kube_pods.eviction(pod))
        if answer.ok:
            return "is ending"
        if answer.status in {_NOT_FOUND, _CONFLICT}:
            return None  # gone, or its name is another pod's now
        if answer.status in {_TOO_MANY, 500}:
            return kube_pods.blocked(answer.body) or answer.told
        # Of a webhook, of a namespace that is being deleted, of rights: it says nothing about the other pods.
        return f"its eviction was refused: {answer.status}: {answer.told}"

    def _label_refused(self, node: str, answer: Answer) -> SchedulerError:
        """Return the error of an apply. A conflict's causes name each field with its manager."""
        causes = (answer.body.get("details") or {}).get("causes") or []
        told = "; ".join(f"{cause.get('field')}: {cause.get('message')}" for cause in causes)
        if answer.status != _CONFLICT or not told:
            return self._refused(node, "apply its labels", answer)
        return SchedulerError(
            node,
            "labels in Kubernetes",
            expected=f"values that only field manager {MANAGER} sets",
            actual=told,
            next_step="Nothing was overwritten, and this run does not offer the node. Let the other manager give the "
            "label up, or name another key in handover.labels (null: no label).",
        )

    def _refused(self, node: str, what: str, answer: Answer | None) -> SchedulerError:
        told = "the node changed between every read and patch" if answer is None else f"{answer.status}: {answer.told}"
        return SchedulerError(
            node,
            f"{what}, {self._api.where}",
            expected="done",
            actual=told,
            next_step="Nothing was changed by this request. See docs/howto/kubernetes.md.",
        )
