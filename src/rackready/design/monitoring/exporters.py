"""The exporters of nodes, as variables of role monitoring: where they listen, and what they must answer.

An alert whose counter never arrives says that all is well without having measured. So every node must answer each
counter that an alert reads, apart from those that its GPUs cannot have.
"""

from __future__ import annotations

from typing import Any

from rackready.design.facts import NodeFacts
from rackready.design.monitoring.condition import metrics_of
from rackready.design.monitoring.conditions import conditions, counters, records
from rackready.design.monitoring.counters import NODE, counters_csv
from rackready.design.monitoring.dashboards import expressions
from rackready.model.profile import GpuProfile, PlatformProfile
from rackready.model.site import KubernetesHandover, Site
from rackready.profiles import loader

_NVLINK_5 = "DCGM_FI_DEV_NVLINK_COUNT_"
"""Start of the counters of NVLink 5 and later (NVIDIA/DCGM @72fa3fe, dcgm_fields.h, 1200 to 1229)."""
_NVLINK_4 = ("DCGM_FI_DEV_NVLINK_CRC_", "DCGM_FI_DEV_NVLINK_RECOVERY_")
"""Starts of those of NVLink 1 to 4 (dcgm_fields.h, 409 and 439). No source says that NVLink 5 answers them."""
_PER_DEVICE = "node_infiniband_"


def managed(site: Site) -> bool:
    """Return whether rackready installs exporters: only where the site file asks for it."""
    return site.monitoring.manage_exporters


def gpu_exporter(site: Site) -> bool:
    """Return whether the nodes of a scheduler get dcgm-exporter: the GPU Operator and a foreign DCGM have theirs.

    ``site``: as these nodes see it.
    """
    return site.software.manage_dcgm and not isinstance(site.handover, KubernetesHandover)


def exporter_vars(site: Site) -> dict[str, Any]:
    """Return the role variables that are the same on every node; none where rackready installs no exporter."""
    if not managed(site):
        return {}
    at, read = site.monitoring, _read()
    return {
        "monitoring_managed": True,
        "monitoring_node_port": at.node_port,
        "monitoring_dcgm_port": at.dcgm_port,
        "monitoring_interval_s": at.scrape_interval_s,
        "monitoring_counters_file": counters_csv(counters(expressions())),
        "monitoring_node_metrics": [name for name in read if not name.startswith(_PER_DEVICE)],
        "monitoring_device_metrics": [name for name in read if name.startswith(_PER_DEVICE)],
    }


def exporter_scheduler_vars(site: Site) -> dict[str, Any]:
    """Return the role variables that depend on the scheduler by which a site is seen."""
    return {"monitoring_dcgm": gpu_exporter(site)} if managed(site) else {}


def exporter_platform_vars(site: Site, platform: PlatformProfile) -> dict[str, Any]:
    """Return the role variables that depend on the server model."""
    if not managed(site):
        return {}
    return {
        "monitoring_gpus": platform.gpus,
        "monitoring_gpu_metrics": gpu_metrics(loader.gpu(platform.gpu)),
    }


def exporter_node_vars(site: Site, facts: NodeFacts) -> dict[str, Any]:
    """Return the role variables of one node: its in-band address, at which Prometheus scrapes it, and its rails."""
    if not managed(site):
        return {}
    return {
        "monitoring_address": str(facts.node.address),
        "monitoring_interfaces": [nic.netdev for nic in facts.nics] if site.fabric.kind == "roce" else [],
        "monitoring_rails": len(facts.nics),
        "monitoring_devices": [nic.rdma_device for nic in facts.nics if nic.rdma_device],
    }


def gpu_metrics(gpu: GpuProfile) -> list[str]:
    """Return the counters that alerts read and that every GPU of this model can have."""
    never: tuple[str, ...] = (_NVLINK_5, *_NVLINK_4)
    if gpu.nvlink is not None:
        never = _NVLINK_4 if gpu.nvlink.has_subnet else (_NVLINK_5,)
    return [name for name in counters() if not name.startswith(never)]


def _read() -> list[str]:
    """Return the metrics of node_exporter that alerts read."""
    expressions_ = [*(one.expr for one in conditions()), *(one.expr for one in records().values())]
    return sorted({name for expr in expressions_ for name in metrics_of(expr)} & NODE.keys())
