"""Files of Prometheus, Alertmanager and dcgm-exporter, as text."""

from __future__ import annotations

import json

from rackready.design.handover_of import handover_views
from rackready.design.monitoring.conditions import counters
from rackready.design.monitoring.counters import counters_csv
from rackready.design.monitoring.dashboards import expressions
from rackready.design.monitoring.exporters import gpu_exporter, managed
from rackready.design.monitoring.own_conditions import METRICS_MISSING
from rackready.design.monitoring.routes import alertmanager
from rackready.design.monitoring.rules import rules
from rackready.design.monitoring.targets import RULES, prometheus, targets
from rackready.design.yaml import dump_yaml
from rackready.model.site import Site
from rackready.profiles import loader

COUNTERS = "dcgm-counters.csv"
_HEAD = (
    "# Written by `rackready export prometheus`, which replaces it. Put changes of your own into files of your own.\n"
)


def monitoring_files(site: Site) -> dict[str, bytes]:
    """Return every file by its path: configuration, rules, targets, routes and counters."""
    found = {
        "prometheus.yml": _HEAD + dump_yaml(prometheus(site)),
        RULES: _HEAD + dump_yaml(rules(() if site.monitoring.metrics_target else (METRICS_MISSING,))),
        "alertmanager.yml": _HEAD + dump_yaml(alertmanager(site)),
        COUNTERS: counters_csv(counters(expressions())),
    }
    for job, groups in targets(site).items():
        found[f"targets/{job}.json"] = json.dumps(groups, indent=2) + "\n"
    return {name: text.encode() for name, text in found.items()}


def missing(site: Site) -> list[str]:
    """Return what the site file leaves open, in words."""
    at, out = site.monitoring, []
    if at.metrics_target is None:
        out.append(
            "monitoring.metrics_target is not set: alerts about missing GPUs, planned rails and node states cannot "
            "fire, and nodes that are not there yet, out for repair or retired count as unreachable"
        )
    if not at.alertmanagers:
        out.append("monitoring.alertmanagers is empty: Prometheus sends its alerts nowhere")
    silent = [name for name in ("critical", "warning") if getattr(at.webhooks, name) is None]
    if silent:
        out.append(f"monitoring.webhooks has no {' and no '.join(silent)}: Alertmanager only shows those alerts")
    out += _unmanaged(site)
    if at.switch_port is None:
        out.append("monitoring.switch_port is not set: switches are not scraped")
    nameless = sorted(name for name in {node.platform for node in site.nodes()} if _nameless(name))
    if nameless:
        out.append(
            f"profiles without names of RDMA devices: {', '.join(nameless)}: rails of these nodes are not watched. "
            "`rackready profile learn` reads the names from a node"
        )
    return out


def _unmanaged(site: Site) -> list[str]:
    """Return who must run dcgm-exporter where role monitoring leaves it out."""
    port = f"must answer at port {site.monitoring.dcgm_port} of every node"
    left = [view.called for view in handover_views(site) if not gpu_exporter(view.site)]
    if not managed(site) or not left:
        return []
    if not site.software.manage_dcgm:
        return [f"software.manage_dcgm is false: role monitoring installs no dcgm-exporter, and yours {port}"]
    of = f" of part {', '.join(left)}" if any(left) else ""
    return [f"role monitoring leaves dcgm-exporter to the GPU Operator, whose pods {port}{of}"]


def _nameless(platform: str) -> bool:
    return any(not nic.rdma_device for nic in loader.platform(platform).nics)
