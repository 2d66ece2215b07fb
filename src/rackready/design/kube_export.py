"""Values for the operators of a Kubernetes site: what rackready has installed, and which taint they must tolerate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackready.design.facts import driver_set
from rackready.design.handover_of import served
from rackready.design.kube_network import network_files, network_notes
from rackready.design.kube_queue import queue_file
from rackready.design.software_of import SoftwareView, software_views
from rackready.model.exported import Export, ExportedFile, Sourced
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.site import Site
from rackready.profiles import loader

_GO = "NVIDIA/gpu-operator v26.7.0"
_UP = "GPU Operator documentation, Upgrading, DCGM and DCGM Exporter Versions"
_DR = "dra-driver-nvidia-gpu v0.4.0"
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""The toleration that the charts have by default. A list in values replaces theirs, so it must be in ours."""
_CONTROL_PLANE = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Equal",
    "value": "",
    "effect": "NoSchedule",
}
_ENGINE = "localhost:5555"
"""Where nv-hostengine of unit nvidia-dcgm listens by default (DCGM user guide, nv-hostengine)."""


def kube_export(site: Site, handover: KubernetesHandover, mig_layouts: Mapping[str, str]) -> Export:
    """Return every file for the operators of a site. ``mig_layouts``: file of variables -> MIG layout it names."""
    platforms = sorted({node.platform for node in served(site)})
    imex = [name for name in platforms if loader.platform(name).runs_imex]
    files = [_gpu_operator(site, handover, mig_layouts)]
    if handover.devices == "dra":
        files.append(_dra_driver(handover, imex))
    files += network_files(site, handover, ours(handover))
    files.append(queue_file(site, handover, GPU_TAINT))
    return Export(tuple(files), tuple(_notes(site, handover, imex)))


def ours(handover: KubernetesHandover) -> dict[str, str]:
    """Return the toleration of our taint, for programs that a node needs before it is certified."""
    held = handover.held
    if held.value:
        return {"key": held.key, "operator": "Equal", "value": held.value, "effect": held.effect}
    return {"key": held.key, "operator": "Exists", "effect": held.effect}


def _software(site: Site) -> list[SoftwareView]:
    """Return the version sets of the cluster's nodes."""
    ours = {node.name for node in served(site)}
    return [view for view in software_views(site) if ours & set(view.nodes)]


def _gpu_operator(site: Site, handover: KubernetesHandover, mig_layouts: Mapping[str, str]) -> ExportedFile:
    drivers = _all(driver_set(view.site).version for view in _software(site))
    toolkits = _all(loader.software(view.site.software.set).container_toolkit for view in _software(site))
    driver = f"install has put driver {drivers} on the nodes (software)"
    toolkit = f"install has put the container toolkit {toolkits} on the nodes (software)"
    plugin = handover.devices == "device-plugin"
    replaced = f"The list replaces the chart's, so its entries are repeated ({_GO}, values.yaml)"
    held = f"handover.taint: {handover.taint}. A node must be complete before it is certified, while it is held"
    values = (
        Sourced(("driver", "enabled"), value=False, source=driver),
        Sourced(("toolkit", "enabled"), value=False, source=toolkit),
        Sourced(("cdi", "enabled"), value=True, source="install has turned CDI on in containerd"),
        Sourced(("devicePlugin", "enabled"), plugin, f"handover.devices: {handover.devices}"),
        Sourced(("daemonsets", "tolerations"), [GPU_TAINT, ours(handover)], f"{held}. {replaced}"),
        *_dcgm(site),
        *_mig(mig_layouts),
        Sourced(("nfd", "enabled"), value=True, source="the cluster's only NFD: the Network Operator's is turned off"),
        Sourced(
            ("node-feature-discovery", "worker", "tolerations"),
            [_CONTROL_PLANE, GPU_TAINT, ours(handover)],
            f"a node without NFD's labels gets no pod of the operator. {replaced}",
        ),
    )
    purpose = ("Values of the GPU Operator's chart, for nodes that have driver and container toolkit already.",)
    return ExportedFile("gpu-operator-values.yaml", purpose, (values,))


def _all(versions: Iterable[str]) -> str:
    return " and ".join(sorted(set(versions)))


