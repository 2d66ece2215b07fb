"""What Prometheus scrapes, from the site: file service discovery, and the configuration that reads it."""

from __future__ import annotations

from typing import Any

from rackready.design.addresses import addresses
from rackready.design.endpoints import unit_of
from rackready.design.handover_of import part_of
from rackready.design.other_fabrics import other_layout
from rackready.design.placement import place_switches
from rackready.design.plan import fabric_of
from rackready.design.topology.types import FabricPlan
from rackready.design.wiring import cables
from rackready.model.base import Name
from rackready.model.site import Node, Rack, Site

Document = dict[str, Any]
JOBS = ("node", "dcgm", "switch", "rackready")
"""Jobs of Prometheus. Alerts tell exporters apart by them."""
RULES = "rackready.rules.yml"
_OWN = "rackready_.*|node_textfile_.*"
"""Metrics that are kept of the machine that runs rackready: it is no node of the site."""


def targets(site: Site) -> dict[str, list[Document]]:
    """Return job -> groups of targets with their labels: site, rack, unit (scalable unit) and node or switch."""
    at = site.monitoring
    own = [{"targets": [at.metrics_target], "labels": {}}] if at.metrics_target else []
    return {
        "node": _nodes(site, at.node_port),
        "dcgm": _nodes(site, at.dcgm_port),
        "switch": _switches(site, at.switch_port) if at.switch_port else [],
        "rackready": own,
    }


def _nodes(site: Site, port: int) -> list[Document]:
    return [
        {
            "targets": [f"{node.address}:{port}"],
            "labels": {"site": site.name, **_place(site, rack), "node": node.name, **_part(site, node)},
        }
        for rack in site.racks
        for node in rack.nodes
    ]


def _part(site: Site, node: Node) -> dict[str, str]:
    """Return the node's part as a label, where the site has several schedulers."""
    called = part_of(site, node.name)
    return {"part": called} if called else {}


def _place(site: Site, rack: Rack) -> dict[str, str]:
    return {"rack": rack.name, "unit": str(unit_of(site, rack))}


def _switches(site: Site, port: int) -> list[Document]:
    """Return every switch of the plan with a management address. ``rails``: the rails that end at it."""
    fabric = fabric_of(site)
    places, roles = place_switches(site, fabric).places, _roles(site, fabric)
    racks = {rack.name: rack for rack in site.racks}
    rails: dict[Name, set[int]] = {}
    for (_, rail), (end, _) in cables(site).items():
        rails.setdefault(end, set()).add(rail)
    out = []
    for switch in addresses(site, fabric if site.topology is not None else None).switches:
        if not switch.oob:
            continue
        labels = {"site": site.name, "switch": switch.name, "role": roles.get(switch.name, "")}
        if switch.name in places:
            rack = places[switch.name][0]
            labels |= _place(site, racks[rack]) if rack in racks else {"rack": rack}
        if switch.name in rails:
            labels["rails"] = ",".join(str(rail) for rail in sorted(rails[switch.name]))
        out.append({"targets": [f"{switch.oob}:{port}"], "labels": labels})
    return out


def _roles(site: Site, fabric: FabricPlan) -> dict[str, str]:
    """Return switch -> the network that it serves."""
    made = {switch.name: "compute" for switch in fabric.switches}
    others = {switch.name: switch.role for switch in other_layout(site).switches}
    return made | others | {switch.name: switch.role for switch in site.switches}


def prometheus(site: Site) -> Document:
    """Return Prometheus' configuration. Its paths are relative to the file itself."""
    every = f"{site.monitoring.scrape_interval_s}s"
    found: Document = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [RULES],
        "scrape_configs": [_job(job) for job in JOBS],
    }
    if site.monitoring.alertmanagers:
        found["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": list(site.monitoring.alertmanagers)}]}]}
    return found


def _job(job: str) -> Document:
    found: Document = {"job_name": job, "file_sd_configs": [{"files": [f"targets/{job}.json"]}]}
    if job == "rackready":
        # Its metrics are about nodes: their own labels count, and not those of the machine that serves them.
        found["honor_labels"] = True
        keep = {"source_labels": ["__name__"], "regex": _OWN, "action": "keep"}
        found["metric_relabel_configs"] = [keep]
    return found
