"""Handover to Kubernetes: the cluster, the taint that holds nodes, names and labels of its Node objects."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rackready.model.base import Model, Name, PathLine, Word
from rackready.model.kube_join import KubernetesJoin

DOMAIN = "rackready.io"
"""Prefix of our own labels, annotations and taint."""

TAINT_KEY = f"{DOMAIN}/held"
"""Key of the taint that holds a node, unless the site names another."""

LOG_BEGINS = "# rackready: the log begins"
"""First line of a measuring job's log. kubelet renames the log of a running container that is over containerLogMaxSize,
10Mi by default, and its API has the newest file only (kubernetes pkg/kubelet/logs/container_log_manager.go, #59902)."""

CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""What the node controller sets on a cordoned node (kubernetes.io/docs/reference/labels-annotations-taints)."""

Fact = Literal["site", "rack", "unit", "leafs", "platform", "gpu", "gpus", "rails", "clique", "certificate"]
"""A fact about a node that becomes a label. Their meaning is in docs/howto/kubernetes.md."""

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_LONGEST_PREFIX = 253
_KEY = rf"({_SUBDOMAIN}/)?{_NAME}"
"""Keys and values as in kubernetes.io/docs/concepts/overview/working-with-objects/labels (syntax and character set)."""
_TAINT = re.compile(rf"^(?P<key>{_KEY})(=(?P<value>{_NAME})?)?:(?P<effect>[A-Za-z]+)$")


def _label_key(key: str) -> str:
    """Return the key of a label. Raises ValueError for one that the API server would refuse."""
    if re.fullmatch(_KEY, key) is None or len(key.rpartition("/")[0]) > _LONGEST_PREFIX:
        message = "no key of a label - Expected: one such as example.com/rack"
        raise ValueError(message)
    return key


def _node_name(name: str) -> str:
    """Return the name of a Node object. Raises ValueError for one that the API server would refuse."""
    if re.fullmatch(_SUBDOMAIN, name) is None or len(name) > _LONGEST_PREFIX:
        message = "no name of a node in Kubernetes - Expected: lower-case letters, digits, - and . (RFC 1123)"
        raise ValueError(message)
    return name


def _namespace(name: str) -> str:
    """Return the name of a namespace. Raises ValueError for one that the API server would refuse."""
    if re.fullmatch(_DNS_LABEL, name) is None:
        message = "no name of a namespace - Expected: lower-case letters, digits and - (RFC 1123)"
        raise ValueError(message)
    return name


def _suffix(text: str) -> str:
    """Return a suffix of names. Raises ValueError for one that is neither empty nor a dot and a domain."""
    if text and re.fullmatch(rf"\.{_SUBDOMAIN}", text) is None:
        message = "no suffix of names - Expected: a dot and a domain, e.g. .gpu.example.com"
        raise ValueError(message)
    return text


LabelKey = Annotated[str, AfterValidator(_label_key)]
"""Key of a label, e.g. topology.example.com/rack."""

NodeName = Annotated[str, AfterValidator(_node_name)]
"""Name of a Node object: an RFC 1123 subdomain."""


def _holding(text: str) -> str:
    """Return a taint as kubelet takes it. Raises ValueError for one that does not hold a node, or that ends pods."""
    found = _TAINT.match(text)
    if found is None:
        message = f"no taint - Expected: one such as {TAINT_KEY}:NoSchedule, as for kubelet --register-with-taints"
        raise ValueError(message)
    if found["effect"] == "NoExecute":
        message = "NoExecute ends pods without asking a PodDisruptionBudget - Expected: effect NoSchedule"
        raise ValueError(message)
    if found["effect"] != "NoSchedule":
        message = f"pods may still start with {found['effect']} - Expected: effect NoSchedule"
        raise ValueError(message)
    return text


class Taint(Model):
    """A taint, in the terms of the API."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class KubernetesHandover(Model):
    """Handover to an existing Kubernetes cluster: a taint holds nodes until they are certified."""

    kind: Literal["kubernetes"]
    kubeconfig: PathLine = Field(
        description="kubeconfig on the controller, with the address of the API server and a login; mode 0600"
    )
    context: Word = Field(description="context of that file; `kubectl config use-context` does not change it here")
    taint: Annotated[str, AfterValidator(_holding)] = Field(
        f"{TAINT_KEY}:NoSchedule",
        description="taint that holds a node, as for kubelet --register-with-taints; effect NoSchedule",
    )
    node_suffix: Annotated[str, AfterValidator(_suffix)] = Field(
        "", description="what follows the node's name in Kubernetes, e.g. .gpu.example.com"
    )
    node_names: dict[Name, NodeName] = Field(
        default_factory=dict, description="node -> its name in Kubernetes, for nodes that have another one"
    )
    labels: dict[Fact, LabelKey | None] = Field(
        default_factory=dict,
        description=f"fact -> key of its label; default: {DOMAIN}/<fact>; null: no label",
    )
    join: KubernetesJoin | None = Field(
        None, description="how a certified node that the cluster does not know joins it; absent: others join it"
    )
    namespace: Annotated[str, AfterValidator(_namespace)] = Field(
        "rackready", description="namespace of the jobs that measure nodes (gates.launcher: mpijob)"
    )
    devices: Literal["device-plugin", "dra"] = Field(
        "device-plugin",
        description="how pods get GPUs: the device plugin of the GPU Operator; or dra, NVIDIA's DRA driver, for "
        "Kubernetes 1.34 or newer. Both on one node are refused by its chart",
    )
    devices_wait_s: int | None = Field(
        600,
        ge=0,
        le=7200,
        description="longest wait until Kubernetes can give pods all GPUs of the nodes to offer, s; with devices: "
        "device-plugin. null: nodes are offered without, e.g. where you install the GPU Operator later",
    )
    network_operator: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+(-[a-z0-9.]+)?$")] = Field(
        "26.1.2", description="release of the Network Operator, whose images NicClusterPolicy names"
    )
    evict: bool = Field(
        default=True,
        description="pods of a node that is taken back are evicted, as far as PodDisruptionBudgets allow it; false: "
        "rackready waits until they end",
    )
    evict_local_data: bool = Field(
        default=False,
        description="also evict pods with an emptyDir on disk, whose content is lost; false: rackready waits until "
        "they end",
    )
    drain_wait_s: int = Field(
        3600, ge=0, description="longest wait for the pods of a node in production to end before a change, s"
    )
    api_wait_s: int = Field(
        120, ge=0, le=3600, description="longest time that an API server without an answer is asked again, s"
    )

    @property
    def held(self) -> Taint:
        """Return the taint that holds a node."""
        found = _TAINT.match(self.taint)
        return Taint(key=found["key"], value=found["value"] or "") if found else Taint(key=self.taint)

    @model_validator(mode="after")
    def _own_keys(self) -> KubernetesHandover:
        seen: dict[str, str] = {}
        for fact, key in self.labels.items():
            before = seen.setdefault(key, fact) if key is not None else fact
            if before != fact:
                message = f"labels {before} and {fact} have the key {key} - Expected: a key for each"
                raise ValueError(message)
        return self

    def node_name(self, node: str) -> str:
        """Return the name of a node in Kubernetes."""
        return self.node_names.get(node, f"{node}{self.node_suffix}")

    def label_key(self, fact: Fact) -> str | None:
        """Return the key of a fact's label, None if the site wants none."""
        return self.labels.get(fact, f"{DOMAIN}/{fact}")