def _dcgm(site: Site) -> list[Sourced]:
    """Return the values for DCGM; none where the site manages it itself."""
    if not site.software.manage_dcgm:
        return []
    env = [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": _ENGINE}]
    versions = _all(loader.software(view.site.software.set).dcgm for view in _software(site))
    why = f"install has put DCGM {versions} on the nodes, with its host engine (software)"
    use = f"the exporter asks the node's host engine, on the node's network ({_GO}, controllers/object_controls.go)"
    off, asks = Sourced(("dcgm", "enabled"), value=False, source=why), Sourced(("dcgmExporter", "env"), env, use)
    tag = _exporter(site)
    paired = f"paired with DCGM {versions}: an exporter of a newer DCGM does not start with its host engine ({_UP})"
    return [off, Sourced(("dcgmExporter", "version"), tag, paired), asks] if tag else [off, asks]


def _exporter(site: Site) -> str:
    """Return the tag of dcgm-exporter's image that fits the host engine of every node, empty if there is none."""
    sets = [loader.software(view.site.software.set) for view in _software(site)]
    tags, engines = {one.dcgm_exporter for one in sets}, {one.dcgm_release for one in sets}
    return tags.pop() if len(tags) == len(engines) == 1 else ""


def _exporter_note(site: Site) -> str:
    names = ", ".join(sorted({view.site.software.set for view in _software(site)}))
    versions = _all(loader.software(view.site.software.set).dcgm for view in _software(site))
    return (
        f"{names}: no image of dcgm-exporter is known to fit DCGM {versions}. The chart has one image for all nodes, "
        f"and an exporter of a newer DCGM does not start with an older host engine ({_UP}): set dcgmExporter.version "
        "to one that is paired with the oldest DCGM of the cluster."
    )


def _mig(layouts: Mapping[str, str]) -> list[Sourced]:
    off = Sourced(("migManager", "enabled"), value=False, source="optimize gives GPUs their MIG layout (mig_layout)")
    if not layouts:
        return [off]
    named = ", ".join(f"{layout} in {file}" for file, layout in layouts.items())
    why = f"mig_layout: {named}. mixed also offers whole GPUs, those of nodes without MIG"
    return [Sourced(("mig", "strategy"), "mixed", why), off]


def _dra_driver(handover: KubernetesHandover, imex: list[str]) -> ExportedFile:
    why = f"handover.devices: {handover.devices}"
    override = f"{why}. Without it the chart fails ({_DR}, templates/validation.yaml)"
    domains = "no platform has NVLink across servers"
    if imex:
        domains = f"{', '.join(imex)}: IMEX is the nodes' own, which install starts. ComputeDomains need it off"
    taint = f"handover.taint: {handover.taint}. The list replaces the chart's ({_DR}, values.yaml)"
    values = (
        Sourced(("nvidiaDriverRoot",), "/", "install has put the driver on the nodes themselves"),
        Sourced(("gpuResourcesEnabledOverride",), value=True, source=override),
        Sourced(("resources", "gpus", "enabled"), value=True, source=why),
        Sourced(("resources", "computeDomains", "enabled"), value=False, source=domains),
        Sourced(("kubeletPlugin", "tolerations"), [GPU_TAINT, ours(handover)], taint),
    )
    purpose = ("Values of the chart of NVIDIA's DRA driver, dra-driver-nvidia-gpu.",)
    return ExportedFile("dra-driver-values.yaml", purpose, (values,))


def _notes(site: Site, handover: KubernetesHandover, imex: list[str]) -> list[str]:
    notes = []
    if handover.devices == "dra":
        notes.append(f"handover.devices: dra needs Kubernetes 1.34.2 or newer ({_DR}, docs/prerequisites.md).")
    if imex:
        notes.append(
            f"{', '.join(imex)}: ComputeDomains are not supported. The DRA driver runs IMEX itself and needs the "
            f"nodes' own nvidia-imex.service off ({_DR}, docs/prerequisites.md), but install starts it, and gate "
            "rack/gpu/validation/nvlink-domain asks it. Do not mask the unit: the next install would fail."
        )
    if site.software.manage_dcgm and not _exporter(site):
        notes.append(_exporter_note(site))
    if not site.software.manage_dcgm:
        notes.append("software.manage_dcgm: false. Set dcgm and dcgmExporter as your own DCGM needs them.")
    return notes + network_notes(site)
