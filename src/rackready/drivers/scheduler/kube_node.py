"""Node objects of Kubernetes: reads their state, and makes the patches that hold and offer a node. Pure.

Ours are one taint, the labels and annotations that we applied, and a cordon that we set. The API server itself tells
whose a cordon is: it keeps the manager of every field (metadata.managedFields).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackready.drivers.scheduler.base import PREFIX, SchedulerNode
from rackready.model.kubernetes import CORDON_TAINT, DOMAIN, Taint

MANAGER = "rackready"
"""Our name as a manager of fields."""
REASON = f"{DOMAIN}/reason"
"""Annotation: why we hold the node."""
CERTIFICATE = f"{DOMAIN}/certificate"
"""Annotation: the certificate's whole SHA-256. A label holds 63 characters, one too few."""
UNCERTIFIED = f"{PREFIX} not certified yet"
"""The reason of a node that kubelet registered with our taint."""

_NO_NETWORK = "NetworkPluginNotReady"
"""Reason of a container runtime without a network plug-in (containerd internal/cri/server/status.go)."""
_DEVICES = ("nvidia.com/gpu", "nvidia.com/mig-")
"""Beginnings of the names of what the device plugin gives to pods."""

Raw = Mapping[str, Any]
"""A Node object as the API server sends it."""
Patch = list[dict[str, Any]]
"""A JSON patch (RFC 6902)."""


def read_node(raw: Raw, name: str, taint: Taint) -> SchedulerNode:
    """Return the state of a node. ``name``: ours, which may differ from that of the object."""
    why_down = not_ready(raw)
    held, cordoned = _place(raw, taint) is not None, is_cordoned(raw)
    ours = held or (cordoned and cordoned_by(raw) == MANAGER)
    reason, by = "", ""
    if ours:
        reason, by = _reason(raw), MANAGER
    elif cordoned:
        reason, by = "cordoned", cordoned_by(raw)
    elif why_down:
        reason = why_down
    usable = not (held or cordoned or why_down)
    return SchedulerNode(name, state_text(raw, taint), usable, held or cordoned, bool(why_down), reason, by)


def state_text(raw: Raw, taint: Taint) -> str:
    """Return the state as `kubectl get nodes` prints it, with who else cordoned the node, and the taints."""
    by = cordoned_by(raw)
    words = ["NotReady" if not_ready(raw) else "Ready"]
    words += [f"SchedulingDisabled{'' if by == MANAGER else f' by {by}'}"] if is_cordoned(raw) else []
    shown = [*(["ours"] if _place(raw, taint) is not None else []), *foreign_taints(raw, taint)]
    return ",".join(words) + (f"; taints: {', '.join(shown)}" if shown else "")


def foreign_taints(raw: Raw, taint: Taint) -> list[str]:
    """Return the taints of others as key=value:effect, without that of a cordon."""
    return [
        f"{item['key']}{'=' if item.get('value') else ''}{item.get('value', '')}:{item['effect']}"
        for item in _taints(raw)
        if not _is(item, taint) and item["key"] != CORDON_TAINT
    ]


def not_ready(raw: Raw) -> str:
    """Return why the node is not ready, empty if it is: its condition Ready, which kubelet and node controller set."""
    conditions = {item["type"]: item for item in raw.get("status", {}).get("conditions") or []}
    ready = conditions.get("Ready")
    if ready is None:
        return "kubelet has not reported yet"
    if ready["status"] == "True":
        return ""
    return ": ".join(filter(None, [ready.get("reason", "NotReady"), ready.get("message", "")]))


def where_to_look(raw: Raw, taint: str) -> str:
    """Return what to look at on a node that is not ready. kubelet quotes the runtime's reason for want of a network.

    kubernetes/kubernetes pkg/kubelet/nodestatus/setters.go, ReadyCondition; containerd internal/cri/server/status.go.
    """
    if _NO_NETWORK not in not_ready(raw):
        return "Look at kubelet on the node: `journalctl -u kubelet`."
    return (
        "Its network plug-in (CNI) is not ready: look at the plug-in's pods on the node, `kubectl get pods "
        f"--all-namespaces --field-selector spec.nodeName={raw['metadata']['name']}`. Its DaemonSet must tolerate our "
        f"taint {taint}. Then run again."
    )


def silent_since(raw: Raw) -> str:
    """Return since when kubelet is silent, empty if it reports: the node controller makes Ready Unknown then.

    Source: kubernetes/kubernetes pkg/controller/nodelifecycle/node_lifecycle_controller.go, tryUpdateNodeHealth.
    """
    found = [item for item in raw.get("status", {}).get("conditions") or [] if item["type"] == "Ready"]
    if not found or found[0]["status"] != "Unknown":
        return ""
    return str(found[0].get("lastTransitionTime") or "a while")


def lacks_devices(raw: Raw, gpus: int) -> str:
    """Return why pods cannot get all GPUs of the node by a device plugin, empty if they can.

    ``gpus``: as many as the platform has. Time slicing, MPS and MIG give a GPU more devices than one, or another name,
    so devices of all names are counted. kubelet counts those that the plugin calls unhealthy in capacity only
    (kubernetes pkg/kubelet/cm/devicemanager/manager.go, GetCapacity).
    """
    status = raw.get("status", {})
    all_of, left = (_devices(status.get(key) or {}) for key in ("capacity", "allocatable"))
    sick = [f"{left.get(name, 0)} of {count} {name}" for name, count in all_of.items() if left.get(name, 0) < count]
    if sick:
        return f"allocatable: {', '.join(sick)}"
    if sum(left.values()) >= max(gpus, 1):
        return ""
    return f"allocatable: {', '.join(f'{count} {name}' for name, count in left.items() if count) or 'none'}"


