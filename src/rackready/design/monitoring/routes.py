"""Routes of Alertmanager: who gets an alert, and which alert silences which."""

from __future__ import annotations

from typing import Any

from rackready.design.monitoring.condition import Severity
from rackready.model.monitoring import WebhookFile
from rackready.model.site import Site

Document = dict[str, Any]
_REPEAT = {Severity.CRITICAL: "1h", Severity.WARNING: "12h", Severity.INFO: "24h"}
"""How often an alert that still fires is sent again. Our judgement."""


def receiver(severity: Severity) -> str:
    """Return the name of the receiver of a severity."""
    return f"rackready-{severity.value}"


def alertmanager(site: Site) -> Document:
    """Return Alertmanager's configuration. A receiver without a webhook only shows its alerts there."""
    return {
        "route": {
            "receiver": receiver(Severity.WARNING),
            "group_by": ["alertname", "site", "rack"],
            # Longer than a rack takes to be found without power, so that its one alert comes before those of its nodes.
            "group_wait": "60s",
            "group_interval": "5m",
            "repeat_interval": _REPEAT[Severity.WARNING],
            "routes": [
                {
                    "matchers": [f'severity="{severity.value}"'],
                    "receiver": receiver(severity),
                    "repeat_interval": _REPEAT[severity],
                }
                for severity in Severity
            ],
        },
        "receivers": [_receiver(site, severity) for severity in Severity],
        "inhibit_rules": [_inhibit(*rule) for rule in _INHIBITIONS],
    }


def _receiver(site: Site, severity: Severity) -> Document:
    found: Document = {"name": receiver(severity)}
    url = getattr(site.monitoring.webhooks, severity.value)
    if url is not None:
        found["webhook_configs"] = [{"url_file": url.url_file} if isinstance(url, WebhookFile) else {"url": url}]
    return found


_INHIBITIONS: tuple[tuple[list[str], list[str], list[str]], ...] = (
    # A rack without power is one alert.
    (['alertname="RackUnreachable"'], ['alertname!="RackUnreachable"'], ["site", "rack"]),
    # Only node_exporter is known not to answer: what dcgm-exporter says, or said before the node hung, stays.
    (
        ['alertname="NodeUnreachable"'],
        ['alertname=~"GpuExporterDown|NodeQuarantined|NodeStuck"'],
        ["site", "rack", "node"],
    ),
    # A GPU that needs a reset or a power cycle shows further faults.
    (
        ['scope="gpu"', 'severity="critical"', 'action=~"RESET_GPU|RESTART_BM"'],
        ['scope="gpu"', 'severity=~"warning|info"'],
        ["site", "node", "gpu"],
    ),
    # Links come up again when a node boots.
    (['alertname="NodeRebooted"'], ['alertname=~"RailFlapping|NvlinkRecoveryErrors"'], ["site", "node"]),
)
"""Matchers of the cause, of the alerts that it silences, and the labels in which both agree."""


def _inhibit(source: list[str], target: list[str], equal: list[str]) -> Document:
    return {"source_matchers": source, "target_matchers": target, "equal": equal}
