"""Kueue's objects for a site: its topology by our labels, and a flavor for each kind of server.

Source: kubernetes-sigs/kueue v0.19.2, apis/kueue/v1beta2. No ClusterQueue: quotas are a decision of the site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rackready.design.handover_of import served
from rackready.design.node_labels import label_value
from rackready.model.exported import ExportedFile, Sourced
from rackready.model.kubernetes import Fact, KubernetesHandover
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader

_API = "kueue.x-k8s.io/v1beta2"
_HOST = "kubernetes.io/hostname"
_LEVELS: tuple[Fact, ...] = ("unit", "rack")
_LONGEST = 63


def queue_file(site: Site, handover: KubernetesHandover, gpu_toleration: Mapping[str, str]) -> ExportedFile:
    """Return the Topology and the ResourceFlavors. Raises RackreadyError if no label tells kinds of servers apart."""
    name = object_name(site.name)
    kinds = sorted({node.platform for node in served(site)})
    flavors = [_flavor(site, handover, platform, name, gpu_toleration) for platform in kinds]
    purpose = (
        "Kueue: topology and flavors by the labels that handover sets. Add ClusterQueues with your quotas.",
        f"No flavor tolerates {handover.taint}: it keeps jobs off nodes that are not certified.",
    )
    return ExportedFile("kueue.yaml", purpose, (_topology(handover, name), *flavors))


def object_name(text: str) -> str:
    """Return a name that Kubernetes takes for an object (RFC 1123)."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:_LONGEST].rstrip("-")


def _topology(handover: KubernetesHandover, name: str) -> tuple[Sourced, ...]:
    keys = [key for fact in _LEVELS if (key := handover.label_key(fact)) is not None]
    why = (
        "labels that handover sets (handover.labels). Kueue heeds taints only where the host is the lowest level "
        "(kueue v0.19.2, tas_flavor_snapshot.go)"
    )
    return (
        Sourced(("apiVersion",), _API, ""),
        Sourced(("kind",), "Topology", ""),
        Sourced(("metadata", "name"), name, "name of the site"),
        Sourced(("spec", "levels"), [{"nodeLabel": key} for key in (*keys, _HOST)], why),
    )


def _flavor(
    site: Site, handover: KubernetesHandover, platform: str, topology: str, gpu_toleration: Mapping[str, str]
) -> tuple[Sourced, ...]:
    facts: dict[Fact, str] = {"platform": platform, "gpu": loader.platform(platform).gpu}
    labels = {key: label_value(value) for fact, value in facts.items() if (key := handover.label_key(fact)) is not None}
    if not labels:
        raise RackreadyError(
            f"handover.labels of site {site.name}",
            expected="a label for platform or gpu: a flavor of Kueue selects nodes by it",
            actual="null for both",
            next_step="Give one of them a key.",
        )
    return (
        Sourced(("apiVersion",), _API, ""),
        Sourced(("kind",), "ResourceFlavor", ""),
        Sourced(("metadata", "name"), object_name(platform), f"platform {platform}"),
        Sourced(("spec", "nodeLabels"), labels, "labels that handover sets on nodes of this platform"),
        Sourced(("spec", "topologyName"), topology, "the Topology above"),
        Sourced(
            ("spec", "tolerations"),
            [dict(gpu_toleration)],
            "for clusters that taint GPU nodes with nvidia.com/gpu, as the GPU Operator's chart expects",
        ),
    )