def _devices(resources: Mapping[str, Any]) -> dict[str, int]:
    """Return GPUs and parts of GPUs: nvidia.com/gpu, gpu.shared, mig-1g.10gb (NVIDIA/k8s-device-plugin, README.md)."""
    found = {name: str(count) for name, count in resources.items() if name.startswith(_DEVICES)}
    return {name: int(count) for name, count in sorted(found.items()) if count.isdigit()}


def is_cordoned(raw: Raw) -> bool:
    """Return whether the node is cordoned, by whomever."""
    return bool(raw.get("spec", {}).get("unschedulable"))


def cordoned_by(raw: Raw) -> str:
    """Return who cordoned the node: the manager of the field. Several are named together, none is "somebody"."""
    fields = raw["metadata"].get("managedFields") or []
    owners = {
        item.get("manager", "") for item in fields if "f:unschedulable" in item.get("fieldsV1", {}).get("f:spec", {})
    }
    return ", ".join(sorted(owners)) or "somebody"


def hold(raw: Raw, taint: Taint, reason: str, certificate_label: str | None) -> Patch:
    """Return the patch that taints and cordons a node and takes its certificate away, empty when nothing is missing.

    All of it happens at once, so no pod starts between two steps. A cordon of others stays theirs.
    """
    changes: Patch = []
    if _place(raw, taint) is None:
        wanted = {key: value for key, value in taint.model_dump().items() if value}
        whole = "spec" in raw and raw["spec"].get("taints")
        changes.append(
            {"op": "add", "path": "/spec/taints/-", "value": wanted}
            if whole
            else {"op": "add", "path": "/spec/taints", "value": [wanted]}
        )
    if not is_cordoned(raw):
        changes.append({"op": "add", "path": "/spec/unschedulable", "value": True})
    if _annotations(raw).get(REASON) != reason:
        changes += [] if "annotations" in raw["metadata"] else [_map("/metadata/annotations")]
        changes.append({"op": "add", "path": f"/metadata/annotations/{_escaped(REASON)}", "value": reason})
    if CERTIFICATE in _annotations(raw):
        changes.append({"op": "remove", "path": f"/metadata/annotations/{_escaped(CERTIFICATE)}"})
    if certificate_label and certificate_label in (raw["metadata"].get("labels") or {}):
        changes.append({"op": "remove", "path": f"/metadata/labels/{_escaped(certificate_label)}"})
    return [_unchanged(raw), *changes] if changes else []


def offer(raw: Raw, taint: Taint) -> Patch:
    """Return the patch that takes our taint, cordon and reason away, empty when there are none. Nothing else changes.

    ``test`` holds the patch to the very taint that was read: a list that changed meanwhile is refused, and read again.
    """
    changes: Patch = []
    place = _place(raw, taint)
    if place is not None:
        path = f"/spec/taints/{place}"
        changes += [{"op": "test", "path": path, "value": _taints(raw)[place]}, {"op": "remove", "path": path}]
    if is_cordoned(raw) and cordoned_by(raw) == MANAGER:
        changes.append({"op": "remove", "path": "/spec/unschedulable"})
    if REASON in _annotations(raw):
        changes.append({"op": "remove", "path": f"/metadata/annotations/{_escaped(REASON)}"})
    return [_unchanged(raw), *changes] if changes else []


def labelled(raw: Raw, labels: Mapping[str, str], certificate: str) -> dict[str, Any]:
    """Return the object that we apply: labels, and the certificate's digest.

    Its uid keeps the API server from making a node that is gone: an apply makes what does not exist.
    """
    annotations = {CERTIFICATE: certificate} if certificate else {}
    metadata = {"name": raw["metadata"]["name"], "uid": raw["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**metadata, "labels": dict(labels), "annotations": annotations},
    }


def _unchanged(raw: Raw) -> dict[str, Any]:
    """Return the operation that refuses a patch when the node was changed since it was read."""
    return {"op": "test", "path": "/metadata/resourceVersion", "value": raw["metadata"]["resourceVersion"]}


def _map(path: str) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": {}}


def _escaped(key: str) -> str:
    """Return a key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _annotations(raw: Raw) -> Mapping[str, str]:
    return raw["metadata"].get("annotations") or {}


def _reason(raw: Raw) -> str:
    found = _annotations(raw).get(REASON, UNCERTIFIED)
    return found if found.startswith(PREFIX) else f"{PREFIX} {found}"


def _taints(raw: Raw) -> list[Mapping[str, Any]]:
    return list(raw.get("spec", {}).get("taints") or [])


def _place(raw: Raw, taint: Taint) -> int | None:
    """Return the place of our taint in the list: key and effect tell taints apart, as for the API server."""
    return next((place for place, item in enumerate(_taints(raw)) if _is(item, taint)), None)


def _is(item: Mapping[str, Any], taint: Taint) -> bool:
    return bool(item["key"] == taint.key and item["effect"] == taint.effect)
