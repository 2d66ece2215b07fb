"""Files for the Network Operator of nodes whose network drivers are installed: RDMA devices by rail."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rackready.design.handover_of import served
from rackready.design.wiring import cables
from rackready.model.exported import ExportedFile, Sourced
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.site import Site
from rackready.profiles import loader

_NO = "Mellanox/network-operator v26.1.2"
_PLUGIN = "Mellanox/k8s-rdma-shared-dev-plugin"
_VENDOR = "15b3"
"""PCI vendor of NVIDIA's network cards: network-operator, example/crs."""
_USERS = 63
"""Pods that may share a device: the value of NVIDIA's examples (network-operator, example/crs)."""
_REPOSITORY, _IMAGE = "nvcr.io/nvidia/mellanox", "k8s-rdma-shared-dev-plugin"


def network_files(site: Site, handover: KubernetesHandover, toleration: Mapping[str, str]) -> list[ExportedFile]:
    """Return the values of the chart and the NicClusterPolicy; none for a site without a rail that pods could use."""
    return [_values(handover), _policy(site, handover, toleration)] if _devices(site)[0] else []


def network_notes(site: Site) -> list[str]:
    """Return what the files lack: interfaces of platforms whose NICs have no published name (Ethernet)."""
    if site.fabric.kind == "infiniband":
        return []
    cabled = _cabled(site)
    file = "nic-cluster-policy.yaml lacks them" if _interfaces(site) else "there is no file for the Network Operator"
    names = sorted({name for name, rail in cabled if not _named(name, rail)})
    return [f"{name}: the interface names of its compute NICs are not published, so {file}." for name in names]


def _cabled(site: Site) -> set[tuple[str, int]]:
    """Return server model and rail of each cable of the cluster's nodes."""
    ours = {node.name for node in served(site)}
    return {(site.node(node).platform, rail) for node, rail in cables(site) if node in ours}


def _named(platform: str, rail: int) -> set[str]:
    return {nic.netdev for nic in loader.platform(platform).nics if nic.rail == rail and nic.netdev}


def _interfaces(site: Site) -> dict[int, list[str]]:
    """Return cabled rail -> names of its interfaces on the servers of the site."""
    found: dict[int, set[str]] = {}
    for platform, rail in _cabled(site):
        found.setdefault(rail, set()).update(_named(platform, rail))
    return {rail: sorted(names) for rail, names in sorted(found.items()) if names}


def _values(handover: KubernetesHandover) -> ExportedFile:
    why = (
        "one NFD for the cluster: that of gpu-operator-values.yaml also labels network cards (its deviceClassWhitelist "
        "has 02)"
    )
    purpose = (
        f"Values of the Network Operator's chart, release {handover.network_operator}.",
        "nic-cluster-policy.yaml says what it runs.",
    )
    off = Sourced(("nfd", "enabled"), value=False, source=why)
    return ExportedFile("network-operator-values.yaml", purpose, ((off,),))


def _policy(site: Site, handover: KubernetesHandover, toleration: Mapping[str, str]) -> ExportedFile:
    devices, why = _devices(site)
    plugin = ("spec", "rdmaSharedDevicePlugin")
    release = handover.network_operator
    values = (
        Sourced(("apiVersion",), "mellanox.com/v1alpha1", ""),
        Sourced(("kind",), "NicClusterPolicy", ""),
        Sourced(("metadata", "name"), "nic-cluster-policy", f"the operator takes this name only ({_NO}, controllers)"),
        Sourced((*plugin, "image"), _IMAGE, f"{_NO}, example/crs"),
        Sourced((*plugin, "repository"), _REPOSITORY, f"{_NO}, example/crs"),
        Sourced((*plugin, "version"), f"network-operator-v{release}", f"handover.network_operator: {release}"),
        Sourced((*plugin, "config"), _config(devices), why),
        Sourced(
            ("spec", "tolerations"),
            [dict(toleration)],
            f"handover.taint: {handover.taint}. The operator adds nvidia.com/gpu itself ({_NO}, manifests)",
        ),
    )
    purpose = (
        f"No ofedDriver: install has put the drivers on the nodes (software.nic_stack: {site.software.nic_stack}).",
        "No secondaryNetwork, no nvIpam: the rails' addresses are the nodes', so pods that use RDMA have hostNetwork.",
    )
    return ExportedFile("nic-cluster-policy.yaml", purpose, (values,))


def _devices(site: Site) -> tuple[dict[str, dict[str, list[str]]], str]:
    """Return resource -> what selects its devices, and the origin."""
    if not cables(site):
        return {}, ""
    if site.fabric.kind == "infiniband":
        why = f"fabric.kind: infiniband. {_PLUGIN} finds such ports by their interface: load ib_ipoib on the nodes"
        return {"ib": {"linkTypes": ["infiniband"]}}, f"{why}. Pods ask for rdma/ib"
    rails = _interfaces(site)
    if not rails:
        return {}, ""
    names = [name for interfaces in rails.values() for name in interfaces]
    why = f"interfaces of the cabled rails (nics of the platform profiles; {_PLUGIN}, README.md)"
    if len(names) == len(set(names)):
        found = {f"rail{rail}": {"ifNames": interfaces} for rail, interfaces in rails.items()}
        return found, f"{why}. Pods ask for rdma/rail1 and so on"
    why = f"{why}. One resource, because a name is another rail on another platform"
    return {"rails": {"ifNames": sorted(set(names))}}, f"{why}. Pods ask for rdma/rails"


def _config(devices: Mapping[str, Mapping[str, list[str]]]) -> str:
    """Return the plug-in's configuration, one resource on each line."""
    lines = [
        json.dumps({"resourceName": name, "rdmaHcaMax": _USERS, "selectors": {"vendors": [_VENDOR], **found}})
        for name, found in devices.items()
    ]
    return '{"configList": [\n  ' + ",\n  ".join(lines) + "\n]}\n"
