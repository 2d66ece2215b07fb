"""Dashboards as plain data: panels with their queries. Text for Grafana is made from them (render.grafana)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rackready.design.monitoring.conditions import records
from rackready.design.monitoring.host_conditions import ERRORS

Kind = Literal["lines", "number", "table"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``unit``: as Grafana calls it. ``legend``: with labels as ``{{node}}``. ``wide``: in 24 columns."""

    title: str
    expr: str
    unit: str
    legend: str
    description: str
    kind: Kind = "lines"
    wide: int = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable of a dashboard: values of a label of a metric."""

    name: str
    metric: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    uid: str
    title: str
    choices: tuple[Choice, ...]
    panels: tuple[Panel, ...]


_SITE = Choice("site", "rackready_node_state")
_S, _R, _N = 'site="$site"', 'site="$site", rack="$rack"', 'site="$site", node="$node"'
_FIRING = 'ALERTS{{alertstate="firing", {}}}'


def _alerts(chosen: str) -> Panel:
    firing = _FIRING.format(chosen)
    return Panel(
        "Firing alerts",
        f"sum by (alertname, severity, node, gpu, rail) ({firing}) or vector(0) unless on () {firing}",
        "short",
        "{{severity}} {{alertname}} {{node}}",
        "Alerts that fire now. Only a row of 0 without a name: none.",
        "table",
        24,
    )


def _of(name: str, *, title: str, expr: str, unit: str, legend: str) -> Panel:
    """Return a panel of a recording rule, with its meaning."""
    return Panel(title, expr, unit, legend, f"{records()[name].meaning}, {records()[name].unit}".capitalize())


def _fleet() -> Dashboard:
    return Dashboard(
        "rackready-fleet",
        "rackready: fleet",
        (_SITE,),
        (
            Panel("Nodes", f"sum(rackready_node_state{{{_S}}})", "short", "nodes", "Nodes of the site", "number", 6),
            Panel(
                "Ready",
                f'sum(rackready_node_state{{{_S}, state="ready"}}) or vector(0)',
                "short",
                "ready",
                "Nodes that jobs may use",
                "number",
                6,
            ),
            Panel(
                "GPUs",
                f"sum(node:gpus:count{{{_S}}})",
                "short",
                "GPUs",
                "GPUs that dcgm-exporters report",
                "number",
                6,
            ),
            Panel(
                "GPU power",
                f"sum(rack:gpu_power:sum{{{_S}}})",
                "watt",
                "power",
                "Power of all GPUs, W",
                "number",
                6,
            ),
            _alerts(_S),
            _of(
                "state:nodes:count",
                title="Nodes by state",
                expr=f"state:nodes:count{{{_S}}}",
                unit="short",
                legend="{{state}}",
            ),
            _of(
                "rack:nodes_ready:ratio",
                title="Ready nodes by rack",
                expr=f"rack:nodes_ready:ratio{{{_S}}}",
                unit="percentunit",
                legend="{{rack}}",
            ),
            _of(
                "rack:gpu_power:sum",
                title="GPU power by rack",
                expr=f"rack:gpu_power:sum{{{_S}}}",
                unit="watt",
                legend="{{rack}}",
            ),
            _of(
                "rack:targets_up:ratio",
                title="Targets that answer by rack",
                expr=f"rack:targets_up:ratio{{{_S}}}",
                unit="percentunit",
                legend="{{rack}}",
            ),
        ),
    )


def _rack() -> Dashboard:
    return Dashboard(
        "rackready-rack",
        "rackready: rack",
        (_SITE, Choice("rack", 'rackready_node_state{site="$site"}')),
        (
            _alerts(_R),
            Panel(
                "State of nodes",
                f"rackready_node_state{{{_R}}}",
                "short",
                "{{node}}: {{state}}",
                "State of each node",
                "table",
            ),
            _of(
                "node:gpus:count",
                title="GPUs of nodes",
                expr=f"node:gpus:count{{{_R}}}",
                unit="short",
                legend="{{node}}",
            ),
            _of(
                "node:gpu_power:sum",
                title="GPU power of nodes",
                expr=f"node:gpu_power:sum{{{_R}}}",
                unit="watt",
                legend="{{node}}",
            ),
            Panel(
                "Hottest GPU of nodes",
                f"max by (node) (DCGM_FI_DEV_GPU_TEMP{{{_R}}})",
                "celsius",
                "{{node}}",
                "Highest GPU temperature, C",
            ),
            Panel(
                "Thermal slowdown of nodes",
                f"max by (node) (gpu:thermal_slowdown:ratio_rate10m{{{_R}}})",
                "percentunit",
                "{{node}}",
                records()["gpu:thermal_slowdown:ratio_rate10m"].meaning.capitalize(),
            ),
            Panel(
                "Targets that answer",
                f"up{{{_R}}}",
                "short",
                "{{job}} {{node}}{{switch}}",
                "1: the exporter answers",
            ),
        ),
    )


def _gpu(title: str, metric: str, unit: str, description: str, legend: str = "GPU {{gpu}}") -> Panel:
    return Panel(title, f"{metric}{{{_N}}}", unit, legend, description)


def _node() -> Dashboard:
    return Dashboard(
        "rackready-node",
        "rackready: node",
        (_SITE, Choice("node", 'rackready_node_state{site="$site"}')),
        (
            _alerts(_N),
            _gpu("GPU utilization", "DCGM_FI_DEV_GPU_UTIL", "percent", "Share of time with a kernel on the GPU, %"),
            _gpu("GPU power", "DCGM_FI_DEV_POWER_USAGE", "watt", "Power draw, W"),
            _gpu("GPU temperature", "DCGM_FI_DEV_GPU_TEMP", "celsius", "Temperature, C"),
            _gpu("Memory temperature", "DCGM_FI_DEV_MEMORY_TEMP", "celsius", "Temperature of HBM, C"),
            _gpu("SM clock", "DCGM_FI_DEV_SM_CLOCK", "short", "MHz"),
            _gpu("GPU memory used", "DCGM_FI_DEV_FB_USED", "mbytes", "MiB"),
            _of(
                "gpu:thermal_slowdown:ratio_rate10m",
                title="Thermal slowdown",
                expr=f"gpu:thermal_slowdown:ratio_rate10m{{{_N}}}",
                unit="percentunit",
                legend="GPU {{gpu}}",
            ),
            _of(
                "gpu:power_slowdown:ratio_rate10m",
                title="Slowdown by the power limit",
                expr=f"gpu:power_slowdown:ratio_rate10m{{{_N}}}",
                unit="percentunit",
                legend="GPU {{gpu}}",
            ),
            _gpu("Xids of 5 minutes", "DCGM_EXP_XID_ERRORS_COUNT", "short", "Xids", "GPU {{gpu}} Xid {{xid}}"),
            _gpu("Corrected ECC errors", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "short", "Since the driver loaded"),
            _gpu("Uncorrected ECC errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "short", "Since the driver loaded"),
            _gpu("Remapped rows", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "short", "For uncorrectable errors"),
            Panel(
                "NVLink CRC errors",
                f"rate(DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{{{_N}}}[5m])",
                "short",
                "GPU {{gpu}}",
                "Errors a second; DCGM takes 100 a second for bad",
            ),
            Panel(
                "PCIe replays",
                f"rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{_N}}}[5m]) * 60",
                "short",
                "GPU {{gpu}}",
                "Replays a minute",
            ),
            Panel(
                "Rails, received",
                f"rail:received:rate5m{{{_N}}}",
                "Bps",
                "rail {{rail}}",
                records()["rail:received:rate5m"].meaning.capitalize(),
            ),
            Panel("Load", f"node_load1{{{_N}}}", "short", "load", "Processes that run or wait"),
            Panel(
                "Memory used",
                f"1 - node_memory_MemAvailable_bytes{{{_N}}} / node_memory_MemTotal_bytes{{{_N}}}",
                "percentunit",
                "memory",
                "Share of the main memory",
            ),
        ),
    )


def _rail() -> Dashboard:
    chosen = 'site="$site", rail="$rail"'
    joined = f"* on (site, rack, unit, node, device) group_left (rail, switch) rackready_rail_info{{{chosen}}}"
    return Dashboard(
        "rackready-rail",
        "rackready: rail",
        (_SITE, Choice("rail", 'rackready_rail_info{site="$site"}')),
        (
            Panel(
                "Links up",
                f"sum((node_infiniband_state_id == bool 4) {joined}) / count(rackready_rail_info{{{chosen}}})",
                "percentunit",
                "links",
                "Share of the planned links of this rail that are active",
                "number",
            ),
            Panel(
                "Planned links",
                f"count(rackready_rail_info{{{chosen}}})",
                "short",
                "links",
                "Links that the site plans for this rail",
                "number",
            ),
            _alerts(chosen),
            Panel("Received", f"rail:received:rate5m{{{chosen}}}", "Bps", "{{node}} ({{switch}})", "Bytes a second"),
            Panel("Sent", f"rail:transmitted:rate5m{{{chosen}}}", "Bps", "{{node}} ({{switch}})", "Bytes a second"),
            Panel(
                "Symbol errors for each bit",
                f"{ERRORS} {joined}",
                "short",
                "{{node}} ({{switch}})",
                records()[ERRORS].meaning.capitalize(),
            ),
            Panel(
                "Links that went down in an hour",
                f"increase(node_infiniband_link_downed_total[1h]) {joined}",
                "short",
                "{{node}} ({{switch}})",
                "Events",
            ),
            Panel(
                "Waits to send",
                f"rate(node_infiniband_port_transmit_wait_total[5m]) {joined}",
                "short",
                "{{node}} ({{switch}})",
                "Ticks a second in which the port had data and could not send: congestion",
            ),
        ),
    )


def _campaign() -> Dashboard:
    return Dashboard(
        "rackready-campaign",
        "rackready: campaign",
        (_SITE,),
        (
            Panel(
                "Newest campaign",
                f"rackready_campaign_status{{{_S}}}",
                "short",
                "{{kind}} {{campaign}}: {{status}}",
                "Its kind and status",
                "table",
            ),
            Panel(
                "Time since it began",
                f"time() - rackready_campaign_begun_timestamp_seconds{{{_S}}}",
                "s",
                "{{campaign}}",
                "Seconds",
                "number",
                6,
            ),
            Panel(
                "Age of these facts",
                f"time() - rackready_metrics_timestamp_seconds{{{_S}}}",
                "s",
                "age",
                "Seconds since `rackready export metrics` ran",
                "number",
                6,
            ),
            _of(
                "state:nodes:count",
                title="Nodes by state",
                expr=f"state:nodes:count{{{_S}}}",
                unit="short",
                legend="{{state}}",
            ),
            Panel(
                "Gates by outcome",
                f"sum by (outcome) (rackready_node_gate_results{{{_S}}})",
                "short",
                "{{outcome}}",
                "Last result of every gate on every node",
            ),
            Panel(
                "Gates that failed, by node",
                f'sum by (node) (rackready_node_gate_results{{{_S}, outcome=~"fail|error"}})',
                "short",
                "{{node}}",
                "Gates whose last result is a fail or an error",
            ),
            Panel(
                "Age of evidence",
                f"time() - rackready_node_evidence_timestamp_seconds{{{_S}}}",
                "s",
                "{{node}}",
                "Time since the node was measured last",
            ),
        ),
    )


def dashboards() -> tuple[Dashboard, ...]:
    """Return every dashboard: fleet, rack, node, rail and campaign."""
    return _fleet(), _rack(), _node(), _rail(), _campaign()


def expressions() -> tuple[str, ...]:
    """Return the query of every panel."""
    return tuple(panel.expr for dashboard in dashboards() for panel in dashboard.panels)
