"""Conditions of rackready's own metrics (`rackready export metrics`)."""

from __future__ import annotations

from rackready.design.monitoring.condition import NODE, Condition, Record, Scope, Severity

_OWN = "rackready export metrics"
_STATE = "See docs/runbooks/quarantined-node.md."
_DAYS = 30
"""Age of a node's newest evidence that is too old. Our judgement: the gate set decides what still counts."""

METRICS_MISSING = "RackreadyMetricsMissing"
"""The alert about our own metrics: without a place where they are scraped it would fire for ever."""

OWN_RECORDS = (
    Record("state:nodes:count", "sum by (site, state) (rackready_node_state)", "nodes", "nodes in each state"),
    Record(
        "rack:nodes_ready:ratio",
        '(sum by (site, rack, unit) (rackready_node_state{state="ready"}) '
        "or sum by (site, rack, unit) (rackready_node_state) * 0) "
        "/ sum by (site, rack, unit) (rackready_node_state)",
        "ratio",
        "share of a rack's nodes that are ready",
    ),
)

OWN_CONDITIONS = (
    Condition(
        id="NodeQuarantined",
        severity=Severity.WARNING,
        scope=Scope.NODE,
        meaning="rackready took the node out of service.",
        expr='rackready_node_state{state="quarantined"} == 1',
        unit="boolean",
        expected="ready",
        actual="quarantined",
        next_step=f"`rackready status` gives the reason. {_STATE}",
        source=_OWN,
    ),
    Condition(
        id="NodeStuck",
        severity=Severity.WARNING,
        scope=Scope.NODE,
        meaning="A state of the node outlasted its time limit.",
        expr='rackready_node_state{state="stuck"} == 1',
        unit="boolean",
        expected="ready",
        actual="stuck",
        next_step=f"`rackready status --node NODE` shows its states. {_STATE}",
        source=_OWN,
    ),
    Condition(
        id="NodeGateFailed",
        severity=Severity.WARNING,
        scope=Scope.NODE,
        meaning="The last result of a gate on a ready node is a fail or an error.",
        expr=f'sum by ({NODE}) (rackready_node_gate_results{{outcome=~"fail|error"}}) > 0 '
        f'and on ({NODE}) rackready_node_state{{state="ready"}} == 1',
        unit="gates",
        expected="0 gates",
        actual="{{ $value }}",
        next_step="`rackready report` shows them. Run `rackready validate --limit NODE`.",
        source=_OWN,
    ),
    Condition(
        id="NodeEvidenceOld",
        severity=Severity.WARNING,
        scope=Scope.NODE,
        meaning="Nothing measured the ready node for a long time.",
        expr=f"time() - rackready_node_evidence_timestamp_seconds > {_DAYS * 86400} "
        f'and on ({NODE}) rackready_node_state{{state="ready"}} == 1',
        unit="s",
        expected=f"at most {_DAYS} days",
        actual="{{ $value | humanizeDuration }}",
        next_step="Run `rackready validate --limit NODE` in a maintenance window.",
        source=f"{_OWN}; the threshold is our judgement",
    ),
    Condition(
        id="CampaignCutOff",
        severity=Severity.WARNING,
        scope=Scope.SITE,
        meaning="The controller of the newest campaign was killed: nodes wait for it.",
        expr='rackready_campaign_status{status="cut off"} == 1',
        unit="boolean",
        expected="running or finished",
        actual="campaign {{ $labels.campaign }} ({{ $labels.kind }}) was cut off",
        next_step="Run the same command again: it continues where it stopped.",
        source=_OWN,
    ),
    Condition(
        id="RackreadyMetricsOld",
        severity=Severity.WARNING,
        scope=Scope.SITE,
        meaning="rackready's metrics are old: alerts about rails, missing GPUs and states use old facts.",
        expr="time() - rackready_metrics_timestamp_seconds > 3600",
        unit="s",
        expected="at most 1 h",
        actual="{{ $value | humanizeDuration }}",
        next_step="Run `rackready export metrics --env ENV --out FILE`, and look at the timer that runs it.",
        source=f"{_OWN}; the threshold is our judgement",
        for_s=300,
    ),
    Condition(
        id=METRICS_MISSING,
        severity=Severity.WARNING,
        scope=Scope.SITE,
        meaning="No metrics of rackready arrive: alerts about rails, missing GPUs and states cannot fire.",
        expr='group by (site) (up{job=~"node|dcgm|switch"}) '
        "unless on (site) group by (site) (rackready_metrics_timestamp_seconds)",
        unit="boolean",
        expected="rackready_metrics_timestamp_seconds",
        actual="no such metric",
        next_step="Check monitoring.metrics_target of the site file, and the file of `rackready export metrics`.",
        source=_OWN,
        for_s=900,
    ),
)
